"""The portable version of finish: the ORM inside atomic(). Successes are written many
at a time, everything else one job after the other.

SQLite and other databases run it; on PostgreSQL the tests do, and it must end every
history as the hand-written statements of finish.py do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import DatabaseError, connections
from django.db.models import F, Field
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast

from ..models import Attempt, DeadJob, Job
from ..options import Options
from ..outcomes import Died, Succeeded, is_database_trouble
from ..states import ENDED, JobStatus
from .bury import bury_portable
from .database import Database, make_rank
from .endings import Ending, clears_suspicion, plan_move, retell, simplify

if TYPE_CHECKING:
    from .finish import FinishReport

# Successes in one statement: each has up to five parameters, and SQLite may be built to
# take no more than 999.
CHUNK = 150


def finish_portable(
    db: Database,
    endings: Sequence[Ending],
    report: FinishReport,
    *,
    worker_id: UUID,
    options: Options,
    now: datetime | None = None,
) -> None:
    """Write the ends of attempts in one transaction; fill the report."""
    with db.atomic():
        # Inside: the wait for SQLite's lock must not make an attempt older.
        now = db.read_clock(now)
        left = [ending for ending in endings if not ending.is_quick]
        quick = [ending for ending in endings if ending.is_quick]
        for start in range(0, len(quick), CHUNK):
            chunk = quick[start : start + CHUNK]
            left += _succeed(db, chunk, report, worker_id, options, now)
        for ending in left:
            try:
                with db.atomic():
                    _finish(db, ending, report, worker_id, options, now)
            except DatabaseError as error:
                # A refused value spoils this job only; trouble is everybody's.
                if is_database_trouble(error):
                    raise
                _finish(db, simplify(ending), report, worker_id, options, now)


def _succeed(
    db: Database,
    endings: Sequence[Ending],
    report: FinishReport,
    worker_id: UUID,
    options: Options,
    now: datetime,
) -> list[Ending]:
    """Write quick successes; return what has to be looked at one by one."""
    ids = [ending.claim.id for ending in endings]
    rows = Job.objects.using(db.alias).filter(
        pk__in=ids, lease_token=1, status=JobStatus.RUNNING, worker_id=worker_id
    )
    found = set(db.lock_rows(rows).values_list("pk", flat=True))
    owned = [ending for ending in endings if ending.claim.id in found]
    others = [ending for ending in endings if ending.claim.id not in found]
    try:
        with db.atomic():
            if options.retention["succeeded"].age == timedelta():
                rows.filter(pk__in=found).delete()
            elif owned:
                columns = _plan_successes(db, owned, options, now)
                rows.filter(pk__in=found).update(finished_by=worker_id, **columns)
    except DatabaseError as error:
        # A result that the database refuses spoils its own job only.
        if is_database_trouble(error):
            raise
        return list(endings)
    report.done += owned
    return others


def _plan_successes(
    db: Database, endings: Sequence[Ending], options: Options, now: datetime
) -> dict[str, Any]:
    """Return the columns of many successes, which differ in start and result."""
    delay = options.retention["succeeded"].delay
    starts = {ending.claim.id: _find_start(ending, now) for ending in endings}
    results = {
        ending.claim.id: json.loads(ending.outcome.result)
        for ending in endings
        if isinstance(ending.outcome, Succeeded) and ending.outcome.result is not None
    }
    return {
        "status": JobStatus.SUCCEEDED,
        "worker_id": None,
        "unique_key": None,
        "unknown_since": None,
        "error": "",
        "result": _choose(db, "result", results),
        "started_at": _choose(db, "started_at", starts),
        "finished_at": now,
        "prune_at": None if delay is None else now + delay,
    }


def _choose(db: Database, column: str, values: dict[UUID, Any]) -> Any:
    """Return the expression that gives each job its own value, NULL where none is.

    As a text: compiling a When for each job was most of the work of a finish.
    """
    connection = connections[db.alias]
    pk, field = Job._meta.pk, Job._meta.get_field(column)
    assert isinstance(field, Field)
    parameters: list[Any] = []
    for id, value in values.items():
        if value is not None:
            parameters.append(pk.get_db_prep_value(id, connection))
            parameters.append(field.get_db_prep_save(value, connection))
    if not parameters:
        return None
    whens = " WHEN %s THEN %s" * (len(parameters) // 2)
    case = RawSQL(f"CASE id{whens} END", parameters, output_field=field)
    if connection.features.requires_casted_case_in_updates:
        return Cast(case, output_field=field)
    return case


def _find_start(ending: Ending, now: datetime) -> datetime | None:
    """Return when the handler was called, by the database's clock."""
    age = ending.age
    if age is None:
        return None
    # `now` is older than the age by what we waited for the write lock.
    return max(now - timedelta(seconds=age), ending.claim.claimed_at)


