"""The pages of DeadJob: why each job died, and the action that requeues it."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import DeadJob, Job
from . import columns, display
from .actions import DELETE_DEAD, REQUEUE
from .filters import ErrorFilter, JobTypeFilter, QueueFilter
from .outlook import describe_attempts, describe_dead
from .records import RecordAdmin, describe_all_attempts


class DeadJobAdmin(RecordAdmin):
    list_display = (
        columns.JOB_TYPE,
        "reason_and_error",
        columns.QUEUE,
        "attempt_count",
        columns.DIED_AGE,
    )
    list_filter = ("reason", QueueFilter, JobTypeFilter, ErrorFilter)
    ordering = ("-died_at",)
    actions = ("requeue", "delete_selected")
    record_actions = (REQUEUE,)
    other_model = Job
    acted_on = ("job_type", "queue", "unique_key")
    fieldsets: ClassVar[Any] = (
        (
            None,
            {
                "fields": (
                    columns.REASON,
                    "next_step",
                    columns.ERROR,
                    "same_error",
                    columns.PROGRESS,
                )
            },
        ),
        (_("Call"), {"fields": (columns.JOB_TYPE, columns.PAYLOAD, columns.ARGS)}),
        columns.PLACE_IN_QUEUE,
        (
            _("Times"),
            {
                "fields": (
                    columns.CREATED,
                    columns.RUN_AT,
                    columns.CLAIMED,
                    columns.STARTED,
                    columns.DIED,
                    columns.EXPIRES,
                )
            },
        ),
        (
            _("Budget and worker"),
            {
                "fields": (
                    "attempt_total",
                    "timeout",
                    columns.BACKOFF,
                    "finisher",
                    "lease_token",
                    "isolate",
                )
            },
        ),
    )
    readonly_fields = (
        "next_step",
        "same_error",
        "attempt_total",
        "finisher",
        *columns.list_callables(fieldsets),
    )

    def delete_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        return self.act_on_one(request, object_id, DELETE_DEAD)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("jobqueue.delete_deadjob")

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobqueue.requeue_deadjob")

    @admin.action(description=_("Requeue…"), permissions=["requeue"])
    def requeue(
        self, request: HttpRequest, rows: QuerySet[DeadJob]
    ) -> HttpResponse | None:
        return self.act_on_list(request, rows, REQUEUE)

    @admin.action(description=_("Delete…"), permissions=["delete"])
    def delete_selected(
        self, request: HttpRequest, rows: QuerySet[DeadJob]
    ) -> HttpResponse | None:
        return self.act_on_list(request, rows, DELETE_DEAD)

    @admin.display(description=_("reason"))
    def reason_and_error(self, dead_job: DeadJob) -> SafeString:
        badge = display.show_badge(dead_job.reason, dead_job.get_reason_display())
        return columns.add_error(badge, dead_job)

    @admin.display(description=_("attempts"))
    def attempt_count(self, dead_job: DeadJob) -> SafeString:
        return display.keep_together(describe_attempts(dead_job))

    @admin.display(description=_("what happens next"))
    def next_step(self, dead_job: DeadJob) -> str:
        return describe_dead(dead_job)

    @admin.display(description=_("same error"))
    def same_error(self, dead_job: DeadJob) -> SafeString | str:
        if not dead_job.fingerprint:
            return display.EMPTY
        url = self.make_url("deadjob_changelist", fingerprint=dead_job.fingerprint)
        return display.link(url, _("All dead jobs with this error"))

    @admin.display(description=_("attempts"))
    def attempt_total(self, dead_job: DeadJob) -> str:
        return describe_all_attempts(dead_job)

    @admin.display(description=_("finished by"))
    def finisher(self, dead_job: DeadJob) -> SafeString | str:
        return self.show_worker(dead_job.finished_by)
