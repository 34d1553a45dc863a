"""JobQueueTestMixin: the testing kit as methods of a TestCase, spelt like unittest."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from ..models import Job
from ..models.record import JobRecord
from .assertions import (
    aassert_enqueued,
    arefute_enqueued,
    assert_enqueued,
    refute_enqueued,
)
from .capture import capture_jobs
from .clock import Travel, travel
from .eager import EagerJobs, eager_jobs
from .fault_kit import Faults, faults
from .run import RanJobs, arun_jobs, run_jobs


class JobQueueTestMixin:
    """Stands before TestCase: `class OrderTests(JobQueueTestMixin, TestCase)`."""

    # ruff: noqa: N802 (unittest writes its names like this)

    def runJobs(self, **options: Any) -> RanJobs:
        """See run_jobs()."""
        return run_jobs(**options)

    async def arunJobs(self, **options: Any) -> RanJobs:
        """See run_jobs()."""
        return await arun_jobs(**options)

    def assertEnqueued(self, handler: Any, **options: Any) -> list[JobRecord]:
        """See assert_enqueued()."""
        return assert_enqueued(handler, **options)

    async def aassertEnqueued(self, handler: Any, **options: Any) -> list[JobRecord]:
        """See assert_enqueued()."""
        return await aassert_enqueued(handler, **options)

    def assertNotEnqueued(self, handler: Any, **options: Any) -> None:
        """See refute_enqueued()."""
        refute_enqueued(handler, **options)

    async def aassertNotEnqueued(self, handler: Any, **options: Any) -> None:
        """See refute_enqueued()."""
        await arefute_enqueued(handler, **options)

    def captureJobs(self) -> AbstractContextManager[list[Job]]:
        """See capture_jobs()."""
        return capture_jobs()

    def eagerJobs(self, *, raise_errors: bool = True) -> EagerJobs:
        """See eager_jobs()."""
        return eager_jobs(raise_errors=raise_errors)

    def travelJobs(self, to: datetime | timedelta | float | None = None) -> Travel:
        """See travel()."""
        return travel(to)

    def faultJobs(self, seed: int | None = None) -> Faults:
        """See faults()."""
        return faults(seed)
