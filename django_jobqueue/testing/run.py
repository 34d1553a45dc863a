"""run_jobs(): runs the enqueued jobs in the thread of the test.

It uses the transitions of a worker and its code for an attempt: promote, claim, call
the handler, judge, finish. There is no worker process, so no threads, no heartbeat and
no time-outs for sync handlers. Everything runs on Django's connection, inside the
transaction of a TestCase.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from ..exceptions import JobQueueError
from ..lifecycle.claim import claim_jobs
from ..lifecycle.portable.claim import claim_job
from ..lifecycle.promote import promote_jobs
from ..models import Job
from ..options import Options, get_options
from ..states import JobStatus
from ..storage.claims import Claim
from ..storage.database import Database
from .attempt_in_test import AttemptInTest
from .clock import JobClock, travel
from .ran_jobs import RanAttempt, RanJobs

# More attempts in one run_jobs() mean that a job enqueues itself.
MAX_ATTEMPTS_PER_RUN = 1000
PROMOTE_LIMIT = 10_000


class RunawayJobs(JobQueueError):
    """run_jobs() has run too many attempts: a job may enqueue itself."""


def run_jobs(
    *,
    queues: Iterable[str] | None = None,
    scheduled: bool = False,
    recursive: bool = True,
    limit: int | None = None,
    raise_errors: bool = True,
) -> RanJobs:
    """Run the jobs that are due, the most urgent first, and return their attempts.

    `scheduled` runs scheduled jobs too: the queue's clock is moved to the time of each.
    `recursive` also runs the jobs that jobs enqueue, and retries; without it each job
    that waits now gets one attempt. `limit` is the maximum number of attempts. What a
    handler raises is raised here after its end is written; with `raise_errors=False` it
    is only recorded, in `exception` of the attempt.
    """
    run = JobRun(
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
    run = JobRun(ids={job.pk}, raise_errors=raise_errors)
    with ExitStack() as stack:
        return run.drain(stack, limit=1)


def _list_queues(queues: Iterable[str]) -> list[str]:
    if isinstance(queues, str):
        raise TypeError(
            f"queues takes a list of names, not the text {queues!r}. "
            f"Write run_jobs(queues=[{queues!r}])."
        )
    return list(queues)


@dataclass(slots=True, kw_only=True)
class JobRun:
    """One call of run_jobs(): a worker in the thread of the test."""

    # None: all.
    queues: list[str] | None = None
    # The jobs to run, one attempt each; None: all.
    ids: set[UUID] | None = None
    is_scheduled_too: bool = False
    raise_errors: bool = True
    options: Options = field(default_factory=get_options)
    worker_id: UUID = field(default_factory=uuid4)
    ran: list[RanAttempt] = field(default_factory=list)
    # Set once the clock was moved to a scheduled job.
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
        """Run attempts until no job is due, or the limit is reached."""
        while limit is None or len(self.ran) < limit:
            claim = self._claim() or self._claim_scheduled(stack)
            if claim is None:
                break
            if len(self.ran) >= MAX_ATTEMPTS_PER_RUN and limit is None:
                raise RunawayJobs(self._describe_runaway())
            if self.ids is not None:
                self.ids.discard(claim.id)
            AttemptInTest(self, claim).run()
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

    def _claim_scheduled(self, stack: ExitStack) -> Claim | None:
        """Move the clock to the first scheduled job, and claim what is due then."""
        if not self.is_scheduled_too:
            return None
        scheduled = self._select().filter(status=JobStatus.SCHEDULED)
        moment = scheduled.order_by("run_at").values_list("run_at", flat=True).first()
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
            f"run_jobs() has run {len(self.ran):,} attempts, and more jobs are due. "
            f"Most of them: {shown}. Does a job enqueue itself? Pass limit=… to stop "
            f"earlier, or recursive=False."
        )
