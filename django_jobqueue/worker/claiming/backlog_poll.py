"""BacklogPoll: reads which queues have pending jobs, and when the next job is due.

Part of the claim loop, on its connection. Polling always runs, also beside the
listener: notifications only make it rarer. A poll also finds queues that this worker
does not know yet. BurstEnd finds out whether --burst has no job left.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from typing import assert_never

from ...log_events import Event
from ...storage.backlog import Backlog, find_work_left, read_backlog
from ...storage.claims import Suspects
from ...storage.database import Database
from ...storage.notify import WINDOW_SECONDS
from ...storage.queue_rows import read_queues, remember_queues
from ..running.in_flight import InFlightJobs
from .claim_env import ClaimEnv
from .claim_errors import move_unreadable_to_dead, skip_slow_statement
from .promoter import Promoter

logger = logging.getLogger("django_jobqueue.worker")

# Between two polls of an idle worker that listens; up to a fifth more.
IDLE_POLL_SECONDS = 15.0
# A producer may have notified just before we listened, and is silent for a window
# after that. Until then, with a margin, a worker polls as if it did not listen.
LISTEN_MARGIN_SECONDS = 10 * WINDOW_SECONDS
# After a poll that timed out, or queue names that could not be written.
SLOW_POLL_PAUSE_SECONDS = 30.0
# How long --burst waits for jobs whose rows another session has locked. Then it ends
# without them.
BURST_LOCK_WAIT_SECONDS = 2.0


class BacklogPoll:
    """Polls the backlog, and knows when to do so next."""

    def __init__(
        self,
        env: ClaimEnv,
        promoter: Promoter,
        in_flight: InFlightJobs,
        *,
        on_suspects: Callable[[], None],
    ) -> None:
        # Monotonic: when to poll next.
        self.next_at = 0.0
        # Monotonic: since when notifications arrive; inf: they do not.
        self.listening_since = math.inf
        self._env = env
        self._promoter = promoter
        self._in_flight = in_flight
        # Called if there are suspects that another worker is to run.
        self._on_suspects = on_suspects
        self._not_before = 0.0
        # Queues whose rows are to be written, and the (monotonic) earliest moment.
        self._unwritten_queues: set[str] = set()
        self._write_queues_after = 0.0

    def request(self) -> None:
        """Poll with the next step."""
        self.next_at = 0.0

    def run(self, db: Database) -> None:
        backlog = self._read(db)
        if backlog is None:
            self._assume_all_queues(db)
            return
        self._promoter.set_next_due(backlog.next_due)
        shares = self._env.shares
        found = self._list_served(db, backlog)
        new = [name for name in found if name not in shares.names]
        shares.learn(new)
        self._unwritten_queues.update(new)
        self._write_queues(db)
        shares.mark_nonempty(found)
        self.next_at = time.monotonic() + self._choose_pause()
        if self._env.suspects is Suspects.EXCLUDED and any(
            map(shares.serves, backlog.suspects)
        ):
            self._on_suspects()

    def _read(self, db: Database) -> Backlog | None:
        """Return the backlog; None if reading it takes too long."""
        if time.monotonic() < self._not_before:
            return None
        try:
            return read_backlog(db)
        except Exception as error:
            skip_slow_statement(error, "poll", worker_id=self._env.worker_id)
            self._not_before = time.monotonic() + SLOW_POLL_PAUSE_SECONDS
            return None

    def _assume_all_queues(self, db: Database) -> None:
        """Without a backlog: promote, and claim from every queue ever seen."""
        shares = self._env.shares
        if shares.serves_all:
            shares.learn(filter(shares.serves, read_queues(db)))
        shares.mark_nonempty(shares.names)
        self._promoter.next_due = 0.0
        self.next_at = time.monotonic() + self._env.poll_seconds

    def _list_served(self, db: Database, backlog: Backlog) -> list[str]:
        """Return the queues that have jobs for this worker."""
        pending = _list_pending(backlog, self._env.suspects)
        names = [name for name in pending if isinstance(name, str)]
        if len(names) < len(pending):
            # SQLite stores a blob in any column, and no worker serves such a name.
            error = TypeError("the name of a queue is not text")
            move_unreadable_to_dead(db, self._env, error)
        return [name for name in names if self._env.shares.serves(name)]

    def _write_queues(self, db: Database) -> None:
        """Write the names of new queues; later, if that fails: claims need no row."""
        if not self._unwritten_queues or time.monotonic() < self._write_queues_after:
            return
        try:
            remember_queues(db, sorted(self._unwritten_queues))
            self._unwritten_queues.clear()
        except Exception as error:
            self._write_queues_after = time.monotonic() + SLOW_POLL_PAUSE_SECONDS
            logger.warning(
                Event(
                    "the names of queues cannot be written; trying again",
                    worker_id=self._env.worker_id,
                    error=error,
                )
            )

    def _choose_pause(self) -> float:
        # Only an idle worker that listens may sleep long, and only once it receives
        # every notification, since producers do not send all of them (see notify.py):
        # a job enqueued in the first moments waited for 16 s.
        seconds = self._env.poll_seconds
        has_listened = time.monotonic() - self.listening_since > LISTEN_MARGIN_SECONDS
        if has_listened and not len(self._in_flight) and not self._env.options.burst:
            return max(seconds, IDLE_POLL_SECONDS) * (1.0 + random.random() * 0.2)
        return seconds * (0.8 + random.random() * 0.2)


class BurstEnd:
    """Whether a worker with --burst has done all jobs of its queues.

    The claim loop asks after each claim that returned nothing.
    """

    def __init__(self, env: ClaimEnv, in_flight: InFlightJobs) -> None:
        self._env = env
        self._in_flight = in_flight
        # Monotonic: since when all jobs that are left have locked rows.
        self._only_locked_since: float | None = None

    def is_reached(self, db: Database) -> bool:
        if not self._env.options.burst or len(self._in_flight):
            return False
        shares = self._env.shares
        names = None if shares.serves_all else shares.names
        left = find_work_left(db, names, exclude=sorted(shares.excluded))
        if not left.has_any:
            return True
        if left.has_free:
            self._only_locked_since = None
            return False
        now = time.monotonic()
        if self._only_locked_since is None:
            self._only_locked_since = now
        return now - self._only_locked_since >= BURST_LOCK_WAIT_SECONDS


def _list_pending(backlog: Backlog, suspects: Suspects) -> list[str]:
    match suspects:
        case Suspects.INCLUDED:
            return list({*backlog.queues, *backlog.suspects})
        case Suspects.EXCLUDED:
            return backlog.queues
        case Suspects.ONLY:
            return backlog.suspects
        case _:
            assert_never(suspects)
