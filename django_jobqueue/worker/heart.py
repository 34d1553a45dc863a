"""Heart: the supervisor's one thread with a database connection.

It beats for all children and writes what they cannot write any more: the ends of
attempts that overran their time, and what a dead child has left behind. A job that
holds the interpreter's lock or exhausts a pool cannot keep it from that.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from ..backoff import exponential, load_backoff
from ..lifecycle.backends import end_backends
from ..lifecycle.beat import beat_workers, deregister
from ..lifecycle.database import Database
from ..lifecycle.endings import Ending
from ..lifecycle.finish import finish_attempts
from ..lifecycle.look import count_backlog
from ..lifecycle.notify import notify_due, notify_pending
from ..lifecycle.reconcile import OwnedJob, make_claim, read_owned_jobs
from ..options import Options
from ..outcomes import (
    Cancelled,
    Crashed,
    Outcome,
    Retried,
    is_database_trouble,
    judge_crash,
    judge_overrun,
)
from ..signals import JobLog
from .board import Inside, Overrun
from .children import Child
from .claimer import RELEASED
from .loop import Loop

logger = logging.getLogger("django_jobqueue.worker")

CANCELLED = Cancelled("cancelled while running")
# Between two tries to write what somebody else's lock kept us from.
AGAIN = 0.1


@dataclass(slots=True, kw_only=True)
class Errand:
    """Something to write on behalf of a child."""

    child: Child
    # The attempts it is about; of a dead child those that died with it.
    inside: Sequence[Inside]
    # (job id, lease token) of those that had run, and may not start again.
    kept: Set[tuple[UUID, int]] = frozenset()
    # What ended the process, in words; None: nobody is to be charged.
    cause: str | None = None
    is_death: bool = False
    # A child that ended well has no use for its row.
    is_clean: bool = False
    # Given up then: others will rescue what is left.
    deadline: float = 0.0


class Heart:
    """Beats, and runs errands in between."""

    def __init__(self, options: Options, *, on_suspects: Callable[[], None]) -> None:
        self.loop = Loop("heartbeat", self.step, alias=options.database)
        self._options = options
        # Told when a job has to run alone from now on.
        self._on_suspects = on_suspects
        self._lock = threading.RLock()
        self._children: list[Child] = []
        self._errands: list[Errand] = []
        self._next_beat = 0.0
        self._is_ending = False
        # Monotonic: the moment before the last confirmed beat; 0.0 before the first.
        self.confirmed = 0.0
        # (monotonic moment, jobs that wait), as far as somebody asked.
        self.backlog = (0.0, 0)
        self._asked_limit = 0
        self._stories: queue.SimpleQueue[tuple[Child, Ending]] = queue.SimpleQueue()
        self._teller = threading.Thread(
            target=self._tell_stories, name="jobqueue-teller", daemon=True
        )

    def start(self) -> None:
        self.loop.start()
        self._teller.start()

    def add(self, child: Child) -> None:
        """Beat for a child from now on, at once for the first time."""
        with self._lock:
            self._children.append(child)
        self._next_beat = 0.0
        self.loop.wake()

    def end_attempt(self, child: Child, inside: Inside) -> None:
        """Write the end of an attempt that did not stop when it was told to."""
        self._send(Errand(child=child, inside=[inside]))

    def bury(
        self,
        child: Child,
        inside: Sequence[Inside],
        *,
        kept: Set[tuple[UUID, int]] = frozenset(),
        cause: str | None,
        is_clean: bool,
    ) -> None:
        """Stop beating for a child that has ended, and write what it left behind."""
        errand = Errand(
            child=child,
            inside=inside,
            kept=kept,
            cause=cause,
            is_death=True,
            is_clean=is_clean,
        )
        with self._lock:
            self._children.remove(child)
            # One that was never registered has claimed nothing.
            if child.board.confirmed:
                self._send(errand)

    def _send(self, errand: Errand) -> None:
        ttl = self._options.heartbeat_ttl.total_seconds()
        errand.deadline = time.monotonic() + 2 * ttl
        with self._lock:
            self._errands.append(errand)
        self.loop.wake()

    def ask_backlog(self, limit: int) -> None:
        """Have the jobs counted that wait, up to so many; `backlog` will tell."""
        self._asked_limit = limit
        self.loop.wake()

    def finish(self) -> None:
        """Ask for the end, once the last errands have been run."""
        self._is_ending = True
        if not self._errands:
            self.loop.stop()
        self.loop.wake()

    @property
    def has_errands(self) -> bool:
        return bool(self._errands)

    def step(self, db: Database) -> float:
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + self._options.heartbeat_interval.total_seconds()
            try:
                self._beat(db)
            except Exception:
                self._next_beat = 0.0
                raise
        for errand in list(self._errands):
            if self._run_errand(db, errand):
                self._errands.remove(errand)
        if self._errands:
            return AGAIN
        if self._is_ending:
            self.loop.stop()
        if self._asked_limit:
            self._count_backlog(db)
        return max(0.0, self._next_beat - time.monotonic())

    def _beat(self, db: Database) -> None:
        # A child that ends meanwhile is buried under the same lock.
        with self._lock:
            children = list(self._children)
            sent = time.monotonic()
            beats = [(child.identity, child.read_pulse()) for child in children]
        if not beats:
            return
        replies = beat_workers(db, beats, ttl=self._options.heartbeat_ttl)
        self.confirmed = sent
        with self._lock:
            for child in self._children:
                if child.id in replies:
                    child.board.confirm(sent, replies[child.id])
            known = [*self._children, *(errand.child for errand in self._errands)]
        for child in children:
            if child not in known:
                # It ended while its first beat was on the way.
                deregister(db, child.id)

    def _count_backlog(self, db: Database) -> None:
        limit, self._asked_limit = self._asked_limit, 0
        names = [name for name, _ in self._options.queues or ()] or None
        exclude = list(self._options.exclude_queues)
        count = count_backlog(db, names, exclude=exclude, limit=limit)
        self.backlog = (time.monotonic(), count)

    def _run_errand(self, db: Database, errand: Errand) -> bool:
        """Do what can be done now; tell whether nothing is left of it."""
        try:
            is_done = self._try_errand(db, errand)
        except Exception as error:
            if is_database_trouble(error):
                raise
            # Others rescue the jobs; the children that live need their beat.
            logger.exception("an errand for a child failed")
            return True
        return is_done or time.monotonic() > errand.deadline

    def _try_errand(self, db: Database, errand: Errand) -> bool:
        owned = read_owned_jobs(db, errand.child.id)
        if not errand.is_death:
            [inside] = errand.inside
            owned = [job for job in owned if _is_about(inside, job)]
        endings = [self._make_ending(job, errand) for job in owned]
        report = finish_attempts(
            db, endings, worker_id=errand.child.id, options=self._options
        )
        notify_pending(db, report.pending)
        self._note(db, errand, report.done)
        if report.busy:
            return False
        if errand.is_clean and not report.lost:
            deregister(db, errand.child.id)
        if not errand.is_death:
            end_backends(db, [pid for each in errand.inside for pid in each.pids])
        return True

    def _make_ending(self, job: OwnedJob, errand: Errand) -> Ending:
        inside = next((each for each in errand.inside if _is_about(each, job)), None)
        return Ending(
            claim=make_claim(job),
            outcome=self._judge(job, inside, errand),
            started=None if inside is None else inside.entered,
            is_taken=True,
        )

    def _judge(self, job: OwnedJob, inside: Inside | None, errand: Errand) -> Outcome:
        if inside is not None and not errand.is_death:
            return self._judge_overrun(job, inside)
        is_kept = (job.id, job.lease_token) in errand.kept
        if errand.cause is not None and (inside is not None or is_kept):
            return judge_crash(
                errand.cause,
                crashes=job.crashes,
                attempt=job.attempt,
                max_attempts=1 if inside is None else inside.max_attempts,
                max_crashes=self._options.max_crashes,
                is_alone=inside is not None and len(errand.inside) == 1,
            )
        return CANCELLED if job.is_cancel_requested else RELEASED

    def _judge_overrun(self, job: OwnedJob, inside: Inside) -> Outcome:
        if inside.cause is Overrun.CANCELLED:
            return CANCELLED
        grace = self._options.grace
        return judge_overrun(
            attempt=job.attempt,
            max_attempts=inside.max_attempts,
            delay=self._find_delay(job, inside),
            timeout=timedelta(seconds=inside.limit - inside.entered) - grace,
            grace=grace,
            job_type=job.job_type,
        )

    def _find_delay(self, job: OwnedJob, inside: Inside) -> timedelta:
        if inside.delay is not None:
            return timedelta(seconds=inside.delay)
        options = self._options
        backoff = exponential(options.backoff_base, options.backoff_cap)
        if job.backoff is not None:
            backoff = load_backoff(json.loads(job.backoff))
        return backoff.delay(job.attempt, jitter=1)

    def _note(self, db: Database, errand: Errand, done: list[Ending]) -> None:
        for ending in done:
            self._stories.put((errand.child, ending))
            match ending.outcome:
                case Crashed(delay=delay):
                    self._on_suspects()
                    notify_due(db, delay.total_seconds())
                case Retried(delay=delay):
                    notify_due(db, delay.total_seconds())

    def _tell_stories(self) -> None:
        """Log and signal in a thread of its own: receivers are the user's code."""
        while True:
            child, ending = self._stories.get()
            JobLog(child.id, is_complete=True).report_ended(ending)


def _is_about(inside: Inside, job: OwnedJob) -> bool:
    return (inside.id, inside.lease_token) == (job.id, job.lease_token)
