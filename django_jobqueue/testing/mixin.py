"""JobQueueTestMixin: the testing kit as methods of a TestCase, in unittest's style."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from ..models import Job
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
from .ran_jobs import RanJobs
from .run import arun_jobs, run_jobs


class JobQueueTestMixin:
    """Goes before TestCase: `class OrderTests(JobQueueTestMixin, TestCase)`."""

    # ruff: noqa: N802, N815 (names in unittest's style)

    def runJobs(self, **options: Any) -> RanJobs:
        """See run_jobs()."""
        return run_jobs(**options)

    async def arunJobs(self, **options: Any) -> RanJobs:
        """See run_jobs()."""
        return await arun_jobs(**options)

    # The functions themselves: a wrapper would add its frame to each traceback.
    assertEnqueued = staticmethod(assert_enqueued)
    aassertEnqueued = staticmethod(aassert_enqueued)
    assertNotEnqueued = staticmethod(refute_enqueued)
    aassertNotEnqueued = staticmethod(arefute_enqueued)

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
