"""The pytest plugin: the testing kit as fixtures.

pytest loads it wherever this package is installed, so it imports nothing until a test
uses a fixture. A test that runs jobs needs the database: the mark `django_db` or the
fixture `db`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..models import Job
    from .clock import JobClock
    from .ran_jobs import RanJobs


@pytest.fixture
def run_jobs() -> Callable[..., RanJobs]:
    """The function run_jobs()."""
    from .run import run_jobs

    return run_jobs


@pytest.fixture
def captured_jobs() -> Iterator[list[Job]]:
    """The jobs that this test has enqueued so far, as a list."""
    from .capture import capture_jobs

    with capture_jobs() as jobs:
        yield jobs


@pytest.fixture
def eager_jobs() -> Iterator[None]:
    """Run every job of this test inside enqueue()."""
    from .eager import eager_jobs

    with eager_jobs():
        yield


@pytest.fixture
def job_clock() -> Iterator[JobClock]:
    """The queue's clock. It stands still until the test moves it."""
    from .clock import travel

    with travel() as clock:
        yield clock
