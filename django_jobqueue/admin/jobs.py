"""The pages of Job: the list, the page of one job, and the actions."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import DeadJob, Job
from . import columns, display
from .actions import CANCEL, DELETE, MOVE, RESCHEDULE, RUN, RUN_AGAIN
from .filters import (
    CreatedFilter,
    JobTypeFilter,
    QueueFilter,
    StatusFilter,
    WorkerFilter,
)
from .outlook import describe_attempts, describe_next, describe_shortly
from .records import RecordAdmin, describe_all_attempts


class JobAdmin(RecordAdmin):
    list_display = (
        columns.JOB_TYPE,
        "status_and_error",
        "place",
        "attempt_count",
        "duration",
    )
    list_filter = (
        StatusFilter,
        QueueFilter,
        JobTypeFilter,
        CreatedFilter,
        WorkerFilter,
    )
    # Ids are UUIDv7: the primary key has the newest first.
    ordering = ("-id",)
    actions = ("cancel", "run", "reschedule", "move", "run_again", "delete_selected")
    record_actions = (CANCEL, RUN, RESCHEDULE, MOVE, RUN_AGAIN)
    other_model = DeadJob
    acted_on = (
        "job_type",
        "queue",
        "status",
        "priority",
        "rank",
        "run_at",
        "worker_id",
    )
    unseen_in_list = (*RecordAdmin.unseen_in_list, "result")
    fieldsets: ClassVar[Any] = (
        (
            None,
            {
                "fields": (
                    columns.STATUS,
                    "next_step",
                    columns.PROGRESS,
                    columns.ERROR,
                )
            },
        ),
        (
            _("Call"),
            {
                "fields": (
                    columns.JOB_TYPE,
                    columns.PAYLOAD,
                    columns.ARGS,
                    columns.RESULT,
                )
            },
        ),
        columns.PLACE_IN_QUEUE,
        (
            _("Times"),
            {
                "fields": (
                    columns.CREATED,
                    columns.RUN_AT,
                    columns.CLAIMED,
                    columns.STARTED,
                    columns.FINISHED,
                    columns.CANCEL_REQUESTED,
                    columns.EXPIRES,
                    columns.PRUNE_AT,
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
                    "worker",
                    "finisher",
                    "lease_token",
                    "isolate",
                )
            },
        ),
    )
    readonly_fields = (
        "next_step",
        "attempt_total",
        "worker",
        "finisher",
        *columns.list_callables(fieldsets),
    )

    def delete_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        return self.act_on_one(request, object_id, DELETE)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("jobqueue.delete_job")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobqueue.cancel_job")

    def has_run_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobqueue.run_job")

    def has_reschedule_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobqueue.reschedule_job")

    def has_move_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobqueue.move_job")

    def has_run_again_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobqueue.add_job")

    @admin.action(description=_("Cancel"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, rows: QuerySet[Job]) -> HttpResponse | None:
        return self.act_on_list(request, rows, CANCEL)

    @admin.action(description=_("Run now"), permissions=["run"])
    def run(self, request: HttpRequest, rows: QuerySet[Job]) -> HttpResponse | None:
        return self.act_on_list(request, rows, RUN)

    @admin.action(description=_("Reschedule…"), permissions=["reschedule"])
    def reschedule(
        self, request: HttpRequest, rows: QuerySet[Job]
    ) -> HttpResponse | None:
        return self.act_on_list(request, rows, RESCHEDULE)

    @admin.action(
        description=_("Move to another queue or priority…"), permissions=["move"]
    )
    def move(self, request: HttpRequest, rows: QuerySet[Job]) -> HttpResponse | None:
        return self.act_on_list(request, rows, MOVE)

    @admin.action(description=_("Run again…"), permissions=["run_again"])
    def run_again(
        self, request: HttpRequest, rows: QuerySet[Job]
    ) -> HttpResponse | None:
        return self.act_on_list(request, rows, RUN_AGAIN)

    @admin.action(description=_("Delete…"), permissions=["delete"])
    def delete_selected(
        self, request: HttpRequest, rows: QuerySet[Job]
    ) -> HttpResponse | None:
        return self.act_on_list(request, rows, DELETE)

    @admin.display(description=_("status"))
    def status_and_error(self, job: Job) -> SafeString:
        badge = display.show_badge(job.status, job.get_status_display())
        return columns.add_error(badge, job)

    @admin.display(description=_("queue"))
    def place(self, job: Job) -> SafeString | str:
        queue = display.show_text(job.queue)
        if not job.priority:
            return queue
        return format_html(
            '{} <span class="jobqueue-tag"><span class="visually-hidden">{}</span>'
            "{}</span>",
            queue,
            _("priority"),
            f"{job.priority:+d}",
        )

    @admin.display(description=_("attempts"))
    def attempt_count(self, job: Job) -> SafeString:
        return display.keep_together(describe_attempts(job))

    @admin.display(description=_("time and age"))
    def duration(self, job: Job) -> SafeString:
        taken = display.keep_together(describe_shortly(job))
        return display.add_small(taken, display.show_age(job.created_at))

    @admin.display(description=_("what happens next"))
    def next_step(self, job: Job) -> str:
        return display.show_text(describe_next(job))

    @admin.display(description=_("attempts"))
    def attempt_total(self, job: Job) -> str:
        return describe_all_attempts(job)

    @admin.display(description=_("worker"))
    def worker(self, job: Job) -> SafeString | str:
        return self.show_worker(job.worker_id)

    @admin.display(description=_("finished by"))
    def finisher(self, job: Job) -> SafeString | str:
        return self.show_worker(job.finished_by)
