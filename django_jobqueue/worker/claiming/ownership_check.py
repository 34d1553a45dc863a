"""OwnershipCheck: compares the jobs a worker owns in the database with those in flight.

Runs in the claim thread, between two claims: a claim whose reply is still on its way
would look like a lost one. A job in flight that we no longer own is interrupted. A job
that we own but do not have in flight is released: the reply of its claim was lost.
"""

from __future__ import annotations

import time
from uuid import UUID

from ...exceptions import JobCancelled
from ...storage.database import Database
from ...storage.ownership import OwnedJob, make_claim, read_owned_jobs
from ..finisher import Finisher
from ..running.in_flight import InFlightJob, InFlightJobs

# Between two checks of a worker that has no job in flight.
IDLE_OWNERSHIP_CHECK_SECONDS = 60.0


class OwnershipCheck:
    """Checks on request, in a step of the claim loop."""

    def __init__(
        self, in_flight: InFlightJobs, finisher: Finisher, *, worker_id: UUID
    ) -> None:
        self.is_requested = False
        self._in_flight = in_flight
        self._finisher = finisher
        self._worker_id = worker_id
        # Monotonic.
        self._last_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether to check after a heartbeat.

        Once a minute also with no job in flight: a claim whose reply was lost may
        commit after the check that followed the reconnect.
        """
        age = time.monotonic() - self._last_at
        return bool(len(self._in_flight)) or age > IDLE_OWNERSHIP_CHECK_SECONDS

    def run(self, db: Database) -> None:
        self.is_requested = False
        # Before the rows are read: a job that ends between the two reads is neither
        # lost nor unknown.
        jobs = self._in_flight.list()
        owned = {
            (job.id, job.lease_token): job
            for job in read_owned_jobs(db, self._worker_id)
        }
        self._last_at = time.monotonic()
        for job in jobs:
            _compare(job, owned.pop((job.claim.id, job.claim.lease_token), None))
        # In flight from now on, or the next check would find them again before their
        # release is written.
        unknown = [make_claim(row) for row in owned.values()]
        self._in_flight.add(unknown)
        self._finisher.release(unknown)


def _compare(job: InFlightJob, row: OwnedJob | None) -> None:
    """Interrupt a job in flight that we have lost or that is to be cancelled."""
    if job.has_end or job.is_ended:
        # Its end is being written, or is written and only hooks still run.
        return
    if row is None:
        job.flags.lost = True
    if row is None or row.is_cancel_requested:
        job.flags.cancelled = True
        job.interrupt(JobCancelled)
