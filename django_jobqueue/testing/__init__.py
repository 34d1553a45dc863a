"""The testing kit: run jobs, assert what was enqueued, set the clock, inject faults.

Names are imported on first use, so importing this package imports no model. Factories
are in `django_jobqueue.testing.factories`, because they need factory-boy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assertions import (
        aassert_enqueued,
        arefute_enqueued,
        assert_enqueued,
        refute_enqueued,
    )
    from .capture import capture_jobs
    from .clock import JobClock, travel
    from .eager import eager_jobs
    from .fault_kit import END, START, Faults, after, before, faults
    from .mixin import JobQueueTestMixin
    from .ran_jobs import RanAttempt, RanJobs
    from .run import RunawayJobs, arun_jobs, run_jobs

_MODULES = {
    "END": "fault_kit",
    "Faults": "fault_kit",
    "JobClock": "clock",
    "JobQueueTestMixin": "mixin",
    "RanAttempt": "ran_jobs",
    "RanJobs": "ran_jobs",
    "RunawayJobs": "run",
    "START": "fault_kit",
    "aassert_enqueued": "assertions",
    "after": "fault_kit",
    "arefute_enqueued": "assertions",
    "arun_jobs": "run",
    "assert_enqueued": "assertions",
    "before": "fault_kit",
    "capture_jobs": "capture",
    "eager_jobs": "eager",
    "faults": "fault_kit",
    "refute_enqueued": "assertions",
    "run_jobs": "run",
    "travel": "clock",
}

__all__ = [
    "END",
    "START",
    "Faults",
    "JobClock",
    "JobQueueTestMixin",
    "RanAttempt",
    "RanJobs",
    "RunawayJobs",
    "aassert_enqueued",
    "after",
    "arefute_enqueued",
    "arun_jobs",
    "assert_enqueued",
    "before",
    "capture_jobs",
    "eager_jobs",
    "faults",
    "refute_enqueued",
    "run_jobs",
    "travel",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
