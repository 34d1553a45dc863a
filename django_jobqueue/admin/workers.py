"""The pages of WorkerHeartbeat: the workers, their queues and jobs, and stale ones."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..models import WorkerHeartbeat
from . import columns, display
from .filters import WorkerStateFilter
from .outlook import is_stale
from .readonly import ReadOnlyAdmin
from .search import read_id


class WorkerHeartbeatAdmin(ReadOnlyAdmin):
    list_display = (
        "worker",
        "worker_state",
        columns.LAST_SEEN_AGE,
        "queue_names",
        "jobs",
        "processed",
        "failed",
    )
    list_filter = (WorkerStateFilter,)
    ordering = ("host", "pid", "id")
    search_fields = ("id", "name", "host")
    search_help_text = _("An id, or a part of a name or host.")
    fieldsets: ClassVar[Any] = (
        (
            None,
            {
                "fields": (
                    "worker_state",
                    columns.LAST_SEEN,
                    columns.BEATING_SINCE,
                    columns.WORKER_STARTED,
                )
            },
        ),
        (
            _("Process"),
            {
                "fields": (
                    "id",
                    columns.WORKER_NAME,
                    columns.HOST,
                    "pid",
                    columns.VERSION,
                    "memory_size",
                )
            },
        ),
        (
            _("Work"),
            {"fields": ("queue_names", "jobs", "processed", "failed")},
        ),
    )
    readonly_fields = (
        "id",
        "worker_state",
        "jobs",
        "memory_size",
        "queue_names",
        *columns.list_callables(fieldsets),
    )

    def match_word(self, word: str) -> Q:
        id = read_id(word)
        named = Q(name__icontains=word) | Q(host__icontains=word)
        return named if id is None else Q(pk=id)

    @admin.display(description=_("worker"))
    def worker(self, worker: WorkerHeartbeat) -> str:
        return display.show_text(str(worker))

    @admin.display(description=_("state"))
    def worker_state(self, worker: WorkerHeartbeat) -> SafeString:
        if is_stale(worker):
            return display.show_badge(display.STALE, gettext("stale"))
        return display.show_badge(worker.state, worker.get_state_display())

    @admin.display(description=_("queues"))
    def queue_names(self, worker: WorkerHeartbeat) -> SafeString | str:
        if not worker.queues:
            return gettext("all")
        return display.show_tags(worker.label_queues())

    @admin.display(description=_("memory"))
    def memory_size(self, worker: WorkerHeartbeat) -> SafeString:
        return display.keep_together(display.describe_bytes(worker.memory))

    @admin.display(description=_("running"))
    def jobs(self, worker: WorkerHeartbeat) -> SafeString:
        url = self.make_url("job_changelist", worker_id=worker.pk)
        counts = {"count": worker.running, "most": worker.concurrency}
        return display.link(url, gettext("%(count)d of %(most)d") % counts)
