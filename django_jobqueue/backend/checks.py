"""The checks of `manage.py check` for an entry of TASKS that uses our backend."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error

from ..exceptions import InvalidOption
from ..joboptions import read_job_options
from ..options import check_queue_name
from ..suggestions import suggest_option
from .task import ROW_OPTIONS

# The options that can be the same for every task. A key or an expiry cannot.
KNOWN = tuple(name for name in ROW_OPTIONS if name not in {"unique_key", "expires_at"})


def check_backend(backend: Any) -> list[CheckMessage]:
    """Check the app (E020), OPTIONS (E021) and QUEUES (E022)."""
    found: list[CheckMessage] = []
    where = f"TASKS[{backend.alias!r}]"
    if not apps.is_installed("django_jobqueue"):
        found.append(
            Error(
                f"{where} uses JobQueueBackend, but INSTALLED_APPS lacks its app.",
                hint="Add 'django_jobqueue' to INSTALLED_APPS and run migrate.",
                id="jobqueue.E020",
            )
        )
    found += _check_options(backend, where)
    found += _check_queues(backend, where)
    return found


def _check_options(backend: Any, where: str) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for name, value in backend.options.items():
        if name not in KNOWN:
            hint = suggest_option(name, KNOWN)
            text = f"{where}['OPTIONS'] has no option {name!r}."
            found.append(Error(text, hint=hint, id="jobqueue.E021"))
            continue
        try:
            read_job_options({name: value})
        except InvalidOption as error:
            text = f"{where}['OPTIONS'][{name!r}]: {error}"
            hint = "It is the default for every task without this option."
            found.append(Error(text, hint=hint, id="jobqueue.E021"))
    return found


def _check_queues(backend: Any, where: str) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for name in sorted(backend.queues, key=str):
        try:
            check_queue_name(name)
        except InvalidOption as error:
            text = f"{where}['QUEUES']: {error}"
            hint = "Rename the queue, here and in the tasks that name it."
            found.append(Error(text, hint=hint, id="jobqueue.E022"))
    return found
