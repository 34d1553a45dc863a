"""RecordAdmin: what the pages of jobs and of dead jobs have in common.

Actions from the list and from the page of one job pass the same way: permission, page
that asks (for a form, or for all that match), batches, LogEntry, messages.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import PAGE_VAR
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ..models import Attempt, DeadJob, Job
from ..models.record import JobRecord
from . import display
from .actions import NAMED, REPORTS, Action, Effects
from .filters import list_queues
from .outlook import describe_attempts
from .paging import count_capped
from .readonly import ReadOnlyAdmin
from .search import HELP, read_id, search_records

BATCH = 500
# Seconds after which a request ends with the batch it is at, and says so.
BUDGET = 20.0
# Jobs named on a page that asks, attempts shown on the page of a job.
SAMPLE = 10
SHOWN_ATTEMPTS = 50
HISTORY = 100


class RecordAdmin(ReadOnlyAdmin):
    change_form_template = "admin/jobqueue/record_change_form.html"
    search_fields: ClassVar[Any] = ("id", "job_type", "queue", "unique_key")
    search_help_text = HELP
    record_actions: ClassVar[tuple[Action, ...]] = ()
    # Enough to act on a row and to name it; not its payload.
    acted_on: ClassVar[tuple[str, ...]] = ("job_type", "queue")
    # The column behind each field of the page that is not one itself.
    sources: ClassVar[dict[str, str]] = {
        "worker": "worker_id",
        "finisher": "finished_by",
        "same_error": "fingerprint",
    }
    # Where else a job of this id may lie.
    other_model: ClassVar[type[JobRecord]]
    unseen_in_list: ClassVar[tuple[str, ...]] = (
        "payload",
        "args",
        "backoff",
        "progress",
        "tags",
        "meta",
        "concurrency_key",
    )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return search_records(queryset, search_term), False

    def get_urls(self) -> list[URLPattern]:
        return [
            path(
                f"<path:object_id>/{action.name}/",
                self.admin_site.admin_view(self._make_view(action)),
                name=f"jobqueue_{self.opts.model_name}_{action.name}",
            )
            for action in self.record_actions
        ] + super().get_urls()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave out what this job does not have: most have little of all there is."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None:
            return fieldsets
        return [
            (title, {**options, "fields": self._list_filled(obj, options["fields"])})
            for title, options in fieldsets
        ]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        record = self.get_object(request, unquote(object_id))
        if record is None:
            if (moved := self._find_moved(object_id)) is not None:
                return HttpResponseRedirect(moved)
            return super().change_view(request, object_id, form_url, extra_context)
        may_see_attempts = request.user.has_perm("jobqueue.view_attempt")
        context = {
            "record_buttons": list(self._list_buttons(request, record)),
            "may_see_attempts": may_see_attempts,
            "attempts": self._show_attempts(record) if may_see_attempts else [],
            "attempts_url": self.make_url("attempt_changelist", job_id=record.pk),
            "attempts_shown": SHOWN_ATTEMPTS,
            **(extra_context or {}),
        }
        return super().change_view(request, object_id, form_url, context)

    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show what was done to the job, alive and dead."""
        types = ContentType.objects.get_for_models(Job, DeadJob).values()
        entries = LogEntry.objects.filter(
            object_id=str(read_id(unquote(object_id))), content_type__in=types
        )
        paginator = Paginator(
            entries.select_related("user").order_by("action_time"), HISTORY
        )
        page = paginator.get_page(request.GET.get(PAGE_VAR, 1))
        context = {
            "action_list": page,
            "page_range": paginator.get_elided_page_range(page.number),
            "pagination_required": paginator.count > HISTORY,
            **(extra_context or {}),
        }
        return super().history_view(request, object_id, context)

    def act_on_list(
        self, request: HttpRequest, rows: QuerySet[Any], action: Action
    ) -> HttpResponse | None:
        """Do something to the chosen rows, or show the page that asks first."""
        across = _is_across(request)
        if across and action.statuses is not None:
            rows = rows.filter(status__in=action.statuses)
        is_confirmed = "confirmed" in request.POST
        form = action.form(request.POST if is_confirmed else None)
        has_to_ask = action.asks or across
        if has_to_ask and not (is_confirmed and form.is_valid()):
            return self._ask(request, action, form, rows=rows)
        self._apply(request, rows, action, getattr(form, "cleaned_data", {}))
        return None

    def act_on_one(
        self, request: HttpRequest, object_id: str, action: Action
    ) -> HttpResponse:
        """Do something to one job, by POST, or show the page that asks first."""
        page = self.make_url(f"{self.opts.model_name}_change", unquote(object_id))
        record = self.get_object(request, unquote(object_id))
        if not self._may(request, action):
            raise PermissionDenied
        if record is None:
            # Its page knows whether it has moved.
            return HttpResponseRedirect(page)
        is_confirmed = request.method == "POST" and "confirmed" in request.POST
        form = action.form(request.POST if is_confirmed else None)
        rows = self.get_queryset(request).filter(pk=record.pk)
        if not is_confirmed or not form.is_valid():
            return self._ask(request, action, form, rows=rows, record=record)
        counts = self._apply(request, rows, action, form.cleaned_data)
        if counts["deleted"]:
            page = self.make_url(f"{self.opts.model_name}_changelist")
        return HttpResponseRedirect(self._keep_filters(request, page))

    def _list_filled(self, record: Any, fields: Any) -> list[Any]:
        names = [(field, getattr(field, "__name__", field)) for field in fields]
        return [
            field
            for field, name in names
            if name == "payload"
            or not _is_empty(getattr(record, self.sources.get(name, name), True))
        ]

    def _make_view(self, action: Action) -> Any:
        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            return self.act_on_one(request, object_id, action)

        return view

    def _may(self, request: HttpRequest, action: Action) -> bool:
        may_act = getattr(self, f"has_{action.name}_permission")
        return self.has_view_permission(request) and bool(may_act(request))

    def _list_buttons(
        self, request: HttpRequest, record: Any
    ) -> Iterator[dict[str, Any]]:
        for action in self.record_actions:
            is_fit = action.statuses is None or record.status in action.statuses
            if is_fit and self._may(request, action):
                name = f"{self.opts.model_name}_{action.name}"
                url = self._keep_filters(request, self.make_url(name, record.pk))
                yield {"label": action.label, "url": url, "asks": action.asks}

    def _show_attempts(self, record: JobRecord) -> list[dict[str, Any]]:
        rows = Attempt.objects.filter(job_id=record.pk).order_by("-lease_token")
        return [self._show_attempt(attempt) for attempt in rows[:SHOWN_ATTEMPTS]]

    def _show_attempt(self, attempt: Attempt) -> dict[str, Any]:
        taken = None
        if attempt.started_at is not None:
            taken = display.describe_duration(attempt.finished_at - attempt.started_at)
        error = ": ".join(filter(None, [attempt.exception_class, attempt.message]))
        return {
            "number": attempt.number,
            "outcome": display.show_badge(
                attempt.outcome, attempt.get_outcome_display()
            ),
            "finished": display.show_moment(attempt.finished_at),
            "taken": taken,
            "worker_url": attempt.worker_id
            and self.make_url("workerheartbeat_change", attempt.worker_id),
            "worker": attempt.worker_id,
            "error": display.show_text(error) if error else "",
            "traceback": attempt.traceback and display.show_block(attempt.traceback),
        }

    def _ask(
        self,
        request: HttpRequest,
        action: Action,
        form: Any,
        *,
        rows: QuerySet[Any],
        record: JobRecord | None = None,
    ) -> HttpResponse:
        """Show what will be done to which jobs, with the form if there is one."""
        count = count_capped(rows)
        sample = list(rows.order_by("-pk").only(*self.acted_on)[:SAMPLE])
        page = f"{self.opts.model_name}_change"
        back = request.get_full_path()
        if record is not None:
            back = self._keep_filters(request, self.make_url(page, record.pk))
        context = {
            **self.admin_site.each_context(request),
            "title": action.title,
            "subtitle": None,
            "media": self.media + form.media,
            "opts": self.opts,
            "module_name": capfirst(str(self.opts.verbose_name_plural)),
            "action": action,
            "form": form,
            "count": str(count),
            "count_number": int(count),
            "sample": [(self.make_url(page, each.pk), str(each)) for each in sample],
            "unnamed": count - len(sample),
            "record": record,
            "back": back,
            "hidden": self._list_hidden(request, action, record),
            "queues": list_queues() if action.name == "move" else [],
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/jobqueue/ask.html", context)

    def _list_hidden(
        self, request: HttpRequest, action: Action, record: JobRecord | None
    ) -> list[tuple[str, str]]:
        """Return what the list's form sent, for the page that asks to send it again."""
        if record is not None:
            return []
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if across := _is_across(request):
            # Which rows were on the page does not matter then.
            chosen = chosen[:1]
        return [
            ("action", action.list_name),
            ("select_across", str(int(across))),
            *((ACTION_CHECKBOX_NAME, id) for id in chosen),
        ]

    def _apply(
        self,
        request: HttpRequest,
        rows: QuerySet[Any],
        action: Action,
        wishes: dict[str, Any],
    ) -> Counter[str]:
        """Act in batches, log each, and say what it came to."""
        counts: Counter[str] = Counter()
        holders: list[tuple[DeadJob, Job]] = []
        started = time.monotonic()
        for batch in self._read_batches(rows):
            effects = action.apply(batch, wishes)
            self._log(request, effects)
            counts += effects.counts
            holders += effects.holders[: NAMED - len(holders)]
            if len(batch) == BATCH and time.monotonic() - started > BUDGET:
                text = _(
                    "This took long: the jobs so far are done, the others are as they "
                    "were. Repeat the action to go on."
                )
                self.message_user(request, text, messages.WARNING)
                break
        for name, count in counts.items():
            level, text = REPORTS[name]
            self.message_user(request, text % {"count": count}, level)
        self._name_holders(request, holders)
        return counts

    def _read_batches(self, rows: QuerySet[Any]) -> Iterator[list[Any]]:
        """Yield the rows by id, without those that come meanwhile."""
        rows = rows.only(*self.acted_on)
        newest = rows.order_by("-pk").first()
        if newest is None:
            return
        ordered = rows.filter(pk__lte=newest.pk).order_by("pk")
        batch = list(ordered[:BATCH])
        while batch:
            last = batch[-1].pk
            yield batch
            batch = list(ordered.filter(pk__gt=last)[:BATCH])

    def _log(self, request: HttpRequest, effects: Effects) -> None:
        user_id = request.user.pk
        entries = [(CHANGE, text, rows) for text, rows in effects.changed.items()]
        entries.append((DELETION, "", effects.deleted))
        for flag, text, rows in entries:
            if rows:
                LogEntry.objects.log_actions(user_id, rows, flag, text)  # type: ignore[arg-type]

    def _name_holders(
        self, request: HttpRequest, holders: list[tuple[DeadJob, Job]]
    ) -> None:
        for dead_job, holder in holders:
            text = format_html(
                _("The key {} of {} is in use by {}."),
                display.show_text(dead_job.unique_key or ""),
                display.show_text(dead_job.job_type),
                display.link(self.make_url("job_change", holder.pk), holder.pk),
            )
            self.message_user(request, text, messages.WARNING)

    def _find_moved(self, object_id: str) -> str | None:
        id = read_id(unquote(object_id))
        other = self.other_model
        if id is None or not other._default_manager.filter(pk=id).exists():
            return None
        return self.make_url(f"{other._meta.model_name}_change", id)

    def _keep_filters(self, request: HttpRequest, url: str) -> str:
        context: dict[str, Any] = {
            "preserved_filters": self.get_preserved_filters(request),
            "opts": self.opts,
        }
        return add_preserved_filters(context, url)


def describe_all_attempts(record: JobRecord) -> str:
    """Return the attempts made, of how many, and what did not count among them."""
    extra = [
        text % {"count": count}
        for count, text in (
            (record.crashes, _("%(count)d crashed")),
            (record.lost, _("%(count)d lost")),
            (record.given_back, _("%(count)d given back")),
        )
        if count
    ]
    return ", ".join([describe_attempts(record), *extra])


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def _is_across(request: HttpRequest) -> bool:
    """Read as Django's form of the actions does, or the two could disagree."""
    return bool(forms.BooleanField().to_python(request.POST.get("select_across")))
