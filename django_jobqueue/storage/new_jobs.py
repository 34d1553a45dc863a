"""New jobs: what callers pass to enqueue, and the checked values of the row to insert.

Used by enqueue and enqueue_many, in both versions. check_spec() reads no database.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, Unpack
from uuid import UUID

from ..exceptions import InvalidOption
from ..joboptions import NO_OPTIONS, GivenOptions, JobOptions, read_job_options
from ..models import Job
from ..models.record import make_id
from ..options import Options
from ..payloads import dump_args, dump_payload
from ..registry import find_max_attempts, get_handler
from ..states import JobStatus
from .database import Database, make_rank

ONE_START = JobOptions(max_attempts=1)

# The columns that enqueue writes, in the order of its statements, which take the first
# few of them: see enqueue.py and enqueue_many.py. Each with its type in SQL.
PLAIN_COLUMNS = {
    "id": "uuid",
    "job_type": "text",
    "queue": "text",
    "payload": "jsonb",
    "args": "jsonb",
    "status": "text",
    "priority": "smallint",
    "rank": "bigint",
}
TIMED_COLUMNS = PLAIN_COLUMNS | {"run_at": "timestamptz", "created_at": "timestamptz"}
NEW_COLUMNS = TIMED_COLUMNS | {
    "max_attempts": "integer",
    "timeout": "interval",
    "backoff": "jsonb",
    "expires_at": "timestamptz",
    "tags": "jsonb",
    "meta": "jsonb",
}
KEYED_COLUMNS = NEW_COLUMNS | {"unique_key": "text"}


class JobSpec:
    """One job to be enqueued, as enqueue_many takes it. It has its `id` already."""

    __slots__ = ("_fresh_id", "args", "id", "job_type", "options", "payload")

    def __init__(
        self,
        job_type: str,
        payload: dict[str, Any] | None = None,
        **options: Unpack[GivenOptions],
    ) -> None:
        # Positional arguments; only tasks of django.tasks have them.
        self.args: list[Any] = []
        self.id: UUID = make_id()
        # The id until the first enqueue: no other job can have it.
        self._fresh_id: UUID | None = self.id
        self.job_type = job_type
        self.payload: dict[str, Any] = {} if payload is None else payload
        self.options = options

    def use(self) -> bool:
        """Mark as enqueued; return whether no other job can have its id."""
        is_fresh = self.id is self._fresh_id
        self._fresh_id = None
        return is_fresh

    def __repr__(self) -> str:
        return f"<JobSpec {self.job_type} {self.id}>"


class NewJob(NamedTuple):
    """A checked spec: the values of the row to insert.

    A tuple, since a bulk makes thousands of them each second.
    """

    id: UUID
    job_type: str
    queue: str
    # JSON texts.
    payload: str
    args: str
    priority: int
    options: JobOptions


def check_spec(spec: JobSpec, options: Options) -> NewJob:
    """Check everything about one job. Raises a JobQueueError, touches no database."""
    if not isinstance(spec, JobSpec):
        raise InvalidOption(
            f"enqueue_many takes JobSpec(job_type, payload, …) or handler.spec(…), "
            f"not {spec!r}."
        )
    handler = get_handler(spec.job_type)
    payload = dump_payload(spec.payload, limit=options.max_payload_bytes)
    args = "[]"
    if spec.args:
        limit = options.max_payload_bytes - len(payload.encode())
        args = dump_args(spec.args, limit=limit)
    handler.check_arguments(spec.payload, spec.args)
    given = read_job_options(spec.options)
    most = find_max_attempts(handler.name, given.max_attempts, options)
    if most == 1 and given.max_attempts is None:
        # Stored with the job: a worker that does not know the handler must also keep
        # the promise of at most one start when it rescues the job.
        given = ONE_START if given is NO_OPTIONS else replace(given, max_attempts=1)
    return NewJob(
        spec.id,
        handler.name,
        handler.queue if given.queue is None else given.queue,
        payload,
        args,
        handler.priority if given.priority is None else given.priority,
        given,
    )


def plan_job(db: Database, new: NewJob, now: datetime, options: Options) -> Job:
    """Build the row to insert, with its status and rank."""
    run_at = find_run_at(new, now)
    rank = make_rank(run_at, now, priority=new.priority, aging=options.aging)
    status = JobStatus.SCHEDULED if run_at > now else JobStatus.PENDING
    return make_job(db, new, status, rank, run_at, now)


@cache
def _blank_row() -> dict[str, Any]:
    """Return the columns of a new job, in their order."""
    counters = ("attempts", "crashes", "lost", "given_back", "lease_token")
    names = [field.attname for field in Job._meta.concrete_fields]
    return {
        **dict.fromkeys(names),
        **dict.fromkeys(counters, 0),
        "isolate": False,
        "error": "",
    }


def make_job(
    db: Database, new: NewJob, status: str, rank: int, run_at: datetime, now: datetime
) -> Job:
    """Build the model as if the row had been read back."""
    given = new.options
    row = {
        **_blank_row(),
        "id": new.id,
        "job_type": new.job_type,
        "queue": new.queue,
        "payload": {} if new.payload == "{}" else json.loads(new.payload),
        "args": [] if new.args == "[]" else json.loads(new.args),
        "status": status,
        "priority": new.priority,
        "rank": rank,
        "run_at": run_at,
        "max_attempts": given.max_attempts,
        "timeout": given.timeout,
        "backoff": given.backoff and given.backoff.dump(),
        "created_at": now,
        "unique_key": given.unique_key,
        "expires_at": given.expires_at,
        "tags": json.loads(given.tags) if given.tags else [],
        "meta": json.loads(given.meta) if given.meta else {},
    }
    return Job.from_db(db.alias, list(row), list(row.values()))


def dump_backoff(given: JobOptions) -> str | None:
    """Return the JSON text of Job.backoff."""
    return None if given.backoff is None else json.dumps(given.backoff.dump())


def find_run_at(new: NewJob, now: datetime) -> datetime:
    """Return when the job is due: as the caller asked, else now."""
    given = new.options
    return given.run_at or (now + given.delay if given.delay else now)
