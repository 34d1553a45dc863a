"""What users' tests need: run jobs, see what was enqueued, move time, break things.

The names, loaded when first used: importing this package touches no model. Factories
are in `django_jobqueue.testing.factories`, since they need factory-boy.
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
    from .conformance import BackendConformance
    from .eager import eager_jobs
    from .fault_kit import END, START, Faults, after, before, faults
    from .mixin import JobQueueTestMixin
    from .run import RanAttempt, RanJobs, RunawayJobs, arun_jobs, run_jobs

_PLACES = {
    "BackendConformance": "conformance",
    "END": "fault_kit",
    "Faults": "fault_kit",
    "JobClock": "clock",
    "JobQueueTestMixin": "mixin",
    "RanAttempt": "run",
    "RanJobs": "run",
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
    "BackendConformance",
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
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
