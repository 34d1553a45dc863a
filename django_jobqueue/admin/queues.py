"""The pages of Queue: every queue with its jobs, live workers and longest wait.

The list is not the Queue table: queues that no worker has met are on it as well.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import PAGE_VAR, SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from ..models import Queue
from ..queue_numbers import QueueNumbers, read_queue_numbers
from ..states import JobStatus
from . import display
from .readonly import ReadOnlyAdmin
from .search import SearchTooLong, split_term

ROWS_PER_PAGE = 100

_COUNTED = (
    ("pending", _("waiting")),
    ("scheduled", _("scheduled")),
    ("running", _("running")),
    ("dead", _("dead")),
)


class QueueAdmin(ReadOnlyAdmin):
    fields: ClassVar[Any] = ("queue", "jobs", "oldest", "workers", "first_seen")
    readonly_fields = fields

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the queues with their numbers, searched and leafed in memory."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        term = request.GET.get(SEARCH_VAR, "")
        paginator = Paginator(self._find_queues(request, term), ROWS_PER_PAGE)
        page = paginator.get_page(request.GET.get(PAGE_VAR))
        context = {
            **self.admin_site.each_context(request),
            "title": capfirst(str(self.opts.verbose_name_plural)),
            "subtitle": None,
            "media": self.media,
            "opts": self.opts,
            "term": display.escape_invisible(term),
            "page": page,
            "headings": [label for _name, label in _COUNTED],
            "rows": [self._make_row(queue) for queue in page],
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/jobqueue/queues.html", context)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the queue with its numbers; it need not have a Queue row."""
        found = {queue.name: queue for queue in read_queue_numbers()}
        numbers = found.get(object_id)
        if numbers is None:
            return None
        queue: Any = Queue(name=numbers.name)
        queue.first_seen_at = numbers.first_seen_at
        queue.numbers = numbers
        return queue

    @admin.display(description=_("name"))
    def queue(self, queue: Any) -> str:
        return display.show_text(queue.name)

    @admin.display(description=_("jobs"))
    def jobs(self, queue: Any) -> SafeString:
        links = [
            (
                self._make_jobs_url(queue.name, name),
                _show_count(queue.numbers, name),
                label,
            )
            for name, label in _COUNTED
        ]
        return format_html_join(" · ", '<a href="{}">{} {}</a>', links)

    @admin.display(description=_("oldest waiting"))
    def oldest(self, queue: Any) -> SafeString | str:
        return display.show_moment(queue.numbers.waiting_since)

    @admin.display(description=_("live workers"))
    def workers(self, queue: Any) -> str:
        return str(queue.numbers.workers)

    @admin.display(description=_("first seen at"))
    def first_seen(self, queue: Any) -> SafeString | str:
        return display.show_moment(queue.first_seen_at)

    def _find_queues(self, request: HttpRequest, term: str) -> list[QueueNumbers]:
        try:
            words = [word.lower() for word in split_term(term)]
        except SearchTooLong:
            self.refuse_search(request)
            return []
        return [
            queue
            for queue in read_queue_numbers()
            if all(word in queue.name.lower() for word in words)
        ]

    def _make_row(self, queue: QueueNumbers) -> dict[str, Any]:
        return {
            "name": display.show_text(queue.name),
            "url": self.make_url("queue_change", queue.name),
            "counts": [
                (
                    _show_count(queue, name),
                    self._make_jobs_url(queue.name, name),
                    label,
                )
                for name, label in _COUNTED
            ],
            "oldest": display.show_waiting(queue.waiting_since),
            "workers": queue.workers,
            "is_unserved": not queue.workers and (queue.pending or queue.scheduled),
        }

    def _make_jobs_url(self, queue: str, status: str) -> str:
        if status in JobStatus.values:
            return self.make_url("job_changelist", queue=queue, status=status)
        return self.make_url("deadjob_changelist", queue=queue)


def _show_count(queue: QueueNumbers, name: str) -> str:
    number = getattr(queue, name)
    return f"{number:,}+" if number and name in queue.at_least else f"{number:,}"
