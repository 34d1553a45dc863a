"""Claim: a worker's right to one attempt; and the parts of a queue that a claim reads.

Made by lifecycle/claim.py. Everything that writes on behalf of an attempt takes one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple
from uuid import UUID

# The first and the last rank of a queue, and the id before all others.
LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1
NIL = UUID(int=0)


class Span(NamedTuple):
    """A part of a queue: the jobs from (low, after) on, with a rank up to `high`.

    Jobs are ordered as they are claimed: by rank, then by id.
    """

    queue: str
    low: int
    # An id.
    after: UUID
    high: int

    def covers(self, rank: int) -> bool:
        return self.low < rank <= self.high


def whole_queue(queue: str) -> Span:
    """Return the span that covers all of a queue."""
    return Span(queue, LOWEST, NIL, HIGHEST)


class Claim(NamedTuple):
    """One claimed job: the columns that an attempt needs, not a whole Job.

    A tuple, since thousands are made each second, straight from the rows.
    """

    id: UUID
    lease_token: int
    rank: int
    job_type: str
    queue: str
    priority: int
    # JSON texts, decoded by the thread that runs the job.
    payload: str
    args: str
    backoff: str | None
    # The number of this attempt, from 1.
    attempt: int
    max_attempts: int | None
    timeout: timedelta | None
    given_back: int
    run_at: datetime
    claimed_at: datetime
    expires_at: datetime | None
    unknown_since: datetime | None

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= self.claimed_at


# The columns of a job that a claim reads, in the order of its fields.
CLAIM_COLUMNS = ["attempts" if name == "attempt" else name for name in Claim._fields]


class Suspects(Enum):
    """Whether a claim takes jobs suspected of killing their process (`Job.isolate`)."""

    # A worker without a supervisor: no other process would run them.
    INCLUDED = "included"
    # A process that runs many jobs: a suspect could kill it with all of them.
    EXCLUDED = "excluded"
    # The process that runs one suspect at a time and nothing else.
    ONLY = "only"
