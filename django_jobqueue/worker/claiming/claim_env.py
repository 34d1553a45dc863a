"""What the parts of one worker's claim loop share. Made by the claimer."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ...options import Options
from ...signals import Send
from ...storage.claims import Suspects
from .cursors import Cursors
from .queue_shares import QueueShares


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEnv:
    """Identity, options and what the worker knows about its queues."""

    worker_id: UUID
    options: Options
    # Whether jobs that killed a process are excluded, included, or the only ones.
    suspects: Suspects
    send: Send
    shares: QueueShares
    cursors: Cursors

    @property
    def poll_seconds(self) -> float:
        return self.options.poll_interval.total_seconds()


def make_claim_env(
    options: Options, *, worker_id: UUID, suspects: Suspects, send: Send
) -> ClaimEnv:
    shares = QueueShares(
        dict(options.queues or ()),
        serves_all=options.queues is None,
        excluded=options.exclude_queues,
    )
    return ClaimEnv(
        worker_id=worker_id,
        options=options,
        suspects=suspects,
        send=send,
        shares=shares,
        cursors=Cursors(options.aging),
    )
