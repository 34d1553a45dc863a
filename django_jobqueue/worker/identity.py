"""Who a worker is: what its heartbeat row says of it."""

from __future__ import annotations

import os
import socket
from uuid import UUID

from .. import __version__
from ..lifecycle.beat import WorkerIdentity
from ..options import Options


def make_identity(
    worker_id: UUID, options: Options, *, pid: int | None = None
) -> WorkerIdentity:
    """Describe this process, or the child with that pid."""
    excluded = dict.fromkeys(options.exclude_queues, 0)
    return WorkerIdentity(
        id=worker_id,
        host=socket.gethostname()[:255],
        pid=pid or os.getpid(),
        name=describe_worker(options, pid=pid),
        queues=excluded | dict(options.queues or ()),
        concurrency=options.concurrency,
        version=__version__,
    )


def describe_worker(options: Options, *, pid: int | None = None) -> str:
    return options.name or f"{socket.gethostname()}:{pid or os.getpid()}"[:200]
