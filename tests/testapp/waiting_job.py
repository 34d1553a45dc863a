"""A job that runs until the test lets it end, whatever the worker asks of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django_jobqueue import Job
from tests.waiting import wait_until

from . import jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """The job, and the files by which it and the test communicate."""

    job: Job
    started: Path
    end: Path

    def wait_until_started(self) -> None:
        wait_until(self.started.exists)

    def let_end(self) -> None:
        self.end.touch()


def enqueue_waiting_job(
    folder: Path, name: str = "job", *, handler: Any = jobs.ignore_everything
) -> WaitingJob:
    """Enqueue `handler`, which touches one file and waits for another in `folder`."""
    started, end = folder / f"{name} started", folder / f"{name} end"
    job = handler.enqueue(touch=str(started), until=str(end))
    return WaitingJob(job=job, started=started, end=end)
