"""Listener: hears NOTIFY and wakes the claim loop. PostgreSQL only.

Only speeds things up: when it is deaf, the claim loop polls as it does everywhere else.
"""

from __future__ import annotations

import json
import logging
import math
import time
from typing import Any
from uuid import UUID

from ..exceptions import JobCancelled
from ..lifecycle.database import Database
from ..signals import Event
from .claimer import Claimer
from .held import HeldJobs
from .loop import Loop

logger = logging.getLogger("django_jobqueue.worker")

# Short, so that a stopping worker does not wait for it.
WAIT = 1.0


class Listener:
    """The loop that waits for notifications on a connection of its own."""

    def __init__(
        self, claimer: Claimer, held: HeldJobs, *, worker_id: UUID, alias: str
    ) -> None:
        self.loop = Loop("listen", self.step, alias=alias)
        self._claimer = claimer
        self._held = held
        self._worker_id = str(worker_id)
        self._db: Database | None = None

    def step(self, db: Database) -> float:
        assert db.own is not None
        if db is not self._db:
            self._claimer.listening_since = math.inf
            db.own.execute("LISTEN jobqueue")
            self._db = db
            self._claimer.listening_since = time.monotonic()
        try:
            for notice in db.own.notifies(timeout=WAIT):
                self._hear(notice.payload)
        except Exception:
            self._claimer.listening_since = math.inf
            # Poll at once: what was notified meanwhile is not heard.
            self._claimer.loop.wake()
            raise
        return 0.0

    def _hear(self, payload: str) -> None:
        match _parse(payload):
            case {"pending": dict(ranks)}:
                self._claimer.tell_pending(ranks)
            case {"due": float() | int() as seconds}:
                self._claimer.tell_due(seconds)
            case {"cancel": str(id), "worker": self._worker_id}:
                held = self._held.find(UUID(id))
                if held is not None:
                    held.flags.cancelled = True
                    held.interrupt(JobCancelled)


def _parse(payload: str) -> Any:
    """Read a message; anyone may notify, so nonsense is passed over."""
    try:
        return json.loads(payload)
    except ValueError:
        logger.debug(Event("unreadable notification", payload=payload[:100]))
        return None
