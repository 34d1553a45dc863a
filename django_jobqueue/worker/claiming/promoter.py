"""Promoter: makes scheduled jobs pending when they are due.

Part of the claim loop, on its connection. It knows when the next job is due, and how
long to wait for due jobs whose rows another session has locked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from ...database_errors import is_database_trouble
from ...job_log import report_promoted
from ...lifecycle.promote import Promoted, promote_each, promote_jobs
from ...storage.backlog import find_next_due
from ...storage.database import Database
from ...storage.notify import notify_pending
from .claim_env import ClaimEnv
from .claim_errors import (
    RefusedRows,
    is_slow_read,
    move_unreadable_to_dead,
    skip_slow_statement,
)

PROMOTE_LIMIT = 1000
# A due job whose row is locked is retried after this pause. The pause grows fourfold
# each time, up to the poll interval.
FIRST_LOCKED_PAUSE_SECONDS = 0.001
# Without a promotion after one that timed out.
SLOW_PROMOTION_PAUSE_SECONDS = 30.0


class Promoter:
    """Promotes due jobs, and knows when to do so next."""

    def __init__(self, env: ClaimEnv) -> None:
        # Monotonic: when the next scheduled job is due, as far as we know.
        self.next_due = math.inf
        self._env = env
        self._not_before = 0.0
        # Seconds until a due job with a locked row is retried; 0.0: there is none.
        self._locked_pause = 0.0
        self._refused = RefusedRows("promoted", worker_id=env.worker_id)

    @property
    def next_at(self) -> float:
        """The (monotonic) moment of the next promotion."""
        return max(self.next_due, self._not_before)

    def set_next_due(self, seconds: float | None) -> None:
        """Set the time until the next job is due; None: no job is scheduled."""
        self.next_due = math.inf if seconds is None else time.monotonic() + seconds

    def promote(self, db: Database) -> bool:
        """Make due jobs pending; False if there was none to promote."""
        try:
            promoted = self._promote_jobs(db)
            due = find_next_due(db)
        except Exception as error:
            skip_slow_statement(error, "promotion", worker_id=self._env.worker_id)
            self._not_before = time.monotonic() + SLOW_PROMOTION_PAUSE_SECONDS
            return True
        report_promoted(promoted, worker_id=self._env.worker_id, send=self._env.send)
        self._announce(db, promoted)
        self.set_next_due(due.seconds)
        if len(promoted) == PROMOTE_LIMIT:
            self.next_due = 0.0
        elif due.is_overdue:
            self._wait_for_lock()
        else:
            self._locked_pause = 0.0
        return bool(promoted)

    def _promote_jobs(self, db: Database) -> list[Promoted]:
        """Promote due jobs; row by row if the database refuses one of them."""
        aging = self._env.options.aging
        passed = self._refused.list(time.monotonic())
        try:
            return promote_jobs(db, limit=PROMOTE_LIMIT, aging=aging, passed=passed)
        except Exception as error:
            if is_database_trouble(error) or is_slow_read(error):
                raise
            if move_unreadable_to_dead(db, self._env, error):
                return []
            found = promote_each(db, limit=PROMOTE_LIMIT, aging=aging, passed=passed)
            self._refused.add(found.refused, time.monotonic())
            return found.promoted

    def _announce(self, db: Database, promoted: Iterable[Promoted]) -> None:
        """Notify the other workers, and note which of our queues have jobs now."""
        ranks: dict[str, int] = {}
        for job in promoted:
            ranks[job.queue] = min(job.rank, ranks.get(job.queue, job.rank))
        notify_pending(db, ranks)
        shares = self._env.shares
        served = [name for name in ranks if shares.serves(name)]
        shares.learn(served)
        shares.mark_nonempty(served)
        for queue in served:
            self._env.cursors.note_pending(queue, ranks[queue])

    def _wait_for_lock(self) -> None:
        """Retry a due job with a locked row, after ever longer pauses."""
        pause = max(FIRST_LOCKED_PAUSE_SECONDS, 4 * self._locked_pause)
        self._locked_pause = min(pause, self._env.poll_seconds)
        self.next_due = min(time.monotonic() + self._locked_pause, self.next_due)
