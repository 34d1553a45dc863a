"""RecordAdmin: what the pages of jobs and of dead jobs have in common.

Actions from the list and from the page of one job take the same steps: permission,
confirmation page (for a form, or for all rows that match), batches, LogEntry, messages.
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
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ..models import Attempt, DeadJob, Job
from ..models.record import JobRecord
from . import display
from .actions import MAX_NAMED, REPORTS, Action, Effects
from .filters import list_queues
from .outlook import describe_attempts
from .paging import count_capped
from .readonly import NamedRow, ReadOnlyAdmin
from .search import HELP, match_record, read_id

BATCH_SIZE = 500
# After this time an action ends with the current batch and shows a message.
MAX_ACTION_SECONDS = 20.0
# Jobs named on a confirmation page, attempts shown on the page of a job.
MAX_SAMPLE = 10
MAX_ATTEMPTS_SHOWN = 50
HISTORY_PAGE_SIZE = 100


class RecordAdmin(ReadOnlyAdmin):
    change_form_template = "admin/jobqueue/record_change_form.html"
    search_fields: ClassVar[Any] = ("id", "job_type", "queue", "unique_key")
    search_help_text = HELP
    record_actions: ClassVar[tuple[Action, ...]] = ()
    # The columns that actions and names of rows need; not the payload.
    acted_on: ClassVar[tuple[str, ...]] = ("job_type", "queue")
    # The column behind each field of the page that has another name.
    sources: ClassVar[dict[str, str]] = {
        "worker": "worker_id",
        "finisher": "finished_by",
        "same_error": "fingerprint",
    }
    # The other table that may hold a job of this id.
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

    def match_word(self, word: str) -> Q:
        return match_record(word)

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
        """Leave out fields that are empty: most jobs fill few of them."""
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
        if record is None and (moved := self._find_moved(request, object_id)):
            return HttpResponseRedirect(moved)
        if record is None or not self.has_view_permission(request):
            return super().change_view(request, object_id, form_url, extra_context)
        may_see_attempts = request.user.has_perm("jobqueue.view_attempt")
        context = {
            "record_buttons": list(self._list_buttons(request, record)),
            "may_see_attempts": may_see_attempts,
            "attempts": self._show_attempts(request, record)
            if may_see_attempts
            else [],
            "attempts_url": self.make_url("attempt_changelist", job_id=record.pk),
            "attempts_shown": MAX_ATTEMPTS_SHOWN,
            **(extra_context or {}),
        }
        return super().change_view(request, object_id, form_url, context)

    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the actions on the job, as a live and as a dead job."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        types = ContentType.objects.get_for_models(Job, DeadJob).values()
        entries = LogEntry.objects.filter(
            object_id=str(read_id(unquote(object_id))), content_type__in=types
        )
        paginator = Paginator(
            entries.select_related("user").order_by("action_time"), HISTORY_PAGE_SIZE
        )
        page = paginator.get_page(request.GET.get(PAGE_VAR, 1))
        context = {
            "action_list": page,
            "page_range": paginator.get_elided_page_range(page.number),
            "pagination_required": paginator.count > HISTORY_PAGE_SIZE,
            **(extra_context or {}),
        }
        return super().history_view(request, object_id, context)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *args: Any, **options: Any
    ) -> HttpResponse | None:
        """Ignore chosen rows whose id is not a UUID: Django would fail on them."""
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        ids = [text for text in chosen if read_id(text) is not None]
        if ids != chosen:
            values = request.POST.copy()
            values.setlist(ACTION_CHECKBOX_NAME, ids)
            request.POST = values  # type: ignore[assignment]
        return super().response_action(request, queryset, *args, **options)

    def act_on_list(
        self, request: HttpRequest, rows: QuerySet[Any], action: Action
    ) -> HttpResponse | None:
        """Apply an action to the chosen rows, or show the confirmation page."""
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
        """Apply an action to one job by POST, or show the confirmation page."""
        if not self._may(request, action):
            raise PermissionDenied
        page = self.make_url(f"{self.opts.model_name}_change", unquote(object_id))
        record = self.get_object(request, unquote(object_id))
        if record is None:
            # The job's page redirects to the other table if the job is there.
            return HttpResponseRedirect(page)
        is_confirmed = request.method == "POST" and "confirmed" in request.POST
        form = action.form(request.POST if is_confirmed else None)
        rows = self.get_queryset(request).filter(pk=record.pk)
        if not is_confirmed or not form.is_valid():
            return self._ask(request, action, form, rows=rows, record=record)
        counts = self._apply(request, rows, action, form.cleaned_data)
        is_out_of_sight = counts["requeued"] and not self._may_view_other(request)
        if counts["deleted"] or is_out_of_sight:
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

    def _show_attempts(
        self, request: HttpRequest, record: JobRecord
    ) -> list[dict[str, Any]]:
        rows = Attempt.objects.filter(job_id=record.pk).order_by("-lease_token")
        is_linked = request.user.has_perm("jobqueue.view_workerheartbeat")
        return [
            self._show_attempt(attempt, is_linked=is_linked)
            for attempt in rows[:MAX_ATTEMPTS_SHOWN]
        ]

    def _show_attempt(self, attempt: Attempt, *, is_linked: bool) -> dict[str, Any]:
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
            "worker_url": self.make_url("workerheartbeat_change", attempt.worker_id)
            if is_linked and attempt.worker_id
            else None,
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
        """Show the confirmation page: the action, some of the jobs, and the form."""
        count = count_capped(rows)
        sample = list(rows.order_by("-pk").only(*self.acted_on)[:MAX_SAMPLE])
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
            "sample": [
                (self.make_url(page, each.pk), NamedRow(each)) for each in sample
            ],
            "unnamed": count - len(sample),
            "record": record and NamedRow(record),
            "back": back,
            "hidden": self._list_hidden(request, action, record),
            "queues": list_queues() if action.name == "move" else [],
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/jobqueue/ask.html", context)

    def _list_hidden(
        self, request: HttpRequest, action: Action, record: JobRecord | None
    ) -> list[tuple[str, str]]:
        """Return the fields of the list's form; the confirmation page repeats them."""
        if record is not None:
            return []
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if across := _is_across(request):
            # Django needs one row; with select_across it does not matter which.
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
        values: dict[str, Any],
    ) -> Counter[str]:
        """Apply the action in batches, log each batch, and add the messages."""
        counts: Counter[str] = Counter()
        holders: list[tuple[DeadJob, Job]] = []
        created: list[Job] = []
        errors: list[str] = []
        started = time.monotonic()
        for batch in self._read_batches(rows):
            effects = action.apply(batch, values)
            self._log(request, effects)
            counts += effects.counts
            holders += effects.holders[: MAX_NAMED - len(holders)]
            created += effects.created[: MAX_NAMED - len(created)]
            errors += effects.errors[: MAX_NAMED - len(errors)]
            if (
                len(batch) == BATCH_SIZE
                and time.monotonic() - started > MAX_ACTION_SECONDS
            ):
                text = _(
                    "The time for one request is over: some jobs are done, the others "
                    "are unchanged. Repeat the action to continue."
                )
                self.message_user(request, text, messages.WARNING)
                break
        for name, count in counts.items():
            level, text = REPORTS[name]
            self.message_user(request, text % {"count": count}, level)
        self._name_holders(request, holders)
        self._name_created(request, created)
        for text in errors:
            self.message_user(request, display.escape_invisible(text), messages.ERROR)
        return counts

    def _read_batches(self, rows: QuerySet[Any]) -> Iterator[list[Any]]:
        """Yield the rows in batches by id, without rows inserted meanwhile."""
        rows = rows.only(*self.acted_on)
        newest = rows.order_by("-pk").first()
        if newest is None:
            return
        ordered = rows.filter(pk__lte=newest.pk).order_by("pk")
        batch = list(ordered[:BATCH_SIZE])
        while batch:
            last = batch[-1].pk
            yield batch
            batch = list(ordered.filter(pk__gt=last)[:BATCH_SIZE])

    def _log(self, request: HttpRequest, effects: Effects) -> None:
        user_id = request.user.pk
        entries = [(CHANGE, text, rows) for text, rows in effects.changed.items()]
        entries.append((DELETION, "", effects.deleted))
        for flag, text, rows in entries:
            if rows:
                named = [NamedRow(row) for row in rows]
                LogEntry.objects.log_actions(user_id, named, flag, text)  # type: ignore[arg-type]

    def _name_holders(
        self, request: HttpRequest, holders: list[tuple[DeadJob, Job]]
    ) -> None:
        if not self._may_view_other(request):
            return
        for dead_job, holder in holders:
            text = format_html(
                _("The key {} of {} is in use by {}."),
                display.show_text(dead_job.unique_key or ""),
                display.show_text(dead_job.job_type),
                display.link(self.make_url("job_change", holder.pk), holder.pk),
            )
            self.message_user(request, text, messages.WARNING)

    def _name_created(self, request: HttpRequest, jobs: list[Job]) -> None:
        for job in jobs:
            url = self.make_url("job_change", job.pk)
            text = format_html(_("New job: {}"), display.link(url, NamedRow(job)))
            self.message_user(request, text, messages.SUCCESS)

    def _find_moved(self, request: HttpRequest, object_id: str) -> str | None:
        """Return the page of this job in the other table, for those who may view it."""
        id = read_id(unquote(object_id))
        other = self.other_model
        if id is None or not self._may_view_other(request):
            return None
        if not other._default_manager.filter(pk=id).exists():
            return None
        return self.make_url(f"{other._meta.model_name}_change", id)

    def _may_view_other(self, request: HttpRequest) -> bool:
        name = self.other_model._meta.model_name
        return request.user.has_perm(f"jobqueue.view_{name}")

    def _keep_filters(self, request: HttpRequest, url: str) -> str:
        context: dict[str, Any] = {
            "preserved_filters": self.get_preserved_filters(request),
            "opts": self.opts,
        }
        return add_preserved_filters(context, url)


def describe_all_attempts(record: JobRecord) -> str:
    """Return the attempts with the numbers of crashes, losses and returns."""
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
    """Read the flag exactly as Django's action form does."""
    return bool(forms.BooleanField().to_python(request.POST.get("select_across")))
