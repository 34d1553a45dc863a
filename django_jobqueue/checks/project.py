"""Checks of other apps in the project that interfere with this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.management import BaseCommand, get_commands, load_command_class
from django.db.models import ForeignKey


@register("jobqueue")
def check_foreign_keys(**kwargs: Any) -> list[CheckMessage]:
    """E013: a foreign key to a table of this app."""
    return [
        Error(
            f"{field.model._meta.label}.{field.name} is a foreign key to "
            f"{field.remote_field.model.__name__}, whose rows workers delete.",
            hint=(
                "Store the id: models.UUIDField(null=True), and query for the job when "
                "you need it. A foreign key would slow down or prevent the end of "
                "every job."
            ),
            obj=field.model,
            id="jobqueue.E013",
        )
        for field in _find_foreign_keys()
    ]


def _find_foreign_keys() -> Iterator[Any]:
    # Including those that a ManyToManyField creates.
    for model in apps.get_models(include_auto_created=True):
        if model._meta.app_label == "jobqueue":
            continue
        for field in model._meta.local_fields:
            if isinstance(field, ForeignKey) and _is_table_of_ours(field):
                yield field


def _is_table_of_ours(field: Any) -> bool:
    target = field.remote_field.model
    # A string: the model it names is missing, which Django reports itself.
    return not isinstance(target, str) and target._meta.app_label == "jobqueue"


@register("jobqueue")
def check_command(**kwargs: Any) -> list[CheckMessage]:
    """W014: another app's `runworker` is found before ours."""
    owner = get_commands().get("runworker", "django_jobqueue")
    if owner == "django_jobqueue" or _is_ours(owner):
        return []
    name = owner if isinstance(owner, str) else type(owner).__module__
    return [
        Warning(
            f"manage.py runworker is a command of {name!r}, not of django_jobqueue.",
            hint=(
                f"Put 'django_jobqueue' above {name!r} in INSTALLED_APPS, or start "
                f"workers with: manage.py jobqueue worker"
            ),
            id="jobqueue.W014",
        )
    ]


def _is_ours(owner: Any) -> bool:
    """Say whether a project's own command inherits from ours."""
    # Imported here: web processes import the checks and need no worker.
    from ..management.commands.runworker import Command as RunWorker

    if isinstance(owner, BaseCommand):
        return isinstance(owner, RunWorker)
    try:
        return isinstance(load_command_class(owner, "runworker"), RunWorker)
    except ImportError:
        return False
