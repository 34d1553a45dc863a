"""The pages of Attempt: the outcome and the error of every recorded attempt."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import Attempt
from . import columns, display
from .filters import AttemptJobFilter
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
    list_filter = ("outcome", AttemptJobFilter)
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

    def match_word(self, word: str) -> Q:
        id = read_id(word)
        return Q(exception_class=word) if id is None else Q(job_id=id)

    @admin.display(description=_("attempt"))
    def name(self, attempt: Attempt) -> str:
        return str(attempt.number)

    @admin.display(description=_("job"))
    def job(self, attempt: Attempt) -> SafeString:
        # The page of a job that died redirects to the dead job.
        return display.link(self.make_url("job_change", attempt.job_id), attempt.job_id)

    @admin.display(description=_("worker"))
    def worker(self, attempt: Attempt) -> SafeString | str:
        return self.show_worker(attempt.worker_id)
