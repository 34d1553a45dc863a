"""Background jobs for Django, in the database the project already has.

The public names, loaded when first used: importing this package touches no model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .backoff import exponential, linear
    from .context import JobContext
    from .exceptions import Cancel, Discard, JobTimeout, RateLimited, Snooze
    from .handlers import BaseHandler, handler, job
    from .lifecycle.enqueue import JobSpec
    from .lifecycle.enqueue_many import EnqueueCounts
    from .lifecycle.requeue import RequeueCounts
    from .models import DeadJob, Job

_PLACES = {
    "BaseHandler": "handlers",
    "Cancel": "exceptions",
    "DeadJob": "models",
    "Discard": "exceptions",
    "EnqueueCounts": "lifecycle.enqueue_many",
    "Job": "models",
    "JobContext": "context",
    "JobSpec": "lifecycle.enqueue",
    "JobTimeout": "exceptions",
    "RateLimited": "exceptions",
    "RequeueCounts": "lifecycle.requeue",
    "Snooze": "exceptions",
    "exponential": "backoff",
    "handler": "handlers",
    "job": "handlers",
    "linear": "backoff",
}

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
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
