"""Errors of the claim loop's statements that must not stop the other jobs.

A statement that times out is logged and skipped. A row that cannot be read is moved to
the dead jobs. A row that the database refuses to change is passed over for a while: a
trigger of the project may refuse it, with an error, silently, or by taking too long.
Without this memory each claim would try it again, and with as many such rows as slots
a queue would starve. All other errors go to the loop, which retries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from uuid import UUID

from ...database_errors import is_cancelled_sql, names_row
from ...job_log import report_unreadable
from ...lifecycle.claim import claim_each, find_free_queues
from ...lifecycle.unreadable import list_claim_candidates, move_unreadable_jobs
from ...log_events import Event
from ...storage.claims import Claim
from ...storage.database import Database
from .claim_env import ClaimEnv

logger = logging.getLogger("django_jobqueue.worker")

# Until a refused row is tried again.
REFUSED_ROW_SECONDS = 30.0
# How many refused rows are remembered.
MAX_REFUSED_ROWS = 2_000
# Between two checks whether a claim that returned nothing was refused silently.
WITHHELD_CHECK_SECONDS = 1.0


def skip_slow_statement(error: Exception, what: str, *, worker_id: UUID) -> None:
    """Log a statement that timed out, so that claims go on; raise any other error."""
    if not is_cancelled_sql(error):
        raise error
    logger.warning(Event(f"a {what} took too long", worker_id=worker_id, error=error))


def is_slow_read(error: Exception) -> bool:
    """Return whether a statement timed out while reading, not in a row's trigger."""
    return is_cancelled_sql(error) and not names_row(error)


def move_unreadable_to_dead(db: Database, env: ClaimEnv, error: Exception) -> bool:
    """After an error, move jobs that cannot be read to the dead jobs, if any."""
    candidates = list_claim_candidates(
        db, worker_id=env.worker_id, queues=env.shares.names
    )
    moved = move_unreadable_jobs(db, candidates, error)
    report_unreadable(moved, worker_id=env.worker_id, send=env.send)
    return bool(moved)


class RefusedRows:
    """The rows one worker could not change, and until when it does not retry."""

    def __init__(self, what: str, *, worker_id: UUID) -> None:
        self._what = what
        self._worker_id = worker_id
        # In the order of `until`; kept after it, so that each row is logged once.
        self._until: dict[UUID, float] = {}

    def add(self, rows: Mapping[UUID, str], now: float) -> None:
        """Pass over these rows, {id: error}, and log those that are new."""
        for id, error in rows.items():
            if self._until.pop(id, None) is None:
                text = f"a job cannot be {self._what}; passed over"
                logger.warning(
                    Event(text, worker_id=self._worker_id, job_id=id, error=error)
                )
            self._until[id] = now + REFUSED_ROW_SECONDS
        for id in _list_oldest(self._until, len(self._until) - MAX_REFUSED_ROWS):
            del self._until[id]

    def list(self, now: float) -> list[UUID]:
        """Return the rows that are passed over now."""
        return [id for id, until in self._until.items() if until > now]


class RowByRowClaim:
    """Claims row by row where one statement for all rows fails or returns nothing."""

    def __init__(self, env: ClaimEnv) -> None:
        self.refused = RefusedRows("claimed", worker_id=env.worker_id)
        self._env = env
        # Monotonic: when to look for silently refused rows again.
        self._next_check = 0.0

    def claim_after(
        self, db: Database, quotas: dict[str, int], error: Exception
    ) -> list[Claim]:
        """Claim what can be claimed after a claim failed; raise its error if none."""
        claims = self._claim_each(db, quotas)
        if not claims:
            raise error
        logger.warning(
            Event(
                "a claim failed and was repeated row by row",
                worker_id=self._env.worker_id,
                count=len(claims),
                error=" ".join(str(error).split())[:200],
            )
        )
        return claims

    def claim_withheld(
        self, db: Database, quotas: dict[str, int], claims: Iterable[Claim]
    ) -> list[Claim]:
        """Claim from queues that gave nothing to a sweep although they have free jobs.

        A trigger that returns NULL leaves a row unchanged, without an error: with as
        many of those as slots no other job of the queue would be claimed.
        """
        given = {claim.queue for claim in claims}
        short = {name: quota for name, quota in quotas.items() if name not in given}
        now = time.monotonic()
        if not short or now < self._next_check:
            return []
        self._next_check = now + WITHHELD_CHECK_SECONDS
        free = find_free_queues(
            db, short, suspects=self._env.suspects, passed=self.refused.list(now)
        )
        return self._claim_each(db, {name: short[name] for name in free})

    def _claim_each(self, db: Database, quotas: dict[str, int]) -> list[Claim]:
        if not quotas:
            return []
        found = claim_each(
            db,
            quotas,
            worker_id=self._env.worker_id,
            suspects=self._env.suspects,
            passed=self.refused.list(time.monotonic()),
        )
        self.refused.add(found.refused, time.monotonic())
        return found.claims


def _list_oldest(rows: Iterable[UUID], count: int) -> list[UUID]:
    return [id for id, _ in zip(rows, range(count), strict=False)]
