"""Suggestions for error messages: the name that was probably meant.

Every "did you mean" of the package comes from here: settings, options of jobs,
handlers and tasks, arguments, names of job types.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Options of Celery, RQ and django.tasks → ours; the first that is known is suggested.
FOREIGN_OPTIONS = {
    "autoretry_for": ("retry_on",),
    "bind": ("takes_context",),
    "countdown": ("delay", "run_after"),
    "default_retry_delay": ("backoff",),
    "delay": ("run_after",),
    "eta": ("run_at", "run_after"),
    "expires": ("expires_at",),
    "job_timeout": ("timeout",),
    "max_retries": ("max_attempts",),
    "queue": ("queue_name",),
    "queue_name": ("queue",),
    "retry_backoff": ("backoff",),
    "run_after": ("run_at",),
    "run_at": ("run_after",),
    "soft_time_limit": ("timeout",),
    "time_limit": ("timeout",),
}
_NOTES = {
    "backoff": "takes seconds, a list or exponential()",
    "delay": "takes seconds or a timedelta",
    "expires_at": "takes an aware datetime",
    "max_attempts": "counts the first attempt too",
    "queue": "names the queue",
    "queue_name": "names the queue",
    "retry_on": "takes an exception class or a tuple of them",
    "run_after": "takes an aware datetime or a timedelta",
    "run_at": "takes an aware datetime (delay=… takes seconds or a timedelta)",
    "takes_context": "passes a JobContext as the first argument, named `context`",
    "timeout": "takes seconds or a timedelta",
}


def find_similar(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that is spelt most like this one, or None."""
    near = get_close_matches(str(name), list(known), n=1)
    return near[0] if near else None


def suggest(name: object, known: Iterable[str], *, otherwise: str = "") -> str:
    """Return "Did you mean 'x'?", else the second text."""
    similar = find_similar(name, known)
    return f"Did you mean {similar!r}?" if similar else otherwise


def suggest_option(name: str, known: Iterable[str]) -> str:
    """Return a sentence about an unknown option: what to write instead of it.

    `known` are the options that may be given at this place.
    """
    known = list(known)
    if found := find_equivalent(name, known):
        value = "True" if found == "takes_context" else "…"
        return f"Write {found}={value}, which {_NOTES[found]}."
    return suggest(name, known, otherwise=f"Known: {', '.join(known)}.")


def find_equivalent(name: str, known: Iterable[str]) -> str | None:
    """Return our option for one of another job system, or None."""
    known = list(known)
    return next((each for each in FOREIGN_OPTIONS.get(name, ()) if each in known), None)
