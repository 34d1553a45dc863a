"""ReadOnlyAdmin: the base of all five pages. They show rows and never save a form.

What an operator may do to a job is an action, see records.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..models import WorkerHeartbeat
from . import columns, display
from .paging import CappedPaginator, RecordList
from .search import MAX_CHARACTERS, MAX_WORDS, SearchTooLong, split_term

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

# Fields that name a worker, and what stands there for those who may not view workers.
_WORKER_IDS = {"worker": columns.WORKER_ID, "finisher": columns.FINISHED_BY}


class NamedRow:
    """A row under a name that is safe to show: invisible characters written out.

    Django uses str(row) in titles, breadcrumbs, labels and log entries.
    """

    def __init__(self, row: Model) -> None:
        self.pk = row.pk
        self._meta = row._meta
        self._name = display.escape_invisible(str(row))

    def __str__(self) -> str:
        return self._name


class ReadOnlyAdmin(_ModelAdmin):
    paginator = CappedPaginator
    show_full_result_count = False
    # Facets count the table once for each choice.
    show_facets = admin.ShowFacets.NEVER
    # Only the default order has an index: any other would sort the whole table.
    sortable_by: ClassVar[Any] = ()
    unseen_in_list: ClassVar[tuple[str, ...]] = ()

    class Media:
        css: ClassVar[dict[str, list[str]]] = {"all": ["jobqueue/admin.css"]}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RecordList]:
        return RecordList

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def match_word(self, word: str) -> Q:
        """Return the condition for the rows that match one word of a search."""
        raise NotImplementedError

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        try:
            words = split_term(search_term)
        except SearchTooLong:
            self.refuse_search(request)
            return queryset.none(), False
        for word in words:
            queryset = queryset.filter(self.match_word(word))
        return queryset, False

    def refuse_search(self, request: HttpRequest) -> None:
        """Say why a long search finds nothing."""
        text = _(
            "A search takes at most %(words)d words and %(characters)d characters. "
            "Nothing was searched."
        ) % {"words": MAX_WORDS, "characters": MAX_CHARACTERS}
        self.message_user(request, text, messages.WARNING)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        # PostgreSQL refuses a NUL in a text, and no row has one.
        if "\0" in object_id:
            return None
        return super().get_object(request, object_id, from_field)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if _may_view_workers(request):
            return fieldsets
        return [
            (
                title,
                {**options, "fields": [_hide_worker(f) for f in options["fields"]]},
            )
            for title, options in fieldsets
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (*super().get_readonly_fields(request, obj), *_WORKER_IDS.values())

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if row is not None:
            named = NamedRow(row)
            names = {"original": named, "subtitle": str(named)}
            extra_context = {**names, **(extra_context or {})}
        return super().change_view(request, object_id, form_url, extra_context)

    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        # Django looks for the row first, which reveals whether it exists.
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is not None:
            named = NamedRow(row)
            title = _("Change history: %(name)s") % {"name": named}
            extra_context = {"object": named, "title": title, **(extra_context or {})}
        return super().history_view(request, object_id, extra_context)

    def action_checkbox(self, obj: Model) -> SafeString:
        return super().action_checkbox(NamedRow(obj))

    def make_url(self, page: str, *args: UUID | str, **query: Any) -> str:
        """Return the address of a page of this app, such as `job_change`."""
        url = reverse(
            f"admin:jobqueue_{page}",
            args=[quote(arg) for arg in args],
            current_app=self.admin_site.name,
        )
        return f"{url}?{urlencode(query)}" if query else url

    def show_worker(self, worker_id: Any) -> SafeString | str:
        """Return the name of a worker, as a link while it has a row."""
        if worker_id is None:
            return display.EMPTY
        worker = WorkerHeartbeat.objects.filter(pk=worker_id).first()
        if worker is None:
            return str(worker_id)
        url = self.make_url("workerheartbeat_change", worker_id)
        return display.link(url, display.show_text(str(worker)))

    def _get_obj_does_not_exist_redirect(
        self, request: HttpRequest, opts: Any, object_id: str
    ) -> HttpResponse:
        shown = display.escape_invisible(unquote(object_id))
        redirect: HttpResponse = super()._get_obj_does_not_exist_redirect(  # type: ignore[misc]
            request, opts, quote(shown)
        )
        return redirect


def _may_view_workers(request: HttpRequest) -> bool:
    return request.user.has_perm("jobqueue.view_workerheartbeat")


def _hide_worker(field: Any) -> Any:
    return _WORKER_IDS.get(field, field) if isinstance(field, str) else field
