"""The fixtures of the transitions: both versions of each database."""

from tests.lifecycle.conftest import database, options  # noqa: F401
