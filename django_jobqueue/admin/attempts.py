"""The pages of Attempt: what every run that left a trace came to."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import Attempt
from . import columns, display
from .readonly import ReadOnlyAdmin
from .search import read_id


class AttemptAdmin(ReadOnlyAdmin):
    list_display = (
        "name",
        columns.OUTCOME,
        "job",
        columns.EXCEPTION,
        columns.SHORT_MESSAGE,
        columns.ATTEMPT_AGE,
    )
    list_filter = ("outcome",)
    ordering = ("-id",)
    search_fields = ("job_id", "exception_class")
    search_help_text = _("The id of a job, or the whole name of an exception.")
    unseen_in_list = ("traceback",)
    fieldsets: ClassVar[Any] = (
        (
            None,
            {
                "fields": (
                    columns.OUTCOME,
                    "job",
                    "number",
                    columns.ATTEMPT_STARTED,
                    columns.ATTEMPT_FINISHED,
                    "worker",
                    "lease_token",
                )
            },
        ),
        (
            _("Error"),
            {"fields": (columns.EXCEPTION, columns.MESSAGE, columns.TRACEBACK)},
        ),
    )
    readonly_fields = ("job", "worker", *columns.list_callables(fieldsets))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        for word in search_term.split():
            id = read_id(word)
            match = Q(exception_class=word) if id is None else Q(job_id=id)
            queryset = queryset.filter(match)
        return queryset, False

    @admin.display(description=_("attempt"))
    def name(self, attempt: Attempt) -> str:
        return str(attempt.number)

    @admin.display(description=_("job"))
    def job(self, attempt: Attempt) -> SafeString:
        # The page of a job that died leads on to the dead one.
        return display.link(self.make_url("job_change", attempt.job_id), attempt.job_id)

    @admin.display(description=_("worker"))
    def worker(self, attempt: Attempt) -> SafeString | str:
        return self.show_worker(attempt.worker_id)
