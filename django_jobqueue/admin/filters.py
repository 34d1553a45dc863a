"""The filters of the lists. Their choices never come from the table of jobs."""

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

from ..models import DeadJob, Queue, WorkerHeartbeat
from ..options import get_options
from ..registry import all_handlers
from ..states import JobStatus, WorkerState
from .display import STALE, cut, escape_invisible
from .search import read_id

# More than a person reads; the search finds the others.
MAX_CHOICES = 200


class StatusFilter(admin.SimpleListFilter):
    """By status, as a condition that a partial index covers where there is one."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        return JobStatus.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        match self.value():
            case None:
                return queryset
            case JobStatus.RUNNING:
                # Only running jobs have an owner, and the owner is indexed.
                return queryset.filter(
                    status=JobStatus.RUNNING, worker_id__isnull=False
                )
            case status:
                return queryset.filter(status=status)


class _NameFilter(admin.SimpleListFilter):
    """By a column of names; a name that is not listed can be given in the URL."""

    def list_names(self) -> Iterable[str]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        return _list_choices(self.list_names(), self.value())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        name = self.value()
        if name is None:
            return queryset
        return queryset.filter(**{str(self.parameter_name): name})


class QueueFilter(_NameFilter):
    """By queue: the Queue table and the queues that handlers declare."""

    title = _("queue")
    parameter_name = "queue"

    def list_names(self) -> Iterable[str]:
        return list_queues()


class JobTypeFilter(_NameFilter):
    """By job type: the handlers registered in this process."""

    title = _("job type")
    parameter_name = "job_type"

    def list_names(self) -> Iterable[str]:
        return all_handlers()


class CreatedFilter(admin.SimpleListFilter):
    """By age, read from the ids: a UUIDv7 starts with its time and is indexed."""

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
        names: dict[str, str] = {}
        if request.user.has_perm("jobqueue.view_workerheartbeat"):
            workers = WorkerHeartbeat.objects.order_by("host", "pid")[:MAX_CHOICES]
            names = {str(row.pk): escape_invisible(str(row)) for row in workers}
        if (value := self.value()) is not None:
            names.setdefault(value, escape_invisible(value))
        return names.items()

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        return _filter_by_id(queryset, "worker_id", self.value())


class ErrorFilter(admin.SimpleListFilter):
    """Dead jobs of one error. Offered only while chosen, by a link or a bookmark."""

    title = _("error")
    parameter_name = "fingerprint"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        fingerprint = self.value()
        if fingerprint is None:
            return []
        rows = DeadJob.objects.filter(fingerprint=fingerprint).order_by("-died_at")
        error = rows.values_list("error", flat=True).first()
        return [(fingerprint, cut(escape_invisible(error or fingerprint), 120))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        value = self.value()
        return queryset if value is None else queryset.filter(fingerprint=value)


class AttemptJobFilter(admin.SimpleListFilter):
    """Attempts of one job. Offered only while chosen, by a link or a bookmark."""

    title = _("job")
    parameter_name = "job_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        value = self.value()
        return [] if value is None else [(value, escape_invisible(value))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        return _filter_by_id(queryset, "job_id", self.value())


class WorkerStateFilter(admin.SimpleListFilter):
    """Workers by state; stale ones are separate."""

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
        return queryset.filter(last_seen_at__gte=limit, state=value)


def list_queues() -> list[str]:
    """Return the names of the queues that the Queue table or a handler has."""
    rows = Queue.objects.order_by("name").values_list("name", flat=True)[:MAX_CHOICES]
    declared = {handler.queue for handler in all_handlers().values()}
    return sorted({*rows, *declared})


def make_lowest_id(moment: datetime) -> UUID:
    """Return the lowest UUIDv7 of this moment."""
    milliseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        milliseconds=1
    )
    return UUID(int=milliseconds << 80)


def _list_choices(names: Iterable[str], chosen: str | None) -> list[tuple[str, str]]:
    shown = list(names)[:MAX_CHOICES]
    if chosen is not None and chosen not in shown:
        shown.append(chosen)
    return [(name, escape_invisible(name)) for name in shown]


def _filter_by_id(queryset: QuerySet[Any], column: str, value: str | None) -> Any:
    if value is None:
        return queryset
    id = read_id(value)
    return queryset.none() if id is None else queryset.filter(**{column: id})
