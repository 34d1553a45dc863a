"""The settings of the tests, with the other backend installed."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as OURS

INSTALLED_APPS = [*OURS, "django_tasks_db"]
