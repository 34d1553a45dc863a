"""One call of a sync handler, inside the transactions it asked for.

An atomic handler's end is written in its own transaction. If it is unknown whether that
has committed, the database is queried.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, assert_never, cast

from django.db import transaction
from django.db.transaction import TransactionManagementError

from ...context import JobContext
from ...database_errors import is_cancelled_sql, is_conflict
from ...exceptions import LeaseLost, UniqueKeyBusy
from ...handlers import Handler
from ...job_log import report_late_error, report_settled
from ...lifecycle.finish import finish_in_transaction
from ...middleware import call_through
from ...outcomes import SUCCEEDED, Outcome, Succeeded
from ...payloads import dump_result
from ...storage.claims import Claim
from ...storage.commit_check import CommitState, check_commit
from ...storage.database import Database
from ...storage.endings import Ending
from ...storage.progress import write_progress
from .attempt_env import AttemptEnv
from .forked import EndCopies, end_copy, fork_depth
from .in_flight import InFlightJob

# How often an atomic job runs again after a serialization failure or deadlock.
MAX_RERUNS = 5


@dataclass(slots=True, kw_only=True)
class HandlerCall:
    """One call of a sync handler.

    Filled step by step, because an interruption may come between any two lines.
    """

    job: InFlightJob
    # Monotonic; a rerun keeps that of the first.
    started: float
    # At most so many attempts of this job.
    most: int
    # Seconds inside the handler.
    ran: float = 0.0
    outcome: Outcome = SUCCEEDED
    error: BaseException | None = None
    # Of an atomic call: its transaction contains its end; it is known to have
    # committed; if that is unknown, what the database says.
    has_end: bool = False
    has_committed: bool = False
    fate: CommitState | None = None

    def note_commit(self) -> None:
        self.has_committed = True

    @property
    def is_collision(self) -> bool:
        """Whether it was rolled back because of a conflict with another transaction."""
        error = self.error
        # Not isinstance(): it reads attributes, which some exceptions define badly.
        if issubclass(type(error), UniqueKeyBusy):
            # Another job has taken the key since our snapshot: the next run sees that.
            error = cast(UniqueKeyBusy, error).__cause__ or error
        return (
            error is not None
            and is_conflict(error)
            and self.fate is not CommitState.UNKNOWN
        )


def run_handler(
    job: InFlightJob,
    handler: Handler[..., Any],
    context: JobContext | None,
    env: AttemptEnv,
    *,
    timeout: timedelta,
    most: int,
) -> HandlerCall:
    """Run the handler; an atomic one again after a conflict of transactions."""
    started = time.monotonic()
    deadline = started + timeout.total_seconds()
    for reruns_left in range(MAX_RERUNS, -1, -1):
        run = HandlerCall(job=job, started=started, most=most)
        _run_once(run, job, handler, context, env, deadline=deadline)
        if run.error is not None and run.has_end:
            _check_commit(run, job.claim, env)
        # All of it was rolled back: it may run again at once, in the same attempt.
        if not (reruns_left and handler.atomic and run.is_collision):
            break
    return run


def _run_once(
    run: HandlerCall,
    job: InFlightJob,
    handler: Handler[..., Any],
    context: JobContext | None,
    env: AttemptEnv,
    *,
    deadline: float,
) -> None:
    """Call the handler where it can be interrupted, and note what it raised."""
    job.enter(timeout=deadline - time.monotonic(), most=run.most)
    try:
        try:
            _call(run, job.claim, handler, context, env)
        finally:
            job.leave()
    except BaseException as error:
        job.leave()
        run.error = error
    run.ran = time.monotonic() - run.started
    if run.error is None or job.interruption is None:
        return
    # The cancelled query or COMMIT returned before the exception was raised, or raised
    # another error on its way out.
    if run.has_end or run.is_collision or is_cancelled_sql(run.error):
        run.error = job.interruption().with_traceback(run.error.__traceback__)


def _check_commit(run: HandlerCall, claim: Claim, env: AttemptEnv) -> None:
    """Find out whether an atomic run that raised after writing its end has committed.

    No interruption can occur here: job.leave() has been called.
    """
    assert run.error is not None
    # An interruption may have left the transaction open, and its lock with it.
    env.tidy(is_suspect=True)
    if run.has_committed:
        report_late_error(claim, run.error, worker_id=env.worker_id)
        run.error = None
        return
    db = Database(alias=env.options.database)
    run.fate = check_commit(db, claim, worker_id=env.worker_id)
    match run.fate:
        case CommitState.COMMITTED:
            report_settled(claim, run.error, worker_id=env.worker_id)
            run.error = None
        case CommitState.LOST:
            lost = LeaseLost()
            lost.__cause__ = run.error
            run.error = lost
        case CommitState.ROLLED_BACK | CommitState.UNKNOWN:
            # Judged by its error. If it has committed after all, finish will see it.
            pass
        case _:
            assert_never(run.fate)


def _call(
    run: HandlerCall,
    claim: Claim,
    handler: Handler[..., Any],
    context: JobContext | None,
    env: AttemptEnv,
) -> None:
    """Call the handler: inside the middleware, which is inside the time-out."""
    payload, args = read_arguments(claim)
    if not env.options.middleware or context is None:
        _call_handler(run, claim, handler, context, env, args, payload)
        return
    call = partial(_call_handler, run, claim, handler, context, env)
    call_through(env.options.middleware, context, args, payload, call=call)


def _call_handler(
    run: HandlerCall,
    claim: Claim,
    handler: Handler[..., Any],
    context: JobContext | None,
    env: AttemptEnv,
    args: list[Any],
    payload: dict[str, Any],
) -> Any:
    """Call the handler, inside the transactions it asked for; return its result."""
    if not handler.atomic and not handler.databases:
        depth = fork_depth()
        try:
            result = handler.call(context, args, payload)
        finally:
            if fork_depth() != depth:
                end_copy(sys.exception())
        if result is not None:
            limit = env.options.max_result_bytes
            run.outcome = Succeeded(dump_result(result, limit=limit))
        return result
    call = partial(handler.call, context, args, payload)
    aliases = _order_databases(handler, env.options.database)
    result = _call_in_transactions(run, claim, handler, env, call, aliases=aliases)
    if run.has_end and not run.has_committed and not env.is_enclosed:
        # A hook of another database can make Django roll back silently.
        raise TransactionManagementError("The transaction of the job was rolled back.")
    return result


def _call_in_transactions(
    run: HandlerCall,
    claim: Claim,
    handler: Handler[..., Any],
    env: AttemptEnv,
    call: Callable[[], Any],
    *,
    aliases: Sequence[str],
) -> Any:
    """Call the handler inside a transaction on each of these databases, the first of
    which commits last.

    One inside the other: an ExitStack would read attributes of what the handler raised,
    and those of some exceptions raise themselves.
    """
    if aliases:
        with transaction.atomic(using=aliases[0]):
            return _call_in_transactions(
                run, claim, handler, env, call, aliases=aliases[1:]
            )
    if handler.atomic:
        # The first hook of all: once it has run, the transaction has committed.
        transaction.on_commit(run.note_commit, using=env.options.database)
        if handler.needs_context:
            run.job.last_progress = None
            db = Database(alias=env.options.database)
            run.job.keeps_snapshot = not env.is_enclosed and db.keeps_snapshot()
    with EndCopies():
        result = call()
    run.outcome = Succeeded(dump_result(result, limit=env.options.max_result_bytes))
    if handler.atomic:
        _write_end(run, claim, env)
    return result


def _write_end(run: HandlerCall, claim: Claim, env: AttemptEnv) -> None:
    db = Database(alias=env.options.database)
    if run.job.last_progress:
        progress = {claim: run.job.last_progress}
        write_progress(db, progress, worker_id=env.worker_id)
    finish_in_transaction(
        db,
        Ending(claim=claim, outcome=run.outcome, started=run.started),
        worker_id=env.worker_id,
        options=env.options,
    )
    run.has_end = run.job.has_end = True


def read_arguments(claim: Claim) -> tuple[dict[str, Any], list[Any]]:
    """Return the keyword and the positional arguments of a job."""
    args = [] if claim.args == "[]" else json.loads(claim.args)
    return {} if claim.payload == "{}" else json.loads(claim.payload), args


def _order_databases(handler: Handler[..., Any], jobs_alias: str) -> list[str]:
    """Return the handler's databases, the jobs' one first: it commits last."""
    aliases = list(handler.databases)
    if handler.atomic and jobs_alias not in aliases:
        aliases.append(jobs_alias)
    return sorted(aliases, key=lambda alias: alias != jobs_alias)
