"""Formatting of values for the pages: escaped, and readable without colour.

Every function accepts whatever the column can hold, not only what this package writes,
and returns text or safe HTML without inline styles or scripts.
"""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..states import AttemptOutcome, DeadReason, JobStatus, WorkerState

EMPTY = "–"
# MAX_PAYLOAD_BYTES alone would allow a megabyte, too much for a page.
MAX_CHARACTERS = 100_000

STALE = "stale"
# The symbol and the CSS class (see admin.css) of each value that is shown as a badge.
_BADGES: dict[str, tuple[str, str]] = {
    JobStatus.SCHEDULED: ("◷", "wait"),
    JobStatus.PENDING: ("…", "wait"),
    JobStatus.RUNNING: ("▶", "busy"),
    JobStatus.BLOCKED: ("■", "warn"),
    JobStatus.SUCCEEDED: ("✓", "good"),
    JobStatus.CANCELLED: ("⊘", "quiet"),
    DeadReason.EXCEPTION: ("✗", "bad"),
    DeadReason.TIMEOUT: ("✗", "bad"),
    DeadReason.CRASHED: ("✗", "bad"),
    DeadReason.LOST: ("✗", "bad"),
    DeadReason.UNKNOWN_HANDLER: ("?", "bad"),
    DeadReason.DISCARDED: ("✗", "bad"),
    AttemptOutcome.FAILED: ("✗", "bad"),
    AttemptOutcome.SNOOZED: ("◷", "wait"),
    AttemptOutcome.DEFERRED: ("◷", "wait"),
    AttemptOutcome.RELEASED: ("↩", "quiet"),
    WorkerState.STOPPING: ("■", "warn"),
    STALE: ("!", "bad"),
}


def show_badge(value: str, label: object) -> SafeString:
    """Return a label with its symbol."""
    mark, tone = _BADGES.get(value, ("?", "quiet"))
    return format_html(
        '<span class="jobqueue-badge jobqueue-{}">'
        '<span aria-hidden="true">{}</span> {}</span>',
        tone,
        mark,
        escape_invisible(str(label)),
    )


def describe_duration(duration: timedelta) -> str:
    """Return a duration in its one or two largest units, never negative."""
    seconds = max(0.0, duration.total_seconds())
    if seconds < 1:
        return _("%(count)d ms") % {"count": round(seconds * 1000)}
    if seconds < 10:
        return _("%(count).1f s") % {"count": int(seconds * 10) / 10}
    whole = int(seconds)
    for size, smaller, text in (
        (86400, 3600, _("%(large)d d %(small)d h")),
        (3600, 60, _("%(large)d h %(small)d min")),
        (60, 1, _("%(large)d min %(small)d s")),
    ):
        if whole >= size:
            large, rest = divmod(whole, size)
            return text % {"large": large, "small": rest // smaller}
    return _("%(count)d s") % {"count": whole}


def describe_age(moment: datetime) -> str:
    """Return how long ago a moment was, or how far ahead it is."""
    age = timezone.now() - moment
    if age < timedelta():
        return _("in %(duration)s") % {"duration": describe_duration(-age)}
    return _("%(duration)s ago") % {"duration": describe_duration(age)}


def show_moment(moment: datetime | None) -> SafeString | str:
    """Return a moment to the second, with its age."""
    if moment is None:
        return EMPTY
    return format_html(
        '<time datetime="{}">{}</time> <span class="jobqueue-age">({})</span>',
        moment.isoformat(),
        _describe_moment(moment),
        describe_age(moment),
    )


def show_age(moment: datetime | None) -> SafeString | str:
    """Return the age of a moment, for a narrow column."""
    if moment is None:
        return EMPTY
    return format_html(
        '<time class="jobqueue-short" datetime="{}" title="{}">{}</time>',
        moment.isoformat(),
        _describe_moment(moment),
        describe_age(moment),
    )


def show_waiting(since: datetime | None) -> SafeString | str:
    """Return for how long something has waited, for a narrow column."""
    if since is None:
        return EMPTY
    return format_html(
        '<time class="jobqueue-short" datetime="{}" title="{}">{}</time>',
        since.isoformat(),
        _describe_moment(since),
        describe_duration(timezone.now() - since),
    )


def show_text(text: str | None, *, limit: int = MAX_CHARACTERS) -> str:
    """Return one line of text; the template escapes it."""
    return cut(escape_invisible(text or ""), limit) or EMPTY


def show_block(text: str) -> SafeString | str:
    """Return text of several lines, such as a traceback."""
    if not text:
        return EMPTY
    shown = cut(escape_invisible(text), MAX_CHARACTERS)
    return format_html('<pre class="jobqueue-block" tabindex="0">{}</pre>', shown)


def show_json(value: Any) -> SafeString | str:
    """Return JSON with one entry per line."""
    if value is None or value in ({}, []):
        return EMPTY
    return show_block(dump_json(value))


def show_tags(tags: Any) -> SafeString | str:
    """Return a list of texts as tags; any other value as JSON."""
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return show_json(tags)
    return (
        format_html_join(
            " ",
            '<span class="jobqueue-tag">{}</span>',
            ((escape_invisible(tag),) for tag in tags),
        )
        or EMPTY
    )


def show_progress(progress: Any) -> SafeString | str:
    """Return {"fraction", "note"} as a bar; any other value as JSON."""
    if not isinstance(progress, dict) or not _is_fraction(progress.get("fraction")):
        return show_json(progress)
    fraction = float(progress["fraction"])
    percent = f"{fraction:.0%}"
    return format_html(
        '<progress max="1" value="{}" aria-label="{}">{}</progress> {} {}',
        f"{fraction:.4f}",
        _("progress"),
        percent,
        percent,
        escape_invisible(str(progress.get("note") or "")),
    )


def describe_bytes(count: int) -> str:
    """Return a size of memory in MiB."""
    return _("%(count)d MiB") % {"count": count // (1 << 20)} if count else EMPTY


def dump_json(value: Any) -> str:
    """Return JSON as indented text; deep nesting is returned on one line."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        # Only the indenting encoder is written in Python and recurses there.
        return json.dumps(value, ensure_ascii=False)


def escape_invisible(text: str) -> str:
    """Replace characters that are invisible or reorder a line by escapes.

    Control characters, bidirectional marks, zero-width characters, and lone surrogates,
    which a response cannot encode. Line breaks and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_escape_character, text))


def cut(text: str, limit: int) -> str:
    """Return text of at most `limit` characters, with a note if it was longer."""
    if len(text) <= limit:
        return text
    if limit < 1000:
        return text[: limit - 1] + "…"
    note = _("… cut here: %(count)d characters in all.") % {"count": len(text)}
    return f"{text[:limit]}\n{note}"


def link(url: str, text: object) -> SafeString:
    """Return a link."""
    return format_html('<a href="{}">{}</a>', url, text)


def add_small(shown: SafeString, text: object) -> SafeString:
    """Return HTML with a line of small text below it."""
    return format_html('{} <span class="jobqueue-small">{}</span>', shown, text)


def keep_together(text: str) -> SafeString:
    """Return text that is not wrapped in a narrow column."""
    return format_html('<span class="jobqueue-short">{}</span>', text)


def _describe_moment(moment: datetime) -> str:
    try:
        return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"
    except (OverflowError, ValueError):
        # The local time would lie outside the years 1 to 9999.
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S %Z}"


def _is_fraction(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= 1


def _escape_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character)[0] != "C":
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
