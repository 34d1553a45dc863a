"""The pytest plugin: its fixtures, and that loading it imports nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

import pytest

from django_jobqueue import Job, testing
from django_jobqueue.storage import test_hooks
from django_jobqueue.testing import JobClock, RanJobs
from tests.test_public_names import run_python
from tests.testapp import jobs


@pytest.mark.django_db
def test_fixture_run_jobs(run_jobs: Callable[..., RanJobs]) -> None:
    jobs.add.enqueue(x=1)

    assert run_jobs().results == [2]


@pytest.mark.django_db
def test_fixture_captured_jobs(captured_jobs: list[Job]) -> None:
    job = jobs.add.enqueue(x=1)

    assert captured_jobs == [job]


@pytest.mark.django_db
@pytest.mark.usefixtures("eager_jobs")
def test_fixture_eager_jobs() -> None:
    assert jobs.add.enqueue(x=1).result == 2


@pytest.mark.django_db
def test_fixture_job_clock(
    job_clock: JobClock, run_jobs: Callable[..., RanJobs]
) -> None:
    job = jobs.add.using(delay=timedelta(hours=1)).enqueue(x=1)
    assert job.created_at == job_clock.now()
    assert not run_jobs()

    job_clock.move(hours=1)

    assert run_jobs().results == [2]


def test_fixtures_restore_clock_and_listeners() -> None:
    assert test_hooks.listeners == []
    assert test_hooks.clock is None


def test_plugin_is_installed_once() -> None:
    [plugin] = [
        each
        for each in entry_points(group="pytest11")
        if each.name == "django_jobqueue"
    ]
    assert plugin.value == "django_jobqueue.testing.pytest_plugin"


def test_loading_the_plugin_imports_no_django() -> None:
    code = """
import sys
import django_jobqueue.testing.pytest_plugin
print([name for name in sys.modules if name.partition(".")[0] == "django"])
"""
    assert run_python(code) == "[]"


def test_names_of_the_kit_are_imported_on_first_use() -> None:
    for name in testing.__all__:
        assert getattr(testing, name) is not None
        assert name in dir(testing)
    with pytest.raises(AttributeError, match="no attribute 'run_all'"):
        testing.run_all  # noqa: B018
    code = """
import sys
import django_jobqueue.testing
print([name for name in sys.modules if name.partition(".")[0] == "django"])
"""
    assert run_python(code) == "[]"


def test_every_exported_name_has_a_module() -> None:
    modules: dict[str, Any] = testing._MODULES
    assert sorted(modules) == sorted(testing.__all__)
