"""ReadOnlyAdmin: pages that show rows and never save a form.

All five models are of this kind. What may be done to a job are actions, see records.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from ..models import WorkerHeartbeat
from . import display
from .paging import CappedPaginator, RecordList

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class ReadOnlyAdmin(_ModelAdmin):
    paginator = CappedPaginator
    show_full_result_count = False
    # Facets count the table once for each choice.
    show_facets = admin.ShowFacets.NEVER
    # By the indexed default only: any other order would sort all of the rows.
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

    def make_url(self, page: str, *args: UUID | str, **query: Any) -> str:
        """Return the address of a page of this app, such as `job_change`."""
        url = reverse(
            f"admin:jobqueue_{page}",
            args=[quote(arg) for arg in args],
            current_app=self.admin_site.name,
        )
        return f"{url}?{urlencode(query)}" if query else url

    def show_worker(self, worker_id: Any) -> SafeString | str:
        """Return the name of a worker; a link as long as it has a row."""
        if worker_id is None:
            return display.EMPTY
        worker = WorkerHeartbeat.objects.filter(pk=worker_id).first()
        if worker is None:
            return str(worker_id)
        url = self.make_url("workerheartbeat_change", worker_id)
        return display.link(url, display.show_text(str(worker)))
