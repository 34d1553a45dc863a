"""Seams: what tests change about every arrow, the clock and who hears of new jobs.

Written by django_jobqueue.testing only. In service both are empty and cost a look at a
name; statements on a worker's own connection do not even look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models import Job

# What the database's time is taken to be, where an arrow is not told.
clock: Callable[[], datetime] | None = None

# Told of new jobs, in the transaction that enqueued them and before its commit.
listeners: list[Callable[[Sequence[Job]], None]] = []


def tell_enqueued(jobs: Sequence[Job]) -> None:
    for listener in list(listeners):
        listener(jobs)
