"""One row of each model, and four kinds of users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Permission
from django.test import Client

from django_jobqueue.models import Attempt, DeadJob, Job, Queue, WorkerHeartbeat
from tests.factories import make_dead_job, make_job, make_worker

MODELS = ("job", "deadjob", "attempt", "workerheartbeat", "queue")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """One row of each model, and a job in each state that matters."""

    pending: Job
    scheduled: Job
    running: Job
    succeeded: Job
    dead: DeadJob
    attempt: Attempt
    worker: WorkerHeartbeat
    queue: Queue


def make_rows() -> Rows:
    worker = make_worker()
    dead = make_dead_job(unique_key="dead", fingerprint="f00")
    return Rows(
        pending=make_job(),
        scheduled=make_job(scheduled=True, unique_key="later"),
        running=make_job(running=True, worker_id=worker.pk),
        succeeded=make_job(succeeded=True),
        dead=dead,
        attempt=make_attempt(dead),
        worker=worker,
        queue=Queue.objects.create(name="default"),
    )


def make_clients(users: Any) -> dict[str, Client]:
    """Return a client for each kind of user."""
    viewer = users.create_user("viewer", is_staff=True)
    viewer.user_permissions.set(
        Permission.objects.filter(codename__in=[f"view_{model}" for model in MODELS])
    )
    made = {
        "superuser": users.create_superuser("superuser"),
        "viewer": viewer,
        "outsider": users.create_user("outsider", is_staff=True),
        "anonymous": None,
    }
    found = {name: Client() for name in made}
    for name, user in made.items():
        if user is not None:
            found[name].force_login(user)
    return found


def make_attempt(record: Any, **values: Any) -> Attempt:
    """Insert a failed attempt of a job or dead job."""
    return Attempt.objects.create(
        **{
            "job_id": record.pk,
            "lease_token": 1,
            "number": 1,
            "outcome": "failed",
            "exception_class": "ValueError",
            "message": "it failed",
            "traceback": "Traceback (most recent call last):\nValueError: it failed",
            **values,
        }
    )


def give_permission(client: Client, django_user_model: Any, *codenames: str) -> None:
    """Log in as staff with exactly these permissions."""
    user = django_user_model.objects.create_user("-".join(codenames), is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client.force_login(user)
