"""The pages of Queue: the names workers have met, with ways to their jobs."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import Queue
from ..states import JobStatus
from . import display
from .readonly import ReadOnlyAdmin

_LINKED = (JobStatus.PENDING, JobStatus.SCHEDULED, JobStatus.RUNNING)


class QueueAdmin(ReadOnlyAdmin):
    list_display = ("queue", "first_seen", "jobs")
    ordering = ("name",)
    search_fields = ("name",)
    fields: ClassVar[Any] = ("queue", "first_seen", "jobs")
    readonly_fields = ("queue", "first_seen", "jobs")

    @admin.display(description=_("name"))
    def queue(self, queue: Queue) -> str:
        return display.show_text(queue.name)

    @admin.display(description=_("first seen at"))
    def first_seen(self, queue: Queue) -> SafeString | str:
        return display.show_moment(queue.first_seen_at)

    @admin.display(description=_("jobs"))
    def jobs(self, queue: Queue) -> SafeString:
        links = [
            (self.make_url("job_changelist", queue=queue.name, status=status), label)
            for status, label in ((each.value, each.label) for each in _LINKED)
        ]
        links.append((self.make_url("deadjob_changelist", queue=queue.name), _("dead")))
        return format_html_join(" · ", '<a href="{}">{}</a>', links)
