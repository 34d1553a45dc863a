"""Claimer: the loop that promotes, claims and checks ownership.

One thread and one connection for all three, because the ownership check compares the
rows with the jobs in flight: a claim whose reply is on its way would look like a lost
one. Other threads report events with the on_* methods, which only wake the loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from uuid import UUID

from ...database_errors import is_database_trouble
from ...lifecycle.claim import claim_jobs
from ...options import Options
from ...signals import Send
from ...storage.claims import Claim, Suspects
from ...storage.database import Database
from ...storage.notify import WINDOW_SECONDS
from ..finisher import Finisher
from ..loop import Loop
from ..running.in_flight import InFlightJobs
from ..running.thread_pool import ThreadPool
from .backlog_poll import BacklogPoll, BurstEnd
from .claim_env import make_claim_env
from .claim_errors import (
    RowByRowClaim,
    is_slow_read,
    move_unreadable_to_dead,
    skip_slow_statement,
)
from .claim_room import ClaimRoom
from .inbox import ClaimInbox, WakeLimit
from .ownership_check import OwnershipCheck
from .promoter import Promoter

# Claimed jobs that have not started after this go back, for other workers to claim.
START_WITHIN_SECONDS = 1.0
# Between two checks whether enough ends were written to claim again.
BACKED_UP_SECONDS = 0.05
# Between two checks whether our heartbeat is confirmed again.
FENCED_SECONDS = 0.25
# The longest pause of a worker that ends by itself (--burst, --once, --max-jobs): its
# caller waits for the end.
BURST_POLL_SECONDS = 0.05


class Claimer:
    """Fetches jobs for the slots of one worker."""

    def __init__(
        self,
        in_flight: InFlightJobs,
        slots: ThreadPool,
        finisher: Finisher,
        *,
        worker_id: UUID,
        options: Options,
        suspects: Suspects,
        on_suspects: Callable[[], None],
        on_drained: Callable[[], None],
        is_fenced: Callable[[], bool],
        send: Send,
    ) -> None:
        self.loop = Loop("claim", self.step, alias=options.database)
        self._in_flight = in_flight
        self._slots = slots
        self._finisher = finisher
        # Called when --burst, --once or --max-jobs has reached its end.
        self._on_drained = on_drained
        # Whether our own heartbeat is overdue: then no job starts.
        self._is_fenced = is_fenced
        self._env = env = make_claim_env(
            options, worker_id=worker_id, suspects=suspects, send=send
        )
        self._inbox = ClaimInbox(env.shares)
        self._wakes = WakeLimit()
        self._ownership = OwnershipCheck(in_flight, finisher, worker_id=worker_id)
        self._promoter = Promoter(env)
        self._poll = BacklogPoll(
            env, self._promoter, in_flight, on_suspects=on_suspects
        )
        self._room = ClaimRoom(env, slots, finisher)
        self._row_by_row = RowByRowClaim(env)
        self._burst_end = BurstEnd(env, in_flight)
        self._seen_db: Database | None = None
        # Monotonic: when to try all queues again after a notification; inf: never.
        self._try_all_at = math.inf
        # Monotonic: no ownership check for a cancel before this.
        self._next_cancel = 0.0

    def on_pending(self, ranks: Mapping[str, int]) -> None:
        """Note pending jobs, {queue: lowest rank}; from any thread."""
        if self._inbox.add_pending(ranks):
            self.loop.wake()

    def on_due_in(self, seconds: float) -> None:
        """Note that a job is due in this many seconds; from any thread."""
        due = time.monotonic() + seconds
        if self._inbox.add_due(due) and due < self._promoter.next_due:
            self.loop.wake()

    def on_listening(self) -> None:
        """Poll less often from now on, but once more: notifications were missed."""
        self._poll.listening_since = time.monotonic()
        self._inbox.is_poll_requested = True
        self.loop.wake()

    def on_not_listening(self) -> None:
        """Poll with the next step, and as often as without a listener."""
        self._poll.listening_since = math.inf
        self._inbox.is_poll_requested = True
        self.loop.wake()

    def on_cancel_request(self) -> None:
        """Check soon whether a job in flight is to be cancelled; from any thread."""
        if not self._inbox.is_cancel_reported:
            self._inbox.is_cancel_reported = True
            self.loop.wake()

    def on_file_change(self) -> None:
        """The SQLite file changed: poll on the next step."""
        if not self._env.shares.may_have_jobs:
            self._poll.request()
            self.loop.wake()

    def request_ownership_check(self) -> None:
        """Check with the next step that what we own is in flight, if that is due."""
        if self._ownership.is_due:
            self._ownership.is_requested = True
            self.loop.wake()

    def on_free_slot(self) -> None:
        """Claim again; called for every job, so it must cost nothing."""
        if self._env.shares.may_have_jobs and not self.loop.wakeup.is_set():
            self.loop.wake()

    def step(self, db: Database) -> float:
        """Do what is due and return how long to sleep."""
        try:
            return self._step(db)
        except Exception as error:
            if not move_unreadable_to_dead(db, self._env, error):
                raise
            # The database may have claimed rows that we could not read.
            self._ownership.is_requested = True
            return 0.0

    def _step(self, db: Database) -> float:
        if self._is_fenced():
            # Other workers may have claimed them already.
            self._finisher.release(job.claim for job in self._slots.take_waiting())
            return FENCED_SECONDS
        now = time.monotonic()
        self._read_requests(db, now)
        if self._ownership.is_requested:
            self._ownership.run(db)
        is_notified = now >= self._wakes.opens_at and self._read_inbox(now)
        if now >= self._poll.next_at:
            self._poll.run(db)
        is_due = time.monotonic() >= self._promoter.next_at
        if is_due and not self._promoter.promote(db):
            self._wakes.note_useless(now)
        self._release_unstarted()
        if self._claim(db) == 0:
            if is_notified and self._room.count() > 0:
                self._wakes.note_useless(now)
            if self._is_done(db):
                self._on_drained()
        return self._choose_delay()

    def _is_done(self, db: Database) -> bool:
        if self._room.is_used_up:
            # Draining releases claimed jobs that have not started: --once would end
            # without having run one.
            return not self._slots.waiting
        return self._burst_end.is_reached(db)

    def _read_requests(self, db: Database, now: float) -> None:
        """Turn requests of other threads, and a new connection, into work."""
        if self._inbox.is_poll_requested:
            # Reset before the poll: what is missed during it requests another.
            self._inbox.is_poll_requested = False
            self._poll.request()
        if db is not self._seen_db:
            self._seen_db, self._ownership.is_requested = db, True
            self._poll.request()
        if self._inbox.is_cancel_reported and now >= self._next_cancel:
            self._inbox.is_cancel_reported = False
            self._ownership.is_requested = True
            self._next_cancel = now + WINDOW_SECONDS

    def _read_inbox(self, now: float) -> bool:
        """Apply what was reported between two steps; True if jobs are pending."""
        reports = self._inbox.read()
        shares = self._env.shares
        self._promoter.next_due = min(reports.due, self._promoter.next_due)
        if reports.has_new_queue:
            self._poll.request()
        for queue, rank in reports.ranks.items():
            self._env.cursors.note_pending(queue, rank)
        if reports.ranks:
            shares.mark_nonempty(reports.ranks)
            # Producers notify once per window only: try all queues again after that.
            self._try_all_at = now + WINDOW_SECONDS
        elif self._try_all_at <= now:
            self._try_all_at = math.inf
            shares.mark_nonempty(shares.names)
        return reports.has_pending

    def _release_unstarted(self) -> None:
        jobs = self._slots.take_waiting(older_than=START_WITHIN_SECONDS)
        if jobs:
            self._room.slow_down()
            self._room.take(-len(jobs))
            self._finisher.release(job.claim for job in jobs)

    def _claim(self, db: Database) -> int:
        room = self._room.count()
        if not self._env.shares.may_have_jobs or room < 1:
            return 0
        quotas = self._env.shares.share(room)
        began = time.monotonic()
        spans = self._env.cursors.choose_spans(quotas, began)
        try:
            claims = claim_jobs(
                db,
                quotas,
                worker_id=self._env.worker_id,
                suspects=self._env.suspects,
                spans=spans,
                passed=self._row_by_row.refused.list(began),
            )
        except Exception as error:
            claims = self._claim_after_error(db, quotas, error, began=began)
        else:
            self._env.cursors.note(claims, spans, began=began, now=time.monotonic())
            if spans is None:
                claims += self._row_by_row.claim_withheld(db, quotas, claims)
            self._env.shares.note(quotas, (claim.queue for claim in claims))
        self._room.take(len(claims))
        self._slots.add(self._in_flight.add(claims))
        return len(claims)

    def _claim_after_error(
        self, db: Database, quotas: dict[str, int], error: Exception, *, began: float
    ) -> list[Claim]:
        """After a claim that failed, claim what can be claimed nevertheless."""
        if is_slow_read(error):
            skip_slow_statement(error, "claim", worker_id=self._env.worker_id)
            if not self._env.cursors.give_up(began=began, now=time.monotonic()):
                raise error
            return []
        if is_database_trouble(error):
            raise error
        # The database may have claimed rows that we could not read.
        self._ownership.is_requested = True
        if move_unreadable_to_dead(db, self._env, error):
            return []
        return self._row_by_row.claim_after(db, quotas, error)

    def _choose_delay(self) -> float:
        now = time.monotonic()
        may_have_jobs = self._env.shares.may_have_jobs
        if may_have_jobs and self._room.count() > 0:
            return 0.0
        delay = max(0.001, min(self._list_moments(now)) - now)
        if may_have_jobs and self._room.is_backed_up:
            delay = min(delay, BACKED_UP_SECONDS)
        if self._env.options.burst or self._room.is_used_up:
            delay = min(delay, BURST_POLL_SECONDS)
        return delay

    def _list_moments(self, now: float) -> list[float]:
        """Return the (monotonic) moments at which there is something to do."""
        moments = [self._poll.next_at, self._promoter.next_at, self._try_all_at]
        if self._inbox.has_pending or self._inbox.due < self._promoter.next_due:
            moments.append(self._wakes.opens_at)
        if self._inbox.is_cancel_reported:
            moments.append(self._next_cancel)
        if self._slots.waiting:
            moments.append(now + START_WITHIN_SECONDS / 2)
        return moments
