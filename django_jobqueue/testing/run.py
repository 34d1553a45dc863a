"""run_jobs(): runs what is enqueued, here and now, in the thread of the test.

The arrows are those of a worker, and so is the code of an attempt: promote, claim, call
the handler, judge, finish. Only the process is missing, with its threads, its heart and
its time-outs. All of it happens on Django's connection, inside the transaction of a
TestCase.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, overload
from uuid import UUID, uuid4

from asgiref.sync import async_to_sync, sync_to_async
from django.db.models import QuerySet

from ..exceptions import Interruption, JobQueueError, Steering
from ..lifecycle.claim import Claim, claim_job, claim_jobs
from ..lifecycle.database import Database
from ..lifecycle.endings import Ending
from ..lifecycle.finish import FinishReport, finish_attempts
from ..lifecycle.progress import write_progress
from ..lifecycle.promote import promote_jobs
from ..models import Job
from ..options import Options, get_options
from ..outcomes import Cancelled, Crashed, Died, GivenBack, Retried, Succeeded, is_kind
from ..registry import find_handler, get_handler
from ..signals import JobLog, report_late_error
from ..states import AttemptOutcome, JobStatus
from ..worker.attempt import arun_attempt, current_claim, run_attempt
from ..worker.bench import Bench
from ..worker.held import HeldJob
from .clock import JobClock, travel
from .fault_kit import Strike, arm
from .selection import name_job_type
from .surroundings import Surroundings

# So many attempts in one run_jobs() are not meant: a job enqueues itself.
RUNAWAY = 1000
PROMOTE_LIMIT = 10_000


class RunawayJobs(JobQueueError):
    """run_jobs() does not come to an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanAttempt:
    """One attempt that run_jobs() has run, and how it ended."""

    job_id: UUID
    job_type: str
    queue: str
    # The number of the attempt, from 1.
    attempt: int
    # A text of AttemptOutcome; "lost" where the end was refused.
    outcome: str
    # What the handler returned, as JSON gives it back.
    result: Any = None
    error: str = ""
    # What the handler raised, Snooze and the like included.
    exception: BaseException | None = None
    # The job is in the dead letters.
    is_dead: bool = False
    # How long until the next attempt; None: there is none, or it is due at once.
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True)
class RanJobs(Sequence[RanAttempt]):
    """The attempts of one run_jobs(), in the order they ran."""

    attempts: tuple[RanAttempt, ...] = ()

    @property
    def job_ids(self) -> list[UUID]:
        return [ran.job_id for ran in self.attempts]

    @property
    def job_types(self) -> list[str]:
        return [ran.job_type for ran in self.attempts]

    @property
    def outcomes(self) -> list[str]:
        return [ran.outcome for ran in self.attempts]

    @property
    def results(self) -> list[Any]:
        """What the attempts that succeeded have returned."""
        return [ran.result for ran in self.attempts if ran.outcome == "succeeded"]

    def of(self, handler: Any) -> RanJobs:
        """Return the attempts of one handler, given as such or by name."""
        wanted = name_job_type(handler)
        return RanJobs(tuple(ran for ran in self if ran.job_type == wanted))

    def __len__(self) -> int:
        return len(self.attempts)

    def __iter__(self) -> Iterator[RanAttempt]:
        return iter(self.attempts)

    @overload
    def __getitem__(self, index: int) -> RanAttempt: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RanAttempt, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.attempts[index]


def run_jobs(
    *,
    queues: Iterable[str] | None = None,
    scheduled: bool = False,
    recursive: bool = True,
    limit: int | None = None,
    raise_errors: bool = True,
) -> RanJobs:
    """Run the jobs that are due, the most urgent first, and return what ran.

    `scheduled` runs those of later too, each at its time: the queue's clock is moved to
    it. `recursive` goes on with what the jobs enqueue and with retries; without it each
    job that waits now gets one attempt. `limit` is the most attempts to run. What a
    handler raises is raised here, once its end is written; with `raise_errors=False` it
    is only recorded, and `exception` of the attempt has it.
    """
    run = _Run(
        queues=None if queues is None else _list_queues(queues),
        is_scheduled_too=scheduled,
        raise_errors=raise_errors,
    )
    with ExitStack() as stack:
        run.promote()
        if not recursive:
            run.ids = set(run.find_waiting().values_list("pk", flat=True))
        return run.drain(stack, limit=limit)


async def arun_jobs(**options: Any) -> RanJobs:
    """See run_jobs(); for async tests."""
    return await sync_to_async(run_jobs)(**options)


