"""The tables: what a job is, what became of it, and who works on it."""

from .attempt import Attempt
from .dead_job import DeadJob, DeadJobQuerySet
from .heartbeat import WorkerHeartbeat
from .job import Job, JobManager, JobQuerySet
from .queue import Queue

__all__ = [
    "Attempt",
    "DeadJob",
    "DeadJobQuerySet",
    "Job",
    "JobManager",
    "JobQuerySet",
    "Queue",
    "WorkerHeartbeat",
]
