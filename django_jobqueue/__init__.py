"""Background jobs for Django, in the database the project already has.

The public names, loaded on first use: importing this package imports no model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .backoff import exponential, linear
    from .context import JobContext
    from .exceptions import Cancel, Discard, JobTimeout, RateLimited, Snooze
    from .handlers import BaseHandler, handler, job
    from .lifecycle.enqueue_many import EnqueueCounts
    from .lifecycle.requeue import RequeueCounts
    from .models import DeadJob, Job
    from .storage.new_jobs import JobSpec

_MODULE_OF = {
    "BaseHandler": "handlers",
    "Cancel": "exceptions",
    "DeadJob": "models",
    "Discard": "exceptions",
    "EnqueueCounts": "lifecycle.enqueue_many",
    "Job": "models",
    "JobContext": "context",
    "JobSpec": "storage.new_jobs",
    "JobTimeout": "exceptions",
    "RateLimited": "exceptions",
    "RequeueCounts": "lifecycle.requeue",
    "Snooze": "exceptions",
    "exponential": "backoff",
    "handler": "handlers",
    "job": "handlers",
    "linear": "backoff",
}

# Names that people import from other packages. ImportError: `from … import` shows it.
_FOREIGN = ("task", "shared_task")

__all__ = [
    "BaseHandler",
    "Cancel",
    "DeadJob",
    "Discard",
    "EnqueueCounts",
    "Job",
    "JobContext",
    "JobSpec",
    "JobTimeout",
    "RateLimited",
    "RequeueCounts",
    "Snooze",
    "__version__",
    "exponential",
    "handler",
    "job",
    "linear",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _FOREIGN:
        raise ImportError(
            f"There is no {name!r} in {__name__}. Write `from {__name__} import job` "
            f"and decorate the function with @job; or `from django.tasks import task` "
            f"with the backend of {__name__} in TASKS.",
            name=__name__,
        )
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
