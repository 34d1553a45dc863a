"""Each arrow's tests run on every version of it that the chosen database has."""

from __future__ import annotations

import os

import pytest

from django_jobqueue.options import Options, get_options
from django_jobqueue.storage.database import Database

VERSIONS = ["portable"]
if os.environ["JOBQUEUE_TEST_DATABASE"] == "postgresql":
    VERSIONS.append("statements")


@pytest.fixture(params=VERSIONS)
def database(request: pytest.FixtureRequest, db: None) -> Database:
    """The jobs' database, once for each version of the arrows."""
    return Database(alias="default", is_portable=request.param == "portable")


@pytest.fixture
def options() -> Options:
    return get_options()
