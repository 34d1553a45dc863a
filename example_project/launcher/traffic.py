"""The stream of jobs, and how the queue is doing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

from django.db.models.functions import Now
from shop.actions import ACTIONS, Action

from django_jobqueue import DeadJob, Job

# Seconds over which the rate is measured.
WINDOW = 5


def start_all_actions() -> None:
    """Press every button once, so that there is something to see of each."""
    for action in ACTIONS.values():
        action.start()


def choose_actions() -> Iterator[Action]:
    """Yield the next action to start, at random and without end."""
    actions = list(ACTIONS.values())
    weights = [action.weight for action in actions]
    while True:
        yield from random.choices(actions, weights)


def start_action(action: Action) -> None:
    """Press the button; somebody also has to press Cancel now and then."""
    if action.name == "stock":
        for job in Job.objects.filter(job_type="shop.count_stock", status="running"):
            job.cancel()
    action.start()


def read_status() -> str:
    """Return the counts by status, and the successes a second, as one line."""
    counts = Job.objects.counts()
    since = Now() - timedelta(seconds=WINDOW)
    recent = Job.objects.filter(status="succeeded", finished_at__gte=since).count()
    succeeded = f"succeeded {counts.pop('succeeded')} ({recent / WINDOW:.1f}/s)"
    others = counts | {"dead": DeadJob.objects.count()}
    return "  ".join(
        [succeeded, *(f"{status} {number}" for status, number in others.items())]
    )
