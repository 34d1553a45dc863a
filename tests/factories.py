"""Rows in any state, for tests that begin in the middle of a job's life."""

from __future__ import annotations

from typing import Any

import factory

from django_jobqueue.models import DeadJob, Job, WorkerHeartbeat
from django_jobqueue.testing import factories


class JobFactory(factories.JobFactory):
    """A pending job of `testapp.add` by default."""

    job_type = "testapp.add"
    payload = factory.Dict({"x": 1})


class DeadJobFactory(factories.DeadJobFactory):
    """A job of `testapp.add`, dead after three attempts that raised."""

    job_type = "testapp.add"
    payload = factory.Dict({"x": 1})


def make_job(**values: Any) -> Job:
    """Insert a job; see JobFactory."""
    job = JobFactory.create(**values)
    assert isinstance(job, Job)
    return Job.objects.get(pk=job.pk)


def make_dead_job(**values: Any) -> DeadJob:
    """Insert a dead job; see DeadJobFactory."""
    dead = DeadJobFactory.create(**values)
    assert isinstance(dead, DeadJob)
    return DeadJob.objects.get(pk=dead.pk)


def make_worker(**values: Any) -> WorkerHeartbeat:
    """Insert a heartbeat; see WorkerHeartbeatFactory."""
    worker = factories.WorkerHeartbeatFactory.create(**values)
    assert isinstance(worker, WorkerHeartbeat)
    return worker
