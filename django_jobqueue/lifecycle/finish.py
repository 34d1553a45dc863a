"""Finish: running → succeeded, scheduled (retry, snooze), pending (release), cancelled,
or dead.

Called by the worker's finish loop with the attempts that have ended, by rescue, and by
atomic jobs inside their own transaction. This is the one gate for every end: each
statement names id, lease token, status and worker, so the late write of a rescued
attempt is refused. finish_succeeded.py, finish_moved.py and finish_died.py write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..database_errors import (
    is_cancelled_sql,
    is_database_trouble,
    is_lock_wait,
    names_row,
)
from ..exceptions import LeaseLost
from ..options import Options
from ..outcomes import Died
from ..states import JobStatus
from ..storage.commit_check import lock_owned
from ..storage.database import Database, count_microseconds
from ..storage.endings import (
    Ending,
    Unwritten,
    Written,
    as_written,
    find_state,
    is_refused_value,
    split_endings,
    with_constant_texts,
)
from ..storage.ownership import read_claim_states
from ..storage.sql_parts import LIMIT_LOCK_WAIT
from .finish_died import write_died
from .finish_moved import write_moved
from .finish_succeeded import delete_succeeded, write_succeeded
from .portable import finish as portable

# How long one call tries to write around rows that other sessions hold.
LOCKED_SECONDS = 1.0


@dataclass(slots=True)
class FinishReport:
    """What became of a batch of endings."""

    done: list[Ending] = field(default_factory=list)
    # Another session holds the row: to be written with the next batch.
    busy: list[Ending] = field(default_factory=list)
    # The job was taken away: nothing was written.
    lost: list[Ending] = field(default_factory=list)
    # Refused by the database, or too slow: to be tried again after a while.
    unwritten: list[Unwritten] = field(default_factory=list)
    # {queue: lowest rank} of the jobs that became pending, to notify workers.
    pending: dict[str, int] = field(default_factory=dict)

    def add(self, other: FinishReport) -> None:
        """Add the contents of another report."""
        self.done += other.done
        self.busy += other.busy
        self.lost += other.lost
        self.unwritten += other.unwritten
        for queue, rank in other.pending.items():
            self.add_pending(queue, rank)

    def add_pending(self, queue: str, rank: int) -> None:
        self.pending[queue] = min(rank, self.pending.get(queue, rank))


# Returns None if all endings were written and none became pending.
_Write = Callable[[Database, Sequence[Ending], Mapping[str, Any]], Written | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Where and how to write endings of one kind."""

    db: Database
    report: FinishReport
    write: _Write
    # Parameters that are the same for all endings.
    shared: Mapping[str, Any]


def finish_attempts(
    db: Database,
    endings: Sequence[Ending],
    *,
    worker_id: UUID,
    options: Options,
    now: datetime | None = None,
    report: FinishReport | None = None,
) -> FinishReport:
    """Write the ends of attempts; each statement commits by itself.

    A row that another transaction holds, or a text that the database refuses, affects
    only that one job; see FinishReport. Raises errors that concern all endings, such as
    a lost connection. A `report` that was passed then has what was written before.
    """
    report = FinishReport() if report is None else report
    if not db.is_postgres:
        # Filled after the commit of the only transaction.
        whole = FinishReport()
        portable.finish_attempts(
            db, endings, whole, worker_id=worker_id, options=options, now=now
        )
        report.add(whole)
        return report
    shared = _share_parameters(options, worker_id=worker_id, now=now)
    is_kept = options.retention["succeeded"].age != timedelta()
    write = write_succeeded if is_kept else delete_succeeded
    batch = _Batch(db=db, report=report, write=write, shared=shared)
    quick, moved, died = _divide(endings)
    _write_all(batch, quick)
    _write_all(replace(batch, write=write_moved), moved)
    _write_all(replace(batch, write=write_died), died)
    return report


# An admin page or a progress write holds the row for a moment: wait, do not skip.
LOCK_OWN_JOB = """
    SELECT id
    FROM jobqueue_job
    WHERE
        id = %(id)s::uuid
        AND lease_token = %(token)s::bigint
        AND status = 'running'
        AND worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid
    FOR NO KEY UPDATE
"""


def finish_in_transaction(
    db: Database, ending: Ending, *, worker_id: UUID, options: Options
) -> None:
    """Write the end of an atomic job inside its own open transaction.

    Waits for the row if another session holds it. Raises LeaseLost if the job was taken
    away: the caller must roll back.
    """
    if not db.is_postgres:
        # Checked first: the report calls an attempt done that ended under our token.
        if not lock_owned(db, ending.claim, worker_id=worker_id):
            raise LeaseLost
        report = FinishReport()
        portable.finish_attempts(
            db, [ending], report, worker_id=worker_id, options=options
        )
        return
    claim = ending.claim
    own = {"id": claim.id, "token": claim.lease_token, "worker_id": worker_id}
    db.execute(LOCK_OWN_JOB, own)
    shared = _share_parameters(options, worker_id=worker_id, now=None)
    written = write_moved(db, [ending], shared)
    if not written:
        raise LeaseLost


def _share_parameters(
    options: Options, *, worker_id: UUID, now: datetime | None
) -> dict[str, Any]:
    return {
        "worker_id": worker_id,
        "now": now,
        "aging": count_microseconds(options.aging),
        "keep_succeeded": options.retention["succeeded"].delay,
        "keep_cancelled": options.retention["cancelled"].delay,
    }


