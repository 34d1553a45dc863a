"""Unreadable jobs, in any state → dead: a value in the row cannot be loaded or counted.

Rows also come from SQL. One with `expires_at = 'infinity'`, or on SQLite with
`timeout = 'abc'`, fails every statement that reads it, and with it the whole batch.
Called by the loops of a worker after such a failure. It reads the candidates as text
and moves those with an unreadable value to the dead jobs, with the reason. A job
without such a value is never moved: an error of another kind must not empty a queue.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections, models
from django.db.models import F, Func, QuerySet, TextField

from ..database_errors import is_cancelled_sql, is_database_trouble
from ..failures import describe_end
from ..log_events import Event
from ..models import DeadJob, Job, WorkerHeartbeat
from ..models.job import MOST_COUNTED, MOST_LEASES
from ..models.record import COLUMNS, JobRecord, make_id
from ..states import DeadReason, JobStatus
from ..storage.bounded_waits import bounded_waits
from ..storage.database import Database

logger = logging.getLogger("django_jobqueue.worker")

# Rows that are read at a time, and how many times.
PAGE_JOBS = 500
MAX_PAGES = 20
# Replaces a lease token that cannot be raised: far above any that was given.
SAFE_TOKEN = 1 << 53
# How long the move of one job may take.
MOVE_MS = 2_000

# The id first: it names the row.
_FIELDS: list[models.Field[Any, Any]] = sorted(
    Job._meta.concrete_fields, key=lambda field: not field.primary_key
)
# Values that are never written to a log.
_PRIVATE = {"payload", "args", "result", "meta"}


class UnreadableJob(NamedTuple):
    """An unreadable job that was moved to the dead jobs, or at least cancelled."""

    error: str
    # False: it was cancelled, and none of its other values were read.
    is_dead: bool = False
    # The id of the dead job.
    id: UUID | None = None
    job_type: str = ""
    queue: str = ""
    attempt: int = 0


class AsText(Func):
    """Any column as text, whatever is stored in it; on SQLite the bytes, in hex.

    There, "x" stands before the hex of a blob, which no column of ours holds.
    """

    template = "CAST(%(expressions)s AS text)"
    output_field = TextField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = (
            "CASE WHEN %(expressions)s IS NULL THEN NULL"
            " WHEN typeof(%(expressions)s) = 'blob' THEN 'x' || hex(%(expressions)s)"
            " ELSE hex(CAST(%(expressions)s AS blob)) END"
        )
        return super().as_sql(compiler, connection, template=template, **context)


class AsSeconds(AsText):
    """A duration as text: seconds on PostgreSQL, microseconds elsewhere."""

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "CAST(extract(epoch FROM %(expressions)s) AS text)"
        return super().as_sql(compiler, connection, template=template, **context)


def list_claim_candidates(
    db: Database, *, worker_id: UUID, queues: Iterable[str]
) -> list[QuerySet[Job]]:
    """Return what a claim loop reads: its own jobs, scheduled and pending ones."""
    rows = Job.objects.using(db.alias)
    pending = rows.filter(status=JobStatus.PENDING)
    return [
        rows.filter(worker_id=worker_id, status=JobStatus.RUNNING).order_by("id"),
        rows.filter(status=JobStatus.SCHEDULED).order_by("run_at"),
        *(pending.filter(queue=queue).order_by("rank", "id") for queue in queues),
        # Those that no claim lists, because `queue` or `isolate` is unreadable.
        pending.order_by(),
    ]


def list_maintenance_candidates(db: Database) -> list[QuerySet[Job]]:
    """Return what maintenance reads: running jobs of all workers, and ended ones."""
    rows = Job.objects.using(db.alias)
    return [
        rows.filter(status=JobStatus.RUNNING).order_by("id"),
        rows.filter(prune_at__isnull=False).order_by("prune_at"),
    ]


def move_unreadable_jobs(
    db: Database, candidates: Iterable[QuerySet[Job]], error: Exception
) -> list[UnreadableJob]:
    """Move the jobs that may have caused `error` to the dead jobs; return them.

    Returns none if the error is of another kind. Uses Django's connection of this
    thread, with a transaction for each job. Rows that another session holds are left
    for the next call.
    """
    if is_database_trouble(error) or is_cancelled_sql(error):
        return []
    try:
        return _move_candidates(db, candidates)
    # The caller goes on with the first error, which says more.
    except Exception as second:
        logger.debug(Event("no unreadable row was found", error=second))
        return []


def delete_unreadable_workers(db: Database) -> int:
    """Delete the heartbeat rows that no worker can read; return how many.

    Only SQLite stores such values. A worker that lives writes its row again.
    """
    if connections[db.alias].vendor != "sqlite":
        return 0
    fields = list(WorkerHeartbeat._meta.concrete_fields)
    fields.sort(key=lambda field: not field.primary_key)
    rows = WorkerHeartbeat.objects.using(db.alias)
    count = 0
    for values in list(rows.values_list(*map(_read_as_text, fields))):
        if columns := _judge_row(values, is_sqlite=True, fields=fields):
            shown = ", ".join(f"{name} = {text!r}" for name, text in columns.items())
            text = "the row of a worker cannot be read; deleted"
            logger.warning(Event(text, row=shown))
            row = rows.alias(stored_id=AsText(F("id"))).filter(stored_id=values[0])
            row._raw_delete(db.alias)
            count += 1
    return count


def _move_candidates(
    db: Database, candidates: Iterable[QuerySet[Job]]
) -> list[UnreadableJob]:
    try:
        return [
            moved
            for rows in candidates
            for stored_id, columns in _find_unreadable(db, rows)
            if (moved := _move_or_cancel(db, rows, stored_id, columns)) is not None
        ]
    finally:
        if db.own is not None:
            # This thread has its own connection and rarely needs Django's.
            connections[db.alias].close()


def _find_unreadable(
    db: Database, rows: QuerySet[Job]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the stored id and the unreadable columns of each unreadable row.

    Stops after the first page that has one.
    """
    is_sqlite = connections[db.alias].vendor == "sqlite"
    texts = [_read_as_text(field) for field in _FIELDS]
    for page in range(MAX_PAGES):
        with db.atomic(), bounded_waits(db):
            found = list(
                rows.values_list(*texts)[page * PAGE_JOBS : (page + 1) * PAGE_JOBS]
            )
        bad = [
            (values[0], columns)
            for values in found
            if (columns := _judge_row(values, is_sqlite=is_sqlite))
        ]
        yield from bad
        if bad or len(found) < PAGE_JOBS:
            return


