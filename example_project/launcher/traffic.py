"""The stream of jobs, and the status of the queue."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

from django.db.models.functions import Now
from shop.actions import ACTIONS, Action

from django_jobqueue import DeadJob, Job

# Seconds over which the rate is measured.
WINDOW_SECONDS = 5


def start_all_actions() -> None:
    """Start every action once: the page shows one job of each kind."""
    for action in ACTIONS.values():
        action.start()


def choose_actions() -> Iterator[Action]:
    """Yield random actions without end."""
    actions = list(ACTIONS.values())
    weights = [action.weight for action in actions]
    while True:
        yield from random.choices(actions, weights)


def start_action(action: Action) -> None:
    """Start the action, and sometimes cancel its job."""
    if action.name == "stock":
        for job in Job.objects.filter(job_type="shop.count_stock", status="running"):
            job.cancel()
    action.start()


def read_status() -> str:
    """Return the counts by status, and the successes a second, as one line."""
    counts = Job.objects.counts()
    since = Now() - timedelta(seconds=WINDOW_SECONDS)
    recent = Job.objects.filter(status="succeeded", finished_at__gte=since).count()
    succeeded = f"succeeded {counts.pop('succeeded')} ({recent / WINDOW_SECONDS:.1f}/s)"
    others = counts | {"dead": DeadJob.objects.count()}
    return "  ".join(
        [succeeded, *(f"{status} {number}" for status, number in others.items())]
    )
