"""The public names, and what importing them imports."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import django_jobqueue

ROOT = Path(__file__).parent.parent
PUBLIC = {
    "django_jobqueue": """
        job handler BaseHandler Job DeadJob JobSpec JobContext EnqueueCounts
        RequeueCounts Snooze Cancel Discard RateLimited JobTimeout exponential linear
        __version__
    """,
    "django_jobqueue.models": "Job DeadJob Attempt WorkerHeartbeat Queue",
    "django_jobqueue.exceptions": "JobQueueError",
}


def run_python(code: str) -> str:
    """Run code in a new Python, without the settings of the tests."""
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


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_can_be_imported(module: str) -> None:
    for name in PUBLIC[module].split():
        assert hasattr(import_module(module), name), name


def test_all_lists_exactly_the_public_names() -> None:
    assert set(django_jobqueue.__all__) == set(PUBLIC["django_jobqueue"].split())


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
from django_jobqueue.lifecycle import finish, rescue, requeue
from django_jobqueue.storage import wait
print([name for name in sys.modules if name.startswith("psycopg")])
"""
    assert run_python(code) == "[]"


def test_package_is_marked_as_typed() -> None:
    assert (Path(django_jobqueue.__file__).parent / "py.typed").exists()


def test_names_of_other_packages_give_a_hint() -> None:
    with pytest.raises(ImportError, match=r"import job`.*django\.tasks import task"):
        from django_jobqueue import task  # type: ignore[attr-defined] # noqa: F401
    with pytest.raises(ImportError, match="cannot import name"):
        from django_jobqueue import nonsense  # type: ignore[attr-defined] # noqa: F401