def _divide(
    endings: Sequence[Ending],
) -> tuple[list[Ending], list[Ending], list[Ending]]:
    """Return the quick successes, the other moves and the deaths."""
    quick: list[Ending] = []
    moved: list[Ending] = []
    died: list[Ending] = []
    for ending in endings:
        if ending.is_quick:
            quick.append(ending)
        elif isinstance(ending.outcome, Died):
            died.append(ending)
        else:
            moved.append(ending)
    return quick, moved, died


def _write_all(batch: _Batch, endings: Sequence[Ending]) -> None:
    """Write endings in statements of a bounded size."""
    for part in split_endings(endings):
        _write_part(batch, part)


def _write_part(batch: _Batch, endings: Sequence[Ending]) -> None:
    """Write endings with one statement; halve them when one is refused."""
    try:
        with batch.db.shielded():
            written = batch.write(batch.db, endings, batch.shared)
    except Exception as error:
        if _concerns_all(batch.db, error):
            raise
        if is_cancelled_sql(error):
            # Timed out. Not halved here: each try may take as long again.
            batch.report.unwritten.append(Unwritten(endings, error))
        elif is_lock_wait(error):
            _write_around_locks(batch, endings, error)
        elif len(endings) > 1:
            for half in _halve(endings):
                _write_part(batch, half)
        else:
            _write_refused(batch, endings[0], error)
        return
    _note_written(batch, endings, written)


def _write_around_locks(
    batch: _Batch, endings: Sequence[Ending], error: Exception
) -> None:
    """Halve a group that waited for a row of another session until that row is alone.

    Each try waits 50 ms, all of them together LOCKED_SECONDS. What is left then goes
    back as it is.
    """
    deadline = time.monotonic() + LOCKED_SECONDS
    groups = _halve(endings)
    if not groups:
        batch.report.unwritten.append(Unwritten(endings, error))
    while groups:
        group = groups.pop()
        if time.monotonic() > deadline:
            batch.report.unwritten.append(Unwritten(group, error))
            continue
        try:
            with batch.db.transaction():
                batch.db.execute(LIMIT_LOCK_WAIT, {}, is_rare=True)
                written = batch.write(batch.db, group, batch.shared)
        except Exception as second:
            if _concerns_all(batch.db, second):
                raise
            if is_lock_wait(second) and len(group) > 1:
                groups += _halve(group)
            else:
                batch.report.unwritten.append(Unwritten(group, second))
            continue
        _note_written(batch, group, written)


def _halve(endings: Sequence[Ending]) -> list[Sequence[Ending]]:
    middle = len(endings) // 2
    return [endings[:middle], endings[middle:]] if middle else []


def _concerns_all(db: Database, error: Exception) -> bool:
    """Tell whether the error says nothing about single endings: all of them wait."""
    if db.own is not None and db.own.closed:
        return True
    if is_database_trouble(error):
        return True
    if is_lock_wait(error):
        return not names_row(error)
    state = find_state(error)
    # No disk or memory, an I/O error, a standby.
    return state[:2] in {"53", "58"} or state == "25006"


def _write_refused(batch: _Batch, ending: Ending, error: Exception) -> None:
    """Write an ending with constant texts if the database refused its own texts."""
    if not is_refused_value(error):
        batch.report.unwritten.append(Unwritten([ending], error))
        return
    write: _Write = write_died if isinstance(ending.outcome, Died) else write_moved
    plain = [with_constant_texts(ending)]
    try:
        with batch.db.shielded():
            written = write(batch.db, plain, batch.shared)
    except Exception as second:
        if _concerns_all(batch.db, second):
            raise
        batch.report.unwritten.append(Unwritten([ending], second))
        return
    _note_written(replace(batch, write=write), plain, written)


def _note_written(
    batch: _Batch, endings: Sequence[Ending], written: Written | None
) -> None:
    """Add what a statement wrote to the report, and find out about the rest."""
    if written is None:
        batch.report.done += endings
        return
    jobs = {job.id: job for job in written}
    for job in written:
        if job.queue is not None and job.rank is not None:
            batch.report.add_pending(job.queue, job.rank)
    missing: list[Ending] = []
    for ending in endings:
        found = jobs.get(ending.claim.id)
        if found is None:
            missing.append(ending)
        else:
            done = as_written(ending, found.status, dead_id=found.dead_id)
            batch.report.done.append(done)
    stopped = _sort_missing(batch, missing)
    # A job with a cancel request does not die: it is moved to cancelled. If that does
    # not write it either, another session holds its row.
    if batch.write is write_died:
        _write_all(replace(batch, write=write_moved), stopped)
    else:
        batch.report.busy += stopped


def _sort_missing(batch: _Batch, missing: Sequence[Ending]) -> list[Ending]:
    """Find out why rows were not written: locked, ended by us before, or lost.

    Return the deaths of jobs that are still ours and have a cancel request: WRITE_DIED
    leaves them out.
    """
    stopped: list[Ending] = []
    if not missing:
        return stopped
    report, worker_id = batch.report, batch.shared["worker_id"]
    states = read_claim_states(batch.db, [ending.claim.id for ending in missing])
    for ending in missing:
        state = states.get(ending.claim.id)
        if state is None:
            (report.done if ending.has_deleted else report.lost).append(ending)
        elif state.status == JobStatus.RUNNING:
            claim = ending.claim
            is_ours = (state.token, state.worker_id) == (claim.lease_token, worker_id)
            is_stopped = state.is_cancel_requested and isinstance(ending.outcome, Died)
            if not is_ours:
                report.lost.append(ending)
            else:
                (stopped if is_stopped else report.busy).append(ending)
        elif ending.is_same_end(state.token, state.last_outcome):
            # An earlier try was committed, only its reply was lost.
            report.done.append(as_written(ending, state.status))
        else:
            report.lost.append(ending)
    return stopped
