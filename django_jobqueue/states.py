"""The states of a job, the transitions between them, and their stored values.

The table of moves is the state machine of docs/design/job-lifecycle.md. The CHECK
constraints of models/job.py restate it, and the random histories are checked with it.
"""

from __future__ import annotations

from enum import StrEnum

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class JobStatus(TextChoices):
    SCHEDULED = "scheduled", _("scheduled")
    PENDING = "pending", _("pending")
    RUNNING = "running", _("running")
    BLOCKED = "blocked", _("blocked")
    SUCCEEDED = "succeeded", _("succeeded")
    CANCELLED = "cancelled", _("cancelled")


class DeadReason(TextChoices):
    EXCEPTION = "exception", _("exception")
    TIMEOUT = "timeout", _("timeout")
    CRASHED = "crashed", _("crashed")
    LOST = "lost", _("lost")
    UNKNOWN_HANDLER = "unknown_handler", _("unknown handler")
    DISCARDED = "discarded", _("discarded")


class AttemptOutcome(TextChoices):
    """How one attempt ended."""

    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    TIMEOUT = "timeout", _("timeout")
    DISCARDED = "discarded", _("discarded")
    CANCELLED = "cancelled", _("cancelled")
    SNOOZED = "snoozed", _("snoozed")
    DEFERRED = "deferred", _("deferred")
    RELEASED = "released", _("released")
    CRASHED = "crashed", _("crashed")
    LOST = "lost", _("lost")
    UNKNOWN_HANDLER = "unknown_handler", _("unknown handler")


class WorkerState(TextChoices):
    RUNNING = "running", _("running")
    STOPPING = "stopping", _("stopping")


class CancelResult(StrEnum):
    """What Job.cancel() achieved."""

    CANCELLED = "cancelled"
    REQUESTED = "requested"
    ENDED = "ended"


LIVE = frozenset(
    {
        JobStatus.SCHEDULED,
        JobStatus.PENDING,
        JobStatus.RUNNING,
        JobStatus.BLOCKED,
    }
)
WAITING = LIVE - {JobStatus.RUNNING}
ENDED = frozenset({JobStatus.SUCCEEDED, JobStatus.CANCELLED})

# The key of Job.meta that makes a job one of django.tasks: {"backend": alias}.
TASK_META = "django.tasks"

# The key of DeadJob.meta with the id a job had while it was live, if that was taken.
SHARED_ID_META = "jobqueue.original_id"

# A DeadJob is a row of another table and has no status; the moves need a name for it.
DEAD = "dead"
GONE = "gone"

MOVES: dict[str, dict[str, frozenset[str]]] = {
    "enqueue": {
        GONE: frozenset({JobStatus.PENDING, JobStatus.SCHEDULED, JobStatus.BLOCKED})
    },
    "promote": {JobStatus.SCHEDULED: frozenset({JobStatus.PENDING})},
    "claim": {JobStatus.PENDING: frozenset({JobStatus.RUNNING})},
    "finish": {
        JobStatus.RUNNING: frozenset(
            {
                JobStatus.SUCCEEDED,
                JobStatus.SCHEDULED,
                JobStatus.PENDING,
                JobStatus.CANCELLED,
                DEAD,
                GONE,
            }
        )
    },
    "rescue": {
        JobStatus.RUNNING: frozenset(
            {JobStatus.PENDING, JobStatus.SCHEDULED, JobStatus.CANCELLED, DEAD}
        )
    },
    "cancel": dict.fromkeys(WAITING, frozenset({JobStatus.CANCELLED})),
    "requeue": {DEAD: frozenset({JobStatus.PENDING, JobStatus.SCHEDULED})},
    "prune": dict.fromkeys(ENDED, frozenset({GONE})),
}
