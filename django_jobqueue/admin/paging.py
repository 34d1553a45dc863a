"""Lists over millions of rows: counts are capped, unused columns are not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
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

# Rows a list counts and pages through; filters and search reach the others.
MAX_ROWS = 10_000


class CappedCount(int):
    """A count that stopped at the cap: there are more rows."""

    def __str__(self) -> str:
        return f"{int(self):,}+"


class CappedPaginator(_Paginator):
    """A paginator whose count is capped at MAX_ROWS."""

    @cached_property
    def count(self) -> int:
        return count_capped(self.object_list)  # type: ignore[arg-type]


def count_capped(rows: QuerySet[Any]) -> int:
    """Return the number of rows, or a CappedCount."""
    # Unordered: to sort them the database would have to read all rows.
    found = rows.order_by()[: MAX_ROWS + 1].count()
    return CappedCount(MAX_ROWS) if found > MAX_ROWS else found


class RecordList(ChangeList):
    """The list of one model, without the columns that only the detail page shows."""

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        self.title = capfirst(str(self.opts.verbose_name_plural))
        self.is_capped = isinstance(self.result_count, CappedCount)

    def get_filters(self, request: HttpRequest) -> Any:
        """Accept the parameters of the list's own filters and no others.

        Django accepts every lookup of every column, also those that fail only in the
        database: a bad regular expression, a year out of range, a NUL in a text.
        """
        accepted = set(_list_parameters(self.list_filter))
        for name, values in self.get_filters_params().items():
            if name not in accepted or any("\0" in value for value in values):
                raise IncorrectLookupParameters(name)
        return super().get_filters(request)

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: Any = None
    ) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        return rows.defer(*getattr(self.model_admin, "unseen_in_list", ()))


def _list_parameters(filters: Any) -> Iterator[str]:
    for each in filters:
        if isinstance(each, str):
            yield from (f"{each}__exact", f"{each}__isnull")
        else:
            yield each.parameter_name
