"""Rows in any state, for tests that begin in the middle of a job's life."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from django_jobqueue.models import DeadJob, Job, WorkerHeartbeat
from django_jobqueue.models.record import make_id
from django_jobqueue.states import JobStatus


class JobFactory(DjangoModelFactory):
    """A pending job of `testapp.add`, unless told otherwise."""

    class Meta:
        model = Job

    id = factory.LazyFunction(make_id)
    job_type = "testapp.add"
    queue = "default"
    payload = factory.Dict({"x": 1})
    status = JobStatus.PENDING
    priority = 0
    run_at = factory.LazyFunction(timezone.now)
    rank = factory.LazyAttribute(lambda job: int(job.run_at.timestamp() * 1_000_000))
    attempts = 0
    lease_token = 0
    created_at = factory.LazyFunction(timezone.now)

    class Params:
        running = factory.Trait(
            status=JobStatus.RUNNING,
            attempts=1,
            lease_token=1,
            worker_id=factory.LazyFunction(uuid4),
            claimed_at=factory.LazyFunction(timezone.now),
        )
        scheduled = factory.Trait(
            status=JobStatus.SCHEDULED,
            run_at=factory.LazyFunction(lambda: timezone.now() + timedelta(hours=1)),
        )
        succeeded = factory.Trait(
            status=JobStatus.SUCCEEDED,
            attempts=1,
            lease_token=1,
            finished_at=factory.LazyFunction(timezone.now),
        )
        cancelled = factory.Trait(
            status=JobStatus.CANCELLED,
            finished_at=factory.LazyFunction(timezone.now),
        )


class DeadJobFactory(DjangoModelFactory):
    """A job of `testapp.add` that died of an exception after three attempts."""

    class Meta:
        model = DeadJob

    id = factory.LazyFunction(make_id)
    job_type = "testapp.add"
    queue = "default"
    payload = factory.Dict({"x": 1})
    priority = 0
    attempts = 3
    lease_token = 3
    error = "ValueError: it failed"
    reason = "exception"


class WorkerFactory(DjangoModelFactory):
    """The heartbeat of a worker that has just beaten."""

    class Meta:
        model = WorkerHeartbeat

    id = factory.LazyFunction(uuid4)
    host = "elsewhere"
    pid = 1
    name = "worker"
    last_seen_at = factory.LazyFunction(timezone.now)
    beating_since = factory.LazyFunction(timezone.now)


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
    """Insert a heartbeat; see WorkerFactory."""
    worker = WorkerFactory.create(**values)
    assert isinstance(worker, WorkerHeartbeat)
    return worker
