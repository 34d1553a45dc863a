"""Lists over millions of rows: no count of the whole table, no column nobody sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.text import capfirst

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

# The last row a list shows by leafing; filters and search reach the others.
MOST = 10_000


class CappedCount(int):
    """As many as were counted, and more that were not."""

    def __str__(self) -> str:
        return f"{int(self):,}+"


class CappedPaginator(_Paginator):
    """Counts to MOST and no further."""

    @cached_property
    def count(self) -> int:
        return count_capped(self.object_list)  # type: ignore[arg-type]


def count_capped(rows: QuerySet[Any]) -> int:
    """Return how many rows there are, or a CappedCount."""
    # Without the order, which the database could only get from all of the rows.
    found = rows.order_by()[: MOST + 1].count()
    return CappedCount(MOST) if found > MOST else found


class RecordList(ChangeList):
    """The list of one model, without the columns that only its detail page shows."""

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.title = capfirst(str(self.opts.verbose_name_plural))
        self.is_capped = isinstance(self.result_count, CappedCount)

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: Any = None
    ) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        return rows.defer(*getattr(self.model_admin, "unseen_in_list", ()))
