"""The pages of the admin: jobs, dead jobs, attempts, workers and queues.

Jobs cannot be edited by form. Actions change them: each has its own permission, runs by
POST and writes a LogEntry. Django imports this package when the admin starts.
"""

from django.contrib import admin

from ..models import Attempt, DeadJob, Job, Queue, WorkerHeartbeat
from .attempts import AttemptAdmin
from .dead_jobs import DeadJobAdmin
from .jobs import JobAdmin
from .queues import QueueAdmin
from .workers import WorkerHeartbeatAdmin

admin.site.register(Job, JobAdmin)
admin.site.register(DeadJob, DeadJobAdmin)
admin.site.register(Attempt, AttemptAdmin)
admin.site.register(WorkerHeartbeat, WorkerHeartbeatAdmin)
admin.site.register(Queue, QueueAdmin)

__all__ = [
    "AttemptAdmin",
    "DeadJobAdmin",
    "JobAdmin",
    "QueueAdmin",
    "WorkerHeartbeatAdmin",
]
