"""The names users import, and what importing them costs."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import django_jobqueue

ROOT = Path(__file__).parent.parent
SETTLED = {
    "django_jobqueue": """
        job handler BaseHandler Job DeadJob JobSpec JobContext EnqueueCounts
        RequeueCounts Snooze Cancel Discard RateLimited JobTimeout exponential linear
        __version__
    """,
    "django_jobqueue.models": "Job DeadJob Attempt WorkerHeartbeat Queue",
    "django_jobqueue.exceptions": "JobQueueError",
}


def run_python(code: str) -> str:
    """Run code in a Python of its own, without the tests' settings."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", SETTLED)
def test_settled_names_are_there(module: str) -> None:
    for name in SETTLED[module].split():
        assert hasattr(import_module(module), name), name


def test_all_lists_the_settled_names_and_no_others() -> None:
    assert set(django_jobqueue.__all__) == set(SETTLED["django_jobqueue"].split())


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'enqueue_later'"):
        django_jobqueue.enqueue_later  # noqa: B018
    assert not hasattr(django_jobqueue, "utils")


def test_version_has_three_parts() -> None:
    assert django_jobqueue.__version__.count(".") == 2


def test_importing_the_package_imports_neither_models_nor_django() -> None:
    code = """
import sys, django_jobqueue
print([name for name in sys.modules if name.partition(".")[0] == "django"])
"""
    assert run_python(code) == "[]"


def test_handlers_can_be_declared_without_touching_a_model() -> None:
    code = """
import sys
import django_jobqueue
from django_jobqueue import job, handler, BaseHandler, exponential, Snooze
print([name for name in sys.modules if name.startswith("django_jobqueue.models")])
"""
    assert run_python(code) == "[]"


def test_psycopg_is_not_imported_where_only_sqlite_is_configured() -> None:
    code = """
import sys
import django
from django.conf import settings
sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
settings.configure(
    INSTALLED_APPS=["django_jobqueue"], DATABASES={"default": sqlite}, USE_TZ=True
)
django.setup()
from django_jobqueue import *
from django_jobqueue.worker.worker import Worker
from django_jobqueue.management.commands.runworker import Command
from django_jobqueue.lifecycle import finish, rescue, requeue, wait
print([name for name in sys.modules if name.startswith("psycopg")])
"""
    assert run_python(code) == "[]"


def test_package_says_that_it_is_typed() -> None:
    assert (Path(django_jobqueue.__file__).parent / "py.typed").exists()
