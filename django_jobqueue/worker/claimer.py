"""Claimer: promotes, claims and reconciles, in one thread and on one connection.

One thread because reconcile compares what the database says with what we hold, and a
claim whose reply is on its way would look like a lost one.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from ..exceptions import JobCancelled
from ..lifecycle.beat import remember_queues
from ..lifecycle.claim import Claim, Suspects, claim_jobs
from ..lifecycle.database import Database
from ..lifecycle.endings import Ending
from ..lifecycle.look import find_next_due, has_work, look_around
from ..lifecycle.notify import WINDOW, notify_pending
from ..lifecycle.promote import promote_jobs
from ..lifecycle.reconcile import make_claim, read_owned_jobs
from ..options import Options
from ..outcomes import GivenBack
from ..signals import report_promoted
from ..states import AttemptOutcome
from .cursors import Cursors
from .finisher import Finisher
from .held import HeldJobs
from .loop import Loop
from .pace import Pace
from .shares import QueueShares
from .slots import Slots

# How often an idle worker looks although it listens: every 15 to 18 seconds.
LOOK = 15.0
# What was said just before we listened counts for so long; WINDOW, and a margin.
DEAF = 10 * WINDOW
# Claimed jobs that have not started after this long go back for others to take.
STALE = 1.0
PROMOTE_LIMIT = 1000
# Between two looks whether our heartbeat is confirmed again.
FENCED = 0.25
RELEASED = GivenBack(label=AttemptOutcome.RELEASED)


class Claimer:
    """Fetches work for the slots of one worker."""

    def __init__(
        self,
        held: HeldJobs,
        slots: Slots,
        finisher: Finisher,
        *,
        worker_id: UUID,
        options: Options,
        suspects: Suspects,
        on_suspects: Callable[[], None],
        on_drained: Callable[[], None],
        is_fenced: Callable[[], bool],
    ) -> None:
        self.loop = Loop("claim", self.step, alias=options.database)
        # Monotonic: since when notifications come through; set by the listener.
        self.listening_since = math.inf
        self._held = held
        self._slots = slots
        self._finisher = finisher
        self._worker_id = worker_id
        self._options = options
        # Whether to take jobs that killed a process: not, too, or only those.
        self._suspects = suspects
        # Told of such jobs where they are not ours to run.
        self._on_suspects = on_suspects
        # Called when --burst, --once or --max-jobs has come to its end.
        self._on_drained = on_drained
        # Whether our own heartbeat is overdue: then nothing is begun.
        self._is_fenced = is_fenced
        self._serves_all = options.queues is None
        self._shares = QueueShares(dict(options.queues or ()))
        self._excluded = frozenset(options.exclude_queues)
        self._cursors = Cursors(options.aging)
        self._pace = Pace(batch_size=options.batch_size)
        self._left = 1 if options.once else None
        if suspects is Suspects.TOO and self._left is None:
            # Under a supervisor it is the one who counts.
            self._left = options.max_jobs
        self._is_hungry = True
        self._next_look = 0.0
        # When the next scheduled job is due, as far as we know.
        self._next_due = math.inf
        self._look_again = 0.0
        self._must_reconcile = False
        self._seen_db: Database | None = None
        # What the listener and the finisher say between two steps.
        self._news: dict[str, int] = {}
        self._told_due = math.inf
        self._news_lock = threading.Lock()

    def tell_pending(self, ranks: Mapping[str, int]) -> None:
        """Hear of pending jobs, {queue: lowest rank}, from any thread."""
        served = {name: rank for name, rank in ranks.items() if self._is_served(name)}
        if served:
            with self._news_lock:
                for name, rank in served.items():
                    self._news[name] = min(rank, self._news.get(name, rank))
            self.loop.wake()

    def tell_due(self, seconds: float) -> None:
        """Hear of a job that is due in so many seconds, from any thread."""
        due = time.monotonic() + seconds
        with self._news_lock:
            self._told_due = min(due, self._told_due)
        if due < self._next_due:
            self.loop.wake()

    def tell_change(self) -> None:
        """Hear that somebody wrote to the database; what, nobody knows."""
        if not self._is_hungry:
            self._next_look = 0.0
            self.loop.wake()

    def ask_reconcile(self) -> None:
        """Have the next step compare what we own with what we hold, if anything."""
        if len(self._held):
            self._must_reconcile = True
            self.loop.wake()

    def tell_room(self) -> None:
        """Hear that a slot is free; called for every job, so it must cost nothing."""
        if self._is_hungry and not self.loop.wakeup.is_set():
            self.loop.wake()

    def step(self, db: Database) -> float:
        """Do what is due and return how long to sleep."""
        if self._is_fenced():
            # What has not started is dropped; others may have it already.
            self.release(job.claim for job in self._slots.take_waiting())
            return FENCED
        now = time.monotonic()
        if db is not self._seen_db:
            self._seen_db, self._must_reconcile, self._next_look = db, True, 0.0
        if self._must_reconcile:
            self._must_reconcile = False
            self._reconcile(db)
        self._read_news(now)
        if now >= self._next_look:
            self._look(db)
        if time.monotonic() >= self._next_due:
            self._promote(db)
        self._return_stale()
        count = self._claim(db)
        if count == 0 and self._is_done(db):
            self._on_drained()
        return self._choose_delay()

    def _read_news(self, now: float) -> None:
        with self._news_lock:
            news, self._news = self._news, {}
            due, self._told_due = self._told_due, math.inf
        self._next_due = min(due, self._next_due)
        for queue, rank in news.items():
            self._cursors.hear(queue, rank)
        if news:
            self._shares.learn(news)
            self._shares.wake(news)
            self._is_hungry = True
            # Producers say a thing once in a while only: look again after that.
            self._look_again = now + WINDOW
        elif 0 < self._look_again <= now:
            self._look_again = 0.0
            self._shares.wake(self._shares.names)
            self._is_hungry = True

    def _look(self, db: Database) -> None:
        """See which queues have jobs, new ones too, and when the next job is due."""
        look = look_around(db)
        self._await_due(look.next_due)
        pending = {
            Suspects.TOO: {*look.queues, *look.suspects},
            Suspects.NOT: look.queues,
            Suspects.ONLY: look.suspects,
        }[self._suspects]
        found = [name for name in pending if self._is_served(name)]
        new = [name for name in found if name not in self._shares.names]
        if new:
            remember_queues(db, new)
            self._shares.learn(new)
        self._shares.wake(found)
        self._is_hungry = self._is_hungry or bool(found)
        self._next_look = time.monotonic() + self._pause()
        if self._suspects is Suspects.NOT and any(map(self._is_served, look.suspects)):
            self._on_suspects()

    def _promote(self, db: Database) -> None:
        promoted = promote_jobs(db, limit=PROMOTE_LIMIT, aging=self._options.aging)
        ranks: dict[str, int] = {}
        for job in promoted:
            ranks[job.queue] = min(job.rank, ranks.get(job.queue, job.rank))
        # For the other workers; what is ours we take below.
        notify_pending(db, ranks)
        served = [name for name in ranks if self._is_served(name)]
        self._shares.learn(served)
        self._shares.wake(served)
        for queue in served:
            self._cursors.hear(queue, ranks[queue])
        self._is_hungry = self._is_hungry or bool(served)
        if len(promoted) == PROMOTE_LIMIT:
            self._next_due = 0.0
        else:
            self._await_due(find_next_due(db))
        report_promoted(promoted, worker_id=self._worker_id)

    def _await_due(self, seconds: float | None) -> None:
        self._next_due = math.inf if seconds is None else time.monotonic() + seconds

    def _claim(self, db: Database) -> int:
        room = self._find_room()
        if not self._is_hungry or room < 1:
            return 0
        quotas = self._shares.share(room)
        if not quotas:
            self._is_hungry = False
            return 0
        began = time.monotonic()
        spans = self._cursors.choose_spans(quotas, began)
        claims = claim_jobs(
            db,
            quotas,
            worker_id=self._worker_id,
            suspects=self._suspects,
            spans=spans,
        )
        self._cursors.note(claims, spans, began=began, now=time.monotonic())
        self._is_hungry = self._shares.note(quotas, (claim.queue for claim in claims))
        if self._left is not None:
            self._left -= len(claims)
        self._slots.add(self._held.add(claims))
        return len(claims)

    def _find_room(self) -> int:
        """Return how many jobs to claim now; 0 to wait until it is worth a claim."""
        self._pace.measure(
            time.monotonic(), ended=self._slots.ended, seconds=self._slots.seconds
        )
        ahead = self._pace.ahead
        waiting = self._slots.waiting
        self._slots.low_water = ahead // 2
        room = self._slots.concurrency + ahead - waiting - self._slots.running
        if ahead and waiting > ahead // 2:
            return 0
        if self._left is not None:
            room = min(room, self._left)
        return min(room, self._options.batch_size)

    def _return_stale(self) -> None:
        stale = self._slots.take_waiting(older_than=STALE)
        if stale:
            self._pace.slow_down()
            self.release(job.claim for job in stale)

    def release(self, claims: Iterable[Claim]) -> None:
        """Give claims back: pending again, their attempts not used."""
        for claim in claims:
            self._finisher.put(Ending(claim=claim, outcome=RELEASED))

    def _reconcile(self, db: Database) -> None:
        owned = {job.id: job for job in read_owned_jobs(db, self._worker_id)}
        for held in self._held.list():
            job = owned.pop(held.claim.id, None)
            if held.has_end:
                # Ours no more, but by its own doing: its hooks shall run to their end.
                continue
            if job is None or job.lease_token != held.claim.lease_token:
                held.flags.lost = held.flags.cancelled = True
                held.interrupt(JobCancelled)
            elif job.is_cancel_requested:
                held.flags.cancelled = True
                held.interrupt(JobCancelled)
        # Owned but not held: a claim whose reply was lost.
        self.release(make_claim(job) for job in owned.values())

    def _is_served(self, queue: str) -> bool:
        if queue in self._excluded:
            return False
        return self._serves_all or queue in self._shares.names

    def _is_done(self, db: Database) -> bool:
        if self._left is not None and self._left <= 0:
            return True
        if not self._options.burst or len(self._held):
            return False
        names = None if self._serves_all else self._shares.names
        return not has_work(db, names, exclude=sorted(self._excluded))

    def _pause(self) -> float:
        seconds = self._options.poll_interval.total_seconds()
        # Only an idle worker that listens may sleep long; and not before it has heard
        # all that is said, since producers do not say everything (see notify.py): a
        # job that came with the first moments waited for 16 s.
        has_listened = time.monotonic() - self.listening_since > DEAF
        if has_listened and not len(self._held) and not self._options.burst:
            return max(seconds, LOOK) * (1.0 + random.random() * 0.2)
        return seconds * (0.8 + random.random() * 0.2)

    def _choose_delay(self) -> float:
        now = time.monotonic()
        if self._is_hungry and self._find_room() > 0:
            return 0.0
        moments = [self._next_look, self._next_due]
        if self._look_again:
            moments.append(self._look_again)
        if self._slots.waiting:
            moments.append(now + STALE / 2)
        delay = max(0.001, min(moments) - now)
        if self._options.burst:
            # Somebody waits for the end: look often.
            delay = min(delay, 0.05)
        return delay