def _finish(
    db: Database,
    ending: Ending,
    report: FinishReport,
    worker_id: UUID,
    options: Options,
    now: datetime,
) -> None:
    owned = Job.objects.using(db.alias).filter(
        pk=ending.claim.id,
        lease_token=ending.claim.lease_token,
        status=JobStatus.RUNNING,
        worker_id=worker_id,
    )
    job = db.lock_rows(owned).first()
    if job is None:
        _settle(db, ending, report, worker_id=worker_id)
        return
    started_at = _find_start(ending, now)
    written = {
        "finished_by": worker_id,
        "started_at": started_at,
        "lease_token": job.lease_token + int(ending.is_taken),
        **_weigh_suspicion(job, ending),
    }
    if isinstance(ending.outcome, Died):
        _write_death(db, job, ending.outcome, written, now)
    else:
        columns = _plan_columns(job, ending, options, now)
        owned.update(**columns, **written)
        if columns["status"] == JobStatus.PENDING:
            lowest = report.pending.get(job.queue, columns["rank"])
            report.pending[job.queue] = min(lowest, columns["rank"])
    if not isinstance(ending.outcome, Succeeded) or ending.claim.lease_token > 1:
        _note_attempt(db, ending, worker_id, started_at, now)
    report.done.append(ending)


def _weigh_suspicion(job: Job, ending: Ending) -> dict[str, Any]:
    if clears_suspicion(ending.label):
        return {"crashes": 0, "isolate": False}
    outcome = ending.outcome
    crash = (outcome if isinstance(outcome, Died) else plan_move(outcome)).crash
    return {"crashes": job.crashes + crash, "isolate": job.isolate or crash == 1}


def _write_death(
    db: Database, job: Job, death: Died, written: dict[str, Any], now: datetime
) -> None:
    bury_portable(
        db,
        job,
        now=now,
        error=death.failure.short,
        reason=death.reason,
        fingerprint=death.failure.fingerprint,
        **written,
    )


def _note_attempt(
    db: Database,
    ending: Ending,
    worker_id: UUID,
    started_at: datetime | None,
    now: datetime,
) -> None:
    outcome = ending.outcome
    told = outcome if isinstance(outcome, Died) else plan_move(outcome)
    attempt = Attempt(
        job_id=ending.claim.id,
        lease_token=ending.claim.lease_token,
        number=ending.claim.attempt,
        worker_id=worker_id,
        started_at=started_at,
        finished_at=now,
        outcome=told.label,
        exception_class=told.failure.exception_class,
        message=told.failure.message,
        traceback=told.failure.traceback,
    )
    Attempt.objects.using(db.alias).bulk_create([attempt], ignore_conflicts=True)


def _plan_columns(
    job: Job, ending: Ending, options: Options, now: datetime
) -> dict[str, Any]:
    assert not isinstance(ending.outcome, Died)
    move = plan_move(ending.outcome)
    columns: dict[str, Any] = {
        "status": move.status,
        "worker_id": None,
        "attempts": F("attempts") - move.refund,
        "given_back": F("given_back") + move.trouble,
        "unknown_since": (job.unknown_since or now) if move.is_unknown else None,
        "error": move.error,
        "result": None if move.result is None else json.loads(move.result),
    }
    if move.status in ENDED:
        delay = options.retention[move.status].delay
        prune_at = None if delay is None else now + delay
        return columns | {"unique_key": None, "finished_at": now, "prune_at": prune_at}
    run_at = now + (move.delay or timedelta())
    rank = make_rank(now, now, priority=job.priority, aging=options.aging)
    if move.status != JobStatus.PENDING:
        rank = job.rank
    return columns | {"run_at": run_at, "rank": rank}


def _settle(
    db: Database, ending: Ending, report: FinishReport, *, worker_id: UUID
) -> None:
    """Find out why the row is not ours: locked by someone, ended by us, or lost."""
    claim = ending.claim
    job = Job.objects.using(db.alias).filter(pk=claim.id).first()
    record = job or DeadJob.objects.using(db.alias).filter(pk=claim.id).first()
    if record is None:
        report.lost.append(ending)
    elif job is None or job.status != JobStatus.RUNNING:
        noted = Attempt.objects.using(db.alias).filter(
            job_id=claim.id, lease_token=record.lease_token - 1
        )
        taken = noted.values_list("outcome", flat=True).first()
        is_same = ending.is_same_end(record.lease_token, taken)
        if is_same:
            report.done.append(retell(ending, "dead" if job is None else job.status))
        else:
            report.lost.append(ending)
    else:
        is_busy = (job.lease_token, job.worker_id) == (claim.lease_token, worker_id)
        (report.busy if is_busy else report.lost).append(ending)