def run_job(job: Job, *, raise_errors: bool = True) -> RanJobs:
    """Run one attempt of this job if it is pending."""
    run = _Run(ids={job.pk}, raise_errors=raise_errors)
    with ExitStack() as stack:
        return run.drain(stack, limit=1)


def _list_queues(queues: Iterable[str]) -> list[str]:
    if isinstance(queues, str):
        raise TypeError(
            f"queues is a list of names, not the text {queues!r}. "
            f"Write run_jobs(queues=[{queues!r}])."
        )
    return list(queues)


@dataclass(slots=True, kw_only=True)
class _Run:
    """One call of run_jobs(): a worker in the thread of the test."""

    # None: all.
    queues: list[str] | None = None
    # The jobs to run, one attempt each; None: whatever is there.
    ids: set[UUID] | None = None
    is_scheduled_too: bool = False
    raise_errors: bool = True
    options: Options = field(default_factory=get_options)
    worker_id: UUID = field(default_factory=uuid4)
    ran: list[RanAttempt] = field(default_factory=list)
    # Set once time has been moved to a job of later.
    clock: JobClock | None = None

    @property
    def db(self) -> Database:
        return Database(alias=self.options.database)

    def promote(self) -> None:
        promote_jobs(self.db, limit=PROMOTE_LIMIT, aging=self.options.aging)

    def find_waiting(self) -> QuerySet[Job]:
        statuses = [JobStatus.PENDING]
        if self.is_scheduled_too:
            statuses.append(JobStatus.SCHEDULED)
        return self._select().filter(status__in=statuses)

    def drain(self, stack: ExitStack, *, limit: int | None) -> RanJobs:
        """Run attempts until there are none, or the limit is reached."""
        while limit is None or len(self.ran) < limit:
            claim = self._claim() or self._claim_later(stack)
            if claim is None:
                break
            if len(self.ran) >= RUNAWAY and limit is None:
                raise RunawayJobs(self._describe_runaway())
            if self.ids is not None:
                self.ids.discard(claim.id)
            _Attempt(self, claim).run()
        return RanJobs(tuple(self.ran))

    def _select(self) -> QuerySet[Job]:
        rows: QuerySet[Job] = Job.objects.using(self.options.database).all()
        if self.queues is not None:
            rows = rows.filter(queue__in=self.queues)
        if self.ids is not None:
            rows = rows.filter(pk__in=self.ids)
        return rows

    def _claim(self) -> Claim | None:
        """Claim the most urgent job that is due."""
        self.promote()
        pending = self._select().filter(status=JobStatus.PENDING)
        job = pending.order_by("rank", "pk").only("queue").first()
        if job is None:
            return None
        if self.ids is not None:
            return claim_job(self.db, job.pk, worker_id=self.worker_id)
        claims = claim_jobs(self.db, {job.queue: 1}, worker_id=self.worker_id)
        return claims[0] if claims else None

    def _claim_later(self, stack: ExitStack) -> Claim | None:
        """Move time to the first job of later, and claim what is due then."""
        if not self.is_scheduled_too:
            return None
        later = self._select().filter(status=JobStatus.SCHEDULED)
        moment = later.order_by("run_at").values_list("run_at", flat=True).first()
        if moment is None:
            return None
        self._move_clock(moment, stack)
        return self._claim()

    def _move_clock(self, moment: datetime, stack: ExitStack) -> None:
        if self.clock is None:
            self.clock = stack.enter_context(travel(moment))
        else:
            self.clock.set(max(moment, self.clock.now()))

    def _describe_runaway(self) -> str:
        counts = Counter(ran.job_type for ran in self.ran).most_common(3)
        shown = ", ".join(f"{name} ({count})" for name, count in counts)
        return (
            f"run_jobs() has run {len(self.ran):,} attempts, and there is more to do. "
            f"Most of them: {shown}. A job that enqueues itself never comes to an end: "
            f"pass limit=… to stop earlier, or recursive=False."
        )


