"""Columns and fields that show one value of a row.

The pages list them in `list_display` and `fieldsets`; display.py formats the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.db.models import Model
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import Attempt, DeadJob, Job, WorkerHeartbeat
from ..models.record import JobRecord
from .display import (
    add_small,
    show_age,
    show_badge,
    show_block,
    show_json,
    show_moment,
    show_progress,
    show_tags,
    show_text,
)

Column = Callable[[Any], SafeString | str]


def make_column(model: type[Model], name: str, show: Callable[[Any], Any]) -> Column:
    """Return a column that shows one field of a row, under the field's own name."""

    @admin.display(description=model._meta.get_field(name).verbose_name)  # type: ignore[union-attr]
    def column(row: Any) -> Any:
        return show(getattr(row, name))

    # The admin's CSS class is field-<name> or column-<name>.
    column.__name__ = name
    return column


def make_badge(model: type[Model], name: str) -> Column:
    """Return a column that shows a field with choices as a badge."""

    @admin.display(description=model._meta.get_field(name).verbose_name)  # type: ignore[union-attr]
    def column(row: Any) -> SafeString:
        return show_badge(getattr(row, name), getattr(row, f"get_{name}_display")())

    column.__name__ = name
    return column


def list_callables(fieldsets: Any) -> list[Any]:
    """Return the columns used in fieldsets; `readonly_fields` must list them."""
    return [field for field in flatten_fieldsets(fieldsets) if callable(field)]


def add_error(badge: SafeString, record: JobRecord) -> SafeString:
    """Return a badge with the start of the job's error below it, if it has one."""
    if not record.error:
        return badge
    return add_small(badge, show_text(record.error, limit=120))


def _show_id(id: Any) -> str:
    return show_text(None if id is None else str(id))


def _show_short(text: str) -> str:
    return show_text(text, limit=80)


# Columns of both Job and DeadJob.
JOB_TYPE = make_column(Job, "job_type", show_text)
QUEUE = make_column(Job, "queue", show_text)
UNIQUE_KEY = make_column(Job, "unique_key", show_text)
CONCURRENCY_KEY = make_column(Job, "concurrency_key", show_text)
PAYLOAD = make_column(Job, "payload", show_json)
ARGS = make_column(Job, "args", show_json)
PROGRESS = make_column(Job, "progress", show_progress)
ERROR = make_column(Job, "error", show_block)
TAGS = make_column(Job, "tags", show_tags)
META = make_column(Job, "meta", show_json)
BACKOFF = make_column(Job, "backoff", show_json)
CREATED = make_column(Job, "created_at", show_moment)
RUN_AT = make_column(Job, "run_at", show_moment)
CLAIMED = make_column(Job, "claimed_at", show_moment)
STARTED = make_column(Job, "started_at", show_moment)
EXPIRES = make_column(Job, "expires_at", show_moment)

STATUS = make_badge(Job, "status")
RESULT = make_column(Job, "result", show_json)
FINISHED = make_column(Job, "finished_at", show_moment)
PRUNE_AT = make_column(Job, "prune_at", show_moment)
WORKER_ID = make_column(Job, "worker_id", _show_id)
FINISHED_BY = make_column(Job, "finished_by", _show_id)
CANCEL_REQUESTED = make_column(Job, "cancel_requested_at", show_moment)

REASON = make_badge(DeadJob, "reason")
DIED = make_column(DeadJob, "died_at", show_moment)
DIED_AGE = make_column(DeadJob, "died_at", show_age)

OUTCOME = make_badge(Attempt, "outcome")
EXCEPTION = make_column(Attempt, "exception_class", show_text)
MESSAGE = make_column(Attempt, "message", show_block)
SHORT_MESSAGE = make_column(Attempt, "message", _show_short)
TRACEBACK = make_column(Attempt, "traceback", show_block)
ATTEMPT_STARTED = make_column(Attempt, "started_at", show_moment)
ATTEMPT_FINISHED = make_column(Attempt, "finished_at", show_moment)
ATTEMPT_AGE = make_column(Attempt, "finished_at", show_age)

WORKER_NAME = make_column(WorkerHeartbeat, "name", show_text)
HOST = make_column(WorkerHeartbeat, "host", show_text)
VERSION = make_column(WorkerHeartbeat, "version", show_text)
WORKER_STARTED = make_column(WorkerHeartbeat, "started_at", show_moment)
BEATING_SINCE = make_column(WorkerHeartbeat, "beating_since", show_moment)
LAST_SEEN = make_column(WorkerHeartbeat, "last_seen_at", show_moment)
LAST_SEEN_AGE = make_column(WorkerHeartbeat, "last_seen_at", show_age)

# A fieldset that live and dead jobs share.
PLACE_IN_QUEUE = (
    _("Place in the queue"),
    {"fields": (QUEUE, "priority", UNIQUE_KEY, CONCURRENCY_KEY, TAGS, META)},
)
