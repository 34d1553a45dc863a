"""What rescue takes from a worker that is gone; shared by its two versions."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

LIMIT = 500
MESSAGE = "The worker that ran this job was not heard of again."


@dataclass(frozen=True, slots=True)
class Rescued:
    """One job taken from a worker that is gone."""

    id: UUID
    job_type: str
    queue: str
    worker_id: UUID
    attempt: int
    lost: int
    # The rank if it is pending again, else None: scheduled after a delay, or dead.
    rank: int | None
    is_dead: bool
    error: str = f"WorkerLost: {MESSAGE}"
