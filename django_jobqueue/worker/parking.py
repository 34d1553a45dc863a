"""Parking: endings that could not be written wait here and do not block the others.

Used by the finisher, in its thread. An ending that the database refused is retried
after growing pauses. A group that took too long is retried in ever smaller groups until
the slow ending is alone, and never for more than half of the finisher's time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from ..database_errors import is_cancelled_sql, is_lock_wait
from ..failures import describe_exception
from ..log_events import Event
from ..storage.endings import Ending, Unwritten

logger = logging.getLogger("django_jobqueue.worker")

FIRST_RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 60.0
# After a retry the other endings have the finisher for this many times as long. A slow
# group may still contain healthy endings, a slow single one does not.
GROUP_REST_FACTOR = 1.0
SINGLE_REST_FACTOR = 9.0


@dataclass(slots=True, kw_only=True)
class _Parked:
    """One parked ending: when to retry it, and in a group of which size."""

    ending: Ending
    since: float
    due: float
    pause: float = FIRST_RETRY_SECONDS
    group_size: int = 1
    is_logged: bool = False


class ParkedEndings:
    """The endings that wait for another try, by job and token."""

    def __init__(self, worker_id: UUID, *, batch_size: int) -> None:
        self._worker_id = worker_id
        self._batch_size = batch_size
        self._endings: dict[tuple[UUID, int], _Parked] = {}
        # Monotonic: no retry before this moment.
        self._rest_until = 0.0

    def __len__(self) -> int:
        return len(self._endings)

    @property
    def since(self) -> float | None:
        """Since when (monotonic) the oldest of them could not be written."""
        return min((parked.since for parked in self._endings.values()), default=None)

    def seconds_until_retry(self, now: float) -> float | None:
        """Return the time until the next retry; None if nothing is parked."""
        if not self._endings:
            return None
        due = min(parked.due for parked in self._endings.values())
        return max(0.0, max(due, self._rest_until) - now)

    def take_due(self, now: float) -> list[Ending]:
        """Return endings to retry in one call; they stay here until remove()."""
        if now < self._rest_until:
            return []
        due = [parked for parked in self._endings.values() if parked.due <= now]
        if not due:
            return []
        size = due[0].group_size
        alike = [parked.ending for parked in due if parked.group_size == size]
        return alike[:size]

    def park(self, unwritten: Iterable[Unwritten]) -> None:
        """Keep endings that could not be written, and log each the first time."""
        now = time.monotonic()
        for endings, error in unwritten:
            for ending in endings:
                self._park(ending, now, len(endings), error)
            if len(endings) > 1:
                logger.warning(
                    Event(
                        "the ends of jobs took too long to write; trying fewer at once",
                        count=len(endings),
                        worker_id=self._worker_id,
                    )
                )

    def _park(self, ending: Ending, now: float, size: int, error: Exception) -> None:
        parked = self._endings.setdefault(
            _key(ending), _Parked(ending=ending, since=now, due=now)
        )
        if size > 1:
            parked.group_size, parked.due = size // 2, now
            return
        # Endings refused at once may be retried together: the group is halved again.
        is_slow = is_cancelled_sql(error) or is_lock_wait(error)
        parked.group_size = 1 if is_slow else self._batch_size
        parked.due = now + parked.pause
        parked.pause = min(MAX_RETRY_SECONDS, 2 * parked.pause)
        self._log_once(parked, error)

    def _log_once(self, parked: _Parked, error: Exception) -> None:
        if parked.is_logged:
            return
        parked.is_logged = True
        claim = parked.ending.claim
        logger.error(
            Event(
                "the end of a job cannot be written; trying again",
                job_id=claim.id,
                job_type=claim.job_type,
                attempt=claim.attempt,
                worker_id=self._worker_id,
                error=describe_exception(error).short,
            )
        )

    def note_retry(self, endings: Sequence[Ending], *, took: float) -> None:
        """Note how long a retry took: the other endings come first now."""
        rest = SINGLE_REST_FACTOR if len(endings) == 1 else GROUP_REST_FACTOR
        self._rest_until = time.monotonic() + rest * took

    def remove(self, endings: Iterable[Ending]) -> None:
        """Forget endings that were written or lost."""
        if self._endings:
            for ending in endings:
                self._endings.pop(_key(ending), None)


def _key(ending: Ending) -> tuple[UUID, int]:
    return ending.claim.id, ending.claim.lease_token
