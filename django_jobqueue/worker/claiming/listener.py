"""Listener: receives NOTIFY and wakes the claim loop. PostgreSQL only.

It only speeds things up: without it the claim loop polls, as on every other database.
"""

from __future__ import annotations

import logging
from typing import assert_never
from uuid import UUID

from ...log_events import Event
from ...options import get_options
from ...storage.database import Database
from ...storage.notices import CancelNotice, DueNotice, PendingNotice, read_notice
from ..loop import Loop
from ..running.in_flight import InFlightJobs
from .claimer import Claimer

logger = logging.getLogger("django_jobqueue.worker")

# Short, because a stopping worker waits for it.
NOTIFY_WAIT_SECONDS = 1.0
# Between two steps of a listener that cannot listen.
NO_LISTEN_PAUSE_SECONDS = 60.0


class Listener:
    """The loop that waits for notifications, on its own connection."""

    def __init__(
        self, claimer: Claimer, in_flight: InFlightJobs, *, worker_id: UUID, alias: str
    ) -> None:
        self.loop = Loop("listen", self.step, alias=alias)
        self._claimer = claimer
        self._in_flight = in_flight
        self._worker_id = worker_id
        self._db: Database | None = None
        self._is_pooler_reported = False

    def step(self, db: Database) -> float:
        assert db.own is not None
        if db.local:
            return self._go_without(db)
        if db is not self._db:
            db.own.execute("LISTEN jobqueue")
            self._db = db
            self._claimer.on_listening()
        try:
            for notice in db.own.notifies(timeout=NOTIFY_WAIT_SECONDS):
                self._handle(notice.payload)
        except Exception:
            # Poll at once: notifications are missed until the next LISTEN.
            self._claimer.on_not_listening()
            raise
        return 0.0

    def _go_without(self, db: Database) -> float:
        """Do without notifications, behind a pooler in transaction mode."""
        if db is not self._db:
            self._db = db
            self._claimer.on_not_listening()
            self._report_pooler()
        return NO_LISTEN_PAUSE_SECONDS

    def _report_pooler(self) -> None:
        if self._is_pooler_reported:
            return
        self._is_pooler_reported = True
        logger.warning(
            Event(
                "a pooler in transaction mode: no LISTEN and no prepared "
                "statements, jobs are found by polling",
                worker_id=self._worker_id,
                poll_interval=get_options().poll_interval.total_seconds(),
            )
        )

    def _handle(self, payload: str) -> None:
        """Wake the claim loop, which reads the facts from the database."""
        notice = read_notice(payload)
        match notice:
            case PendingNotice(ranks):
                self._claimer.on_pending(ranks)
            case DueNotice(seconds):
                self._claimer.on_due_in(seconds)
            case CancelNotice(job_id, worker_id):
                job = self._in_flight.find(job_id)
                is_ours = job is not None and worker_id == self._worker_id
                if job is not None and is_ours and not job.flags.cancelled:
                    self._claimer.on_cancel_request()
            case None:
                logger.debug(Event("unreadable notification", payload=payload[:100]))
            case _:
                assert_never(notice)