def _read_as_text(field: models.Field[Any, Any]) -> AsText:
    kind = AsSeconds if isinstance(field, models.DurationField) else AsText
    return kind(F(field.attname))


def _judge_row(
    values: Iterable[str | None],
    *,
    is_sqlite: bool,
    fields: Sequence[models.Field[Any, Any]] | None = None,
) -> dict[str, str]:
    """Return the columns that cannot be read, with what is stored in them."""
    bad = {}
    for field, value in zip(fields or _FIELDS, values, strict=True):
        if value is None:
            continue
        is_blob = is_sqlite and value.startswith("x")
        stored = bytes.fromhex(value.lstrip("x")) if is_sqlite else value.encode()
        try:
            _check(not is_blob)
            _check_value(field, stored.decode(), is_sqlite=is_sqlite)
        except (ValueError, OverflowError, RecursionError):
            bad[field.attname] = stored[:60].decode(errors="backslashreplace")
    return bad


def _check_value(field: models.Field[Any, Any], text: str, *, is_sqlite: bool) -> None:
    """Raise if a column does not hold what its field loads."""
    match field:
        case models.UUIDField():
            id = UUID(text)
            # SQLite compares ids as text: another spelling is never found.
            _check(not is_sqlite or text == id.hex)
        case models.DateTimeField():
            _check(text[4:5] == "-")
            datetime.fromisoformat(text)
        case models.DurationField():
            timedelta(**{"microseconds" if is_sqlite else "seconds": float(text)})
            _check(not is_sqlite or text.lstrip("-").isdigit())
        case models.JSONField():
            json.loads(text)
        case models.BooleanField():
            _check(text in {"true", "false", "0", "1"})
        case models.IntegerField():
            low, high = _find_bounds(field)
            _check(low <= int(text) <= high)


def _check(is_valid: bool) -> None:
    if not is_valid:
        raise ValueError


