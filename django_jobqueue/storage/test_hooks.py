"""Test hooks: the clock of every transition, and listeners for new jobs.

Set by django_jobqueue.testing only. In service both are empty and cost one read of a
name; statements on a worker's own connection do not read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models import Job

# Replaces the database's clock where a transition is called without `now`.
clock: Callable[[], datetime] | None = None

# Called with new jobs, in the transaction that enqueued them, before its commit.
listeners: list[Callable[[Sequence[Job]], None]] = []


def notify_enqueued(jobs: Sequence[Job]) -> None:
    for listener in list(listeners):
        listener(jobs)