class _Attempt:
    """One attempt in the thread of the test, from its claim to its written end."""

    def __init__(self, run: _Run, claim: Claim) -> None:
        self.claim = claim
        self.held = HeldJob(claim)
        self.handler = find_handler(claim.job_type)
        self.error: BaseException | None = None
        self._run = run
        self._log = JobLog(run.worker_id, is_complete=True)
        self._surroundings = Surroundings(run.options.database)
        # What an async handler has said last: it cannot be written from its loop.
        self._progress: dict[str, Any] | None = None

    def run(self) -> None:
        """Run it, write its end, note it; raise what the caller wants to see."""
        strike = arm(self.held, self.handler, self._run.options, self._run.worker_id)
        with strike:
            ending = self._call()
        ending = strike.judge(ending)
        self._write_progress()
        report = self._finish(ending)
        self._note(ending, report)
        self._raise(report, strike)
        self._run_hooks()
        if not report.lost and ending.label == AttemptOutcome.UNKNOWN_HANDLER:
            self._raise_unknown()

    def _call(self) -> Ending:
        bench = Bench(
            options=self._run.options,
            worker_id=self._run.worker_id,
            report_progress=self._report_progress,
            report_started=self._log.report_started,
            report_error=self._note_error,
            tidy=self._surroundings.restore,
            is_enclosed=self._surroundings.is_enclosed,
        )
        # A job may run inside another one, see eager_jobs().
        outer = current_claim.get()
        try:
            if self.handler is not None and self.handler.is_async:
                return async_to_sync(arun_attempt)(self.held, bench)
            return run_attempt(self.held, bench)
        finally:
            current_claim.set(outer)
            self._surroundings.restore()

    def _note_error(self, error: BaseException) -> None:
        self.error = error

    def _report_progress(self, claim: Claim, progress: dict[str, Any]) -> None:
        self._progress = progress
        if self.handler is not None and not self.handler.is_async:
            self._write_progress()

    def _write_progress(self) -> None:
        progress, self._progress = self._progress, None
        if progress is None:
            return
        lost = write_progress(
            self._run.db, {self.claim: progress}, worker_id=self._run.worker_id
        )
        self.held.flags.lost = self.held.flags.lost or bool(lost)

    def _finish(self, ending: Ending) -> FinishReport:
        if ending.is_written:
            report = FinishReport(done=[ending])
        else:
            report = finish_attempts(
                self._run.db,
                [ending],
                worker_id=self._run.worker_id,
                options=self._run.options,
            )
        if report.busy:
            raise JobQueueError(
                f"The row of the job {self.claim.id} is locked by another connection, "
                f"so its end cannot be written. Let that transaction end first."
            )
        for done in report.done:
            self._log.report_ended(done)
        for lost in report.lost:
            self._log.report_lost(lost.claim, what=type(lost.outcome).__name__.lower())
        return report

    def _note(self, ending: Ending, report: FinishReport) -> None:
        claim = self.claim
        outcome = ending.outcome
        values: dict[str, Any] = {"outcome": str(ending.label)}
        if report.lost:
            values = {"outcome": str(AttemptOutcome.LOST)}
        else:
            match outcome:
                case Succeeded(result=result, note=note):
                    values["result"] = None if result is None else json.loads(result)
                    values["error"] = note
                case Cancelled(reason=reason):
                    values["error"] = reason
                case Died(failure=failure):
                    values |= {"error": failure.short, "is_dead": True}
                case (
                    Retried(failure=failure, delay=delay)
                    | Crashed(failure=failure, delay=delay)
                    | GivenBack(failure=failure, delay=delay)
                ):
                    values |= {"error": failure.short, "delay": delay or None}
        self._run.ran.append(
            RanAttempt(
                job_id=claim.id,
                job_type=claim.job_type,
                queue=claim.queue,
                attempt=claim.attempt,
                exception=self.error,
                **values,
            )
        )

    def _raise(self, report: FinishReport, strike: Strike) -> None:
        error = self.error
        if error is None or strike.is_own(error):
            return
        is_wanted = self._run.raise_errors and not report.lost
        if _is_for_the_runner(error) or (is_wanted and not is_kind(error, Steering)):
            claim = self.claim
            error.add_note(
                f"Raised by attempt {claim.attempt} of {claim.job_type} {claim.id}, "
                f"and recorded. run_jobs(raise_errors=False) goes on."
            )
            raise error

    def _run_hooks(self) -> None:
        if not self._surroundings.is_enclosed:
            return
        try:
            self._surroundings.run_hooks()
        except Exception as error:
            if self._run.raise_errors:
                raise
            report_late_error(self.claim, error, worker_id=self._run.worker_id)

    def _raise_unknown(self) -> None:
        if self._run.raise_errors:
            get_handler(self.claim.job_type)


def _is_for_the_runner(error: BaseException) -> bool:
    """Tell whether an error is meant for whoever runs the tests: Ctrl-C, pytest.fail().

    A worker records those as well, as it does with sys.exit().
    """
    is_of_a_job = (
        Exception,
        SystemExit,
        GeneratorExit,
        asyncio.CancelledError,
        Interruption,
    )
    return not is_kind(error, is_of_a_job)
