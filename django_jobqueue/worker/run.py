"""Run: one call of a sync handler, inside the transactions it asked for.

An atomic handler's end is written in its own transaction. Where it is not known whether
that has committed, the database is asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, assert_never

from django.db import transaction
from django.db.transaction import TransactionManagementError

from ..context import JobContext
from ..exceptions import LeaseLost
from ..handlers import Handler
from ..lifecycle.claim import Claim
from ..lifecycle.database import Database
from ..lifecycle.endings import Ending
from ..lifecycle.finish import finish_in_transaction
from ..lifecycle.settle import Fate, settle_commit
from ..middleware import call_through
from ..outcomes import Outcome, Succeeded, is_cancelled_sql, is_conflict
from ..payloads import dump_result
from ..signals import report_late_error, report_settled
from .bench import Bench
from .held import HeldJob
from .policy import find_max_attempts

# How often an atomic job runs again because transactions got in each other's way.
RERUNS = 5


@dataclass(slots=True, kw_only=True)
class Run:
    """One call of a sync handler.

    Filled as it goes on, because an interruption may come between any two lines.
    """

    held: HeldJob
    # Monotonic; a rerun keeps that of the first.
    started: float
    # Seconds inside the handler.
    ran: float = 0.0
    outcome: Outcome = field(default_factory=Succeeded)
    error: BaseException | None = None
    # An atomic run: its transaction bears its end; it is known to have committed; what
    # the database said where it is not.
    has_end: bool = False
    has_committed: bool = False
    fate: Fate | None = None

    def note_commit(self) -> None:
        self.has_committed = True

    @property
    def is_collision(self) -> bool:
        """Whether it was rolled back because transactions got in each other's way."""
        return (
            self.error is not None
            and is_conflict(self.error)
            and self.fate is not Fate.UNKNOWN
        )


def run_handler(
    held: HeldJob,
    handler: Handler[..., Any],
    context: JobContext | None,
    bench: Bench,
    *,
    timeout: timedelta,
) -> Run:
    """Run the handler; an atomic one again if transactions got in each other's way."""
    started = time.monotonic()
    deadline = started + timeout.total_seconds()
    for reruns_left in reversed(range(RERUNS + 1)):
        run = Run(held=held, started=started)
        _run_once(run, held, handler, context, bench, deadline=deadline)
        if run.error is not None and run.has_end:
            _settle(run, held.claim, bench)
        # All of it was rolled back, so it may run again at once and for free.
        if not (reruns_left and handler.atomic and run.is_collision):
            break
    return run


def _run_once(
    run: Run,
    held: HeldJob,
    handler: Handler[..., Any],
    context: JobContext | None,
    bench: Bench,
    *,
    deadline: float,
) -> None:
    """Call the handler where it can be interrupted, and note what it raised."""
    most = find_max_attempts(handler, held.claim, bench.options)
    held.enter(timeout=deadline - time.monotonic(), most=most)
    try:
        try:
            _call(run, held.claim, handler, context, bench)
        finally:
            held.leave()
    except BaseException as error:
        held.leave()
        run.error = error
    run.ran = time.monotonic() - run.started
    if run.error is None or held.interruption is None:
        return
    # The broken-off query or COMMIT came back before the exception got through, or
    # raised something else on its way out.
    if run.has_end or run.is_collision or is_cancelled_sql(run.error):
        run.error = held.interruption().with_traceback(run.error.__traceback__)


def _settle(run: Run, claim: Claim, bench: Bench) -> None:
    """Find out whether an atomic run that raised after writing its end has committed.

    Outside the reach of interruptions: held.leave() has been called.
    """
    assert run.error is not None
    # An interruption may have left the transaction open, and its lock with it.
    bench.tidy(is_suspect=True)
    if run.has_committed:
        report_late_error(claim, run.error, worker_id=bench.worker_id)
        run.error = None
        return
    db = Database(alias=bench.options.database)
    run.fate = settle_commit(db, claim, worker_id=bench.worker_id)
    match run.fate:
        case Fate.COMMITTED:
            report_settled(claim, run.error, worker_id=bench.worker_id)
            run.error = None
        case Fate.LOST:
            lost = LeaseLost()
            lost.__cause__ = run.error
            run.error = lost
        case Fate.ROLLED_BACK | Fate.UNKNOWN:
            # Judged by its error. If it has committed after all, finish will see it.
            pass
        case _:
            assert_never(run.fate)


def _call(
    run: Run,
    claim: Claim,
    handler: Handler[..., Any],
    context: JobContext | None,
    bench: Bench,
) -> None:
    """Call the handler: inside the middleware, which is inside the time-out."""
    payload, args = read_arguments(claim)
    if not bench.options.middleware or context is None:
        _call_handler(run, claim, handler, context, bench, args, payload)
        return
    call = partial(_call_handler, run, claim, handler, context, bench)
    call_through(bench.options.middleware, context, args, payload, call=call)


def _call_handler(
    run: Run,
    claim: Claim,
    handler: Handler[..., Any],
    context: JobContext | None,
    bench: Bench,
    args: list[Any],
    payload: dict[str, Any],
) -> Any:
    """Call the handler, inside the transactions it asked for; return its result."""
    if not handler.atomic and not handler.databases:
        result = handler.call(context, args, payload)
        limit = bench.options.max_result_bytes
        run.outcome = Succeeded(dump_result(result, limit=limit))
        return result
    call = partial(handler.call, context, args, payload)
    aliases = _order_databases(handler, bench.options.database)
    result = _call_in_transactions(run, claim, handler, bench, call, aliases=aliases)
    if run.has_end and not run.has_committed and not bench.is_enclosed:
        # A hook of another database can make Django roll back without a word.
        raise TransactionManagementError("The transaction of the job was rolled back.")
    return result


def _call_in_transactions(
    run: Run,
    claim: Claim,
    handler: Handler[..., Any],
    bench: Bench,
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
                run, claim, handler, bench, call, aliases=aliases[1:]
            )
    if handler.atomic:
        # The first hook of all: once it has run, the commit is a fact.
        transaction.on_commit(run.note_commit, using=bench.options.database)
    result = call()
    run.outcome = Succeeded(dump_result(result, limit=bench.options.max_result_bytes))
    if handler.atomic:
        _write_end(run, claim, bench)
    return result


def _write_end(run: Run, claim: Claim, bench: Bench) -> None:
    finish_in_transaction(
        Database(alias=bench.options.database),
        Ending(claim=claim, outcome=run.outcome, started=run.started),
        worker_id=bench.worker_id,
        options=bench.options,
    )
    run.has_end = run.held.has_end = True


def read_arguments(claim: Claim) -> tuple[dict[str, Any], list[Any]]:
    """Return the keyword and the positional arguments of a job."""
    args = [] if claim.args == "[]" else json.loads(claim.args)
    return {} if claim.payload == "{}" else json.loads(claim.payload), args


def _order_databases(handler: Handler[..., Any], jobs_alias: str) -> list[str]:
    """Return the handler's databases, that of the jobs first: so it commits last."""
    aliases = list(handler.databases)
    if handler.atomic and jobs_alias not in aliases:
        aliases.append(jobs_alias)
    return sorted(aliases, key=lambda alias: alias != jobs_alias)
