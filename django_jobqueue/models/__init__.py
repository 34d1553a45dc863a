"""The tables: jobs, dead jobs, attempts, worker heartbeats and queues."""

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
