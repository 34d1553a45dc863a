"""The settings of the tests, with Django's test package as an installed app."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as OURS

INSTALLED_APPS = [*OURS, "tasks"]
# Django's own backends try a task once.
JOBQUEUE = {"MAX_ATTEMPTS": 1}
