"""The filters of the lists. None of them asks the table of jobs for its choices."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ..models import Queue, WorkerHeartbeat
from ..options import get_options
from ..registry import all_handlers
from ..states import JobStatus, WorkerState
from .display import STALE

# More than a person reads; the search finds the others.
CHOICES = 200


class StatusFilter(admin.SimpleListFilter):
    """By status, in words that a partial index answers where there is one."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        return JobStatus.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        match self.value():
            case None:
                return queryset
            case JobStatus.RUNNING:
                # Running jobs and no others have an owner, and the owner is indexed.
                return queryset.filter(
                    status=JobStatus.RUNNING, worker_id__isnull=False
                )
            case status:
                return queryset.filter(status=_without_nul(status))


class QueueFilter(admin.SimpleListFilter):
    """By queue: those workers have met, and those that handlers name."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        return _list_choices(list_queues(), self.value())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        name = self.value()
        return queryset if name is None else queryset.filter(queue=_without_nul(name))


class JobTypeFilter(admin.SimpleListFilter):
    """By job type: the handlers this process knows."""

    title = _("job type")
    parameter_name = "job_type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        return _list_choices(all_handlers(), self.value())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        name = self.value()
        if name is None:
            return queryset
        return queryset.filter(job_type=_without_nul(name))


class CreatedFilter(admin.SimpleListFilter):
    """By age, read from the ids: they begin with their time, and are indexed."""

    title = _("created")
    parameter_name = "created"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        return [
            ("900", _("Past 15 minutes")),
            ("3600", _("Past hour")),
            ("86400", _("Past 24 hours")),
            ("604800", _("Past 7 days")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        value = self.value()
        if value is None:
            return queryset
        if value not in dict(self.lookup_choices):
            return queryset.none()
        since = timezone.now() - timedelta(seconds=int(value))
        return queryset.filter(pk__gte=make_lowest_id(since))


class WorkerFilter(admin.SimpleListFilter):
    """By the worker that runs the job."""

    title = _("worker")
    parameter_name = "worker_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        workers = WorkerHeartbeat.objects.order_by("host", "pid")[:CHOICES]
        names = {str(worker.pk): str(worker) for worker in workers}
        if (value := self.value()) is not None:
            names.setdefault(value, value)
        return names.items()

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        value = self.value()
        if value is None:
            return queryset
        try:
            return queryset.filter(worker_id=UUID(value))
        except ValueError:
            return queryset.none()


class LifeFilter(admin.SimpleListFilter):
    """Workers by state, those not heard of lately apart."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        return [*WorkerState.choices, (STALE, _("stale"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        value = self.value()
        if value is None:
            return queryset
        limit = timezone.now() - get_options().heartbeat_ttl
        if value == STALE:
            return queryset.filter(last_seen_at__lt=limit)
        return queryset.filter(last_seen_at__gte=limit, state=_without_nul(value))


def list_queues() -> list[str]:
    """Return the queues there are, by name."""
    met = Queue.objects.order_by("name").values_list("name", flat=True)[:CHOICES]
    named = {handler.queue for handler in all_handlers().values()}
    return sorted({*met, *named})


def make_lowest_id(moment: datetime) -> UUID:
    """Return the lowest id that a job made at this moment could have."""
    milliseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        milliseconds=1
    )
    return UUID(int=milliseconds << 80)


def _list_choices(names: Iterable[str], chosen: str | None) -> list[tuple[str, str]]:
    shown = list(names)[:CHOICES]
    if chosen is not None and chosen not in shown:
        shown.append(chosen)
    return [(name, name) for name in shown]


def _without_nul(value: str) -> str:
    """PostgreSQL refuses a NUL in a text, and no row has one."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