def _find_bounds(field: models.IntegerField[Any, Any]) -> tuple[int, int]:
    """Return the lowest and highest value of a column.

    A counter has room for one more: the CHECK admits values below its bound, and a
    claim adds 1.
    """
    if field.attname == "lease_token":
        return 0, MOST_LEASES - 2
    if field.attname in {"attempts", "crashes", "lost", "given_back"}:
        return 0, MOST_COUNTED - 2
    bits = {models.SmallIntegerField: 15, models.BigIntegerField: 63}
    limit = 1 << bits.get(type(field), 31)
    return -limit, limit - 1


def _move_or_cancel(
    db: Database, rows: QuerySet[Job], stored_id: str, columns: dict[str, str]
) -> UnreadableJob | None:
    """Move one job to the dead jobs, or cancel it if that is refused."""
    shown = {
        name: repr(text) if name not in _PRIVATE else "…"
        for name, text in columns.items()
    }
    found = ", ".join(f"{name} = {text}" for name, text in shown.items())
    message = f"The row cannot be read: {found}."
    row = _find_row(rows, stored_id, is_id_readable="id" not in columns)
    for write in (_move_to_dead, _cancel):
        try:
            with db.atomic(), bounded_waits(db, statement_ms=MOVE_MS):
                return write(db, row, columns.keys(), message)
        # For example a trigger or a constraint of the project: other jobs must go on.
        except Exception as error:
            logger.warning(
                Event("an unreadable job cannot be moved", job=message, error=error)
            )
    return None


def _find_row(
    rows: QuerySet[Job], stored_id: str, *, is_id_readable: bool
) -> QuerySet[Job]:
    rows = rows.order_by()
    if is_id_readable:
        # SQLite: the hex of the text; see AsText.
        text = stored_id if "-" in stored_id else bytes.fromhex(stored_id).decode()
        return rows.filter(pk=UUID(text))
    return rows.alias(stored_id=AsText(F("id"))).filter(stored_id=stored_id)


def _move_to_dead(
    db: Database, row: QuerySet[Job], bad: Collection[str], message: str
) -> UnreadableJob | None:
    """Copy the readable columns; the others get a default, and `message` names them."""
    now = db.read_clock(None)
    names = [name for name in COLUMNS if name not in bad]
    values = db.lock_rows(row).values(*names).first()
    if values is None:
        return None
    dead = DeadJob(
        **{
            field.attname: _choose_default(field, now)
            for field in JobRecord._meta.fields
            if field.attname in bad
        }
    )
    for name, value in values.items():
        setattr(dead, name, value)
    if DeadJob.objects.using(db.alias).filter(pk=dead.pk).exists():
        dead.pk = make_id()
    dead.lease_token += 1
    failure = describe_end(
        "UnreadableRow", message, job_type=dead.job_type, place=" ".join(sorted(bad))
    )
    dead.error, dead.fingerprint = failure.short, failure.fingerprint
    dead.reason, dead.died_at = DeadReason.EXCEPTION, now
    DeadJob.objects.using(db.alias).bulk_create([dead])
    # Not delete(): with a receiver of its signals it reads the rows.
    row._raw_delete(db.alias)
    return UnreadableJob(
        error=dead.error,
        is_dead=True,
        id=dead.pk,
        job_type=dead.job_type,
        queue=dead.queue,
        attempt=dead.attempts,
    )


def _cancel(
    db: Database, row: QuerySet[Job], bad: Collection[str], message: str
) -> UnreadableJob | None:
    """Cancel a job that cannot be moved, so that the queue goes on without it."""
    count = row.update(
        status=JobStatus.CANCELLED,
        finished_at=db.read_clock(None),
        worker_id=None,
        unique_key=None,
        error=message,
    )
    return UnreadableJob(message) if count else None


def _choose_default(field: models.Field[Any, Any], now: datetime) -> Any:
    """Return what a dead job has for a value that cannot be read."""
    if field.attname == "lease_token":
        return SAFE_TOKEN
    if field.has_default():
        return field.get_default()
    if field.null:
        return None
    match field:
        case models.DateTimeField():
            return now
        case models.BooleanField():
            return False
        case models.IntegerField():
            return 0
    return "default" if field.attname == "queue" else ""
