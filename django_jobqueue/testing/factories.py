"""Factories of factory-boy for our models: rows in any state.

For tests of code that reads jobs, such as a dashboard or a report. The rows have not
passed through any transition: to test what a job does, enqueue it and call run_jobs().
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.utils import timezone

from ..models import Attempt, DeadJob, Job, WorkerHeartbeat
from ..models.record import make_id
from ..states import AttemptOutcome, DeadReason, JobStatus, WorkerState
from .selection import name_job_type

try:
    import factory
    from factory.django import DjangoModelFactory
except ImportError as error:
    raise ImportError(
        "django_jobqueue.testing.factories needs factory-boy, which is not installed. "
        "Run: pip install factory-boy"
    ) from error

__all__ = [
    "AttemptFactory",
    "DeadJobFactory",
    "JobFactory",
    "WorkerHeartbeatFactory",
]

HOUR = timedelta(hours=1)


def _now() -> Any:
    return factory.LazyFunction(timezone.now)


def _name(record: Any) -> str:
    return "example" if record.handler is None else name_job_type(record.handler)


class JobFactory(DjangoModelFactory[Job]):
    """A pending job. `handler=` sets its job type. Traits set another status:
    `scheduled`, `running`, `blocked`, `succeeded`, `cancelled`, `retrying`."""

    class Meta:
        model = Job

    class Params:
        # A handler, a task, or the name of one.
        handler = None
        scheduled = factory.Trait(
            status=JobStatus.SCHEDULED,
            run_at=factory.LazyFunction(lambda: timezone.now() + HOUR),
        )
        running = factory.Trait(
            status=JobStatus.RUNNING,
            attempts=1,
            lease_token=1,
            worker_id=factory.LazyFunction(uuid4),
            claimed_at=_now(),
        )
        blocked = factory.Trait(status=JobStatus.BLOCKED)
        succeeded = factory.Trait(
            status=JobStatus.SUCCEEDED, attempts=1, lease_token=1, finished_at=_now()
        )
        cancelled = factory.Trait(status=JobStatus.CANCELLED, finished_at=_now())
        # Failed once, and waiting for its next attempt.
        retrying = factory.Trait(
            status=JobStatus.SCHEDULED,
            run_at=factory.LazyFunction(lambda: timezone.now() + HOUR),
            attempts=1,
            lease_token=1,
            error="ValueError: it failed",
        )

    id = factory.LazyFunction(make_id)
    job_type = factory.LazyAttribute(_name)
    queue = "default"
    payload = factory.LazyFunction(dict)
    status = JobStatus.PENDING
    priority = 0
    run_at = _now()
    rank = factory.LazyAttribute(lambda job: int(job.run_at.timestamp() * 1_000_000))
    attempts = 0
    lease_token = 0
    created_at = _now()


class DeadJobFactory(DjangoModelFactory[DeadJob]):
    """A job that died of an exception after three attempts. Traits set another
    reason: `timed_out`, `crashed`, `was_lost`, `unknown_handler`, `discarded`."""

    class Meta:
        model = DeadJob

    class Params:
        handler = None
        timed_out = factory.Trait(
            reason=DeadReason.TIMEOUT, error="JobTimeout: it took too long"
        )
        crashed = factory.Trait(
            reason=DeadReason.CRASHED,
            crashes=3,
            error="WorkerCrashed: killed by SIGKILL",
        )
        was_lost = factory.Trait(reason=DeadReason.LOST, error="WorkerLost")
        unknown_handler = factory.Trait(
            reason=DeadReason.UNKNOWN_HANDLER, error="UnknownJobType: example"
        )
        discarded = factory.Trait(
            reason=DeadReason.DISCARDED,
            attempts=1,
            lease_token=1,
            error="ValueError: it cannot work",
        )

    id = factory.LazyFunction(make_id)
    job_type = factory.LazyAttribute(_name)
    queue = "default"
    payload = factory.LazyFunction(dict)
    priority = 0
    attempts = 3
    lease_token = 3
    error = "ValueError: it failed"
    reason = DeadReason.EXCEPTION


class AttemptFactory(DjangoModelFactory[Attempt]):
    """A failed attempt. `job=` sets the job it belongs to. Traits set another
    outcome: `succeeded`, `timed_out`, `snoozed`, `crashed`, `was_lost`."""

    class Meta:
        model = Attempt

    class Params:
        # A Job or a DeadJob.
        job = None
        succeeded = factory.Trait(
            outcome=AttemptOutcome.SUCCEEDED,
            exception_class="",
            message="",
            traceback="",
        )
        timed_out = factory.Trait(
            outcome=AttemptOutcome.TIMEOUT,
            exception_class="JobTimeout",
            message="it took too long",
        )
        snoozed = factory.Trait(
            outcome=AttemptOutcome.SNOOZED,
            exception_class="",
            message="later",
            traceback="",
        )
        crashed = factory.Trait(
            outcome=AttemptOutcome.CRASHED,
            exception_class="WorkerCrashed",
            message="killed by SIGKILL",
            traceback="",
        )
        was_lost = factory.Trait(
            outcome=AttemptOutcome.LOST,
            exception_class="WorkerLost",
            message="no heartbeat",
            traceback="",
        )

    job_id = factory.LazyAttribute(
        lambda attempt: make_id() if attempt.job is None else attempt.job.pk
    )
    lease_token = factory.Sequence(lambda number: number + 1)
    number = 1
    worker_id = factory.LazyFunction(uuid4)
    started_at = _now()
    finished_at = _now()
    outcome = AttemptOutcome.FAILED
    exception_class = "ValueError"
    message = "it failed"
    traceback = "Traceback (most recent call last):\nValueError: it failed\n"


class WorkerHeartbeatFactory(DjangoModelFactory[WorkerHeartbeat]):
    """A worker with a new heartbeat. Traits: `stopping`, `silent` (for an hour)."""

    class Meta:
        model = WorkerHeartbeat

    class Params:
        stopping = factory.Trait(state=WorkerState.STOPPING)
        silent = factory.Trait(
            last_seen_at=factory.LazyFunction(lambda: timezone.now() - HOUR)
        )

    id = factory.LazyFunction(uuid4)
    host = "elsewhere"
    pid = 1
    name = "worker"
    last_seen_at = _now()
    beating_since = _now()
