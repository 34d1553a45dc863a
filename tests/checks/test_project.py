"""E013 and W014: models and commands of other apps; and when checks run."""

from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import BaseCommand, call_command
from django.core.management.base import SystemCheckError
from django.db import models
from django.test import override_settings
from django.test.utils import isolate_apps

from django_jobqueue import DeadJob, Job
from django_jobqueue.checks import (
    check_command,
    check_foreign_keys,
    project,
)
from django_jobqueue.management.commands.runworker import Command as RunWorker
from tests.checks.messages import as_tuples


def test_the_test_project_passes_all_checks() -> None:
    found = run_checks(tags=["jobqueue"])
    assert [message for message in found if not message.is_silenced()] == []


@pytest.mark.django_db(databases=["default", "business"])
@pytest.mark.parametrize("flags", [{}, {"tags": ["jobqueue"]}])
def test_manage_py_check_fails_on_an_error(flags: dict[str, Any]) -> None:
    with (
        override_settings(JOBQUEUE={"CONCURENCY": 1}),
        pytest.raises(SystemCheckError, match=r"jobqueue\.E001"),
    ):
        call_command("check", **flags)


def test_foreign_keys_to_our_tables_are_e013(monkeypatch: pytest.MonkeyPatch) -> None:
    with isolate_apps("tests.testapp") as isolated:

        class Invoice(models.Model):  # noqa: DJ008
            job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+")
            dead = models.OneToOneField(
                DeadJob,
                on_delete=models.SET_NULL,
                null=True,
                db_constraint=False,
                related_name="+",
            )
            job_id_only = models.UUIDField(null=True)

            class Meta:
                app_label = "testapp"

        class Group(models.Model):  # noqa: DJ008
            jobs = models.ManyToManyField(Job, related_name="+")
            invoices = models.ManyToManyField(Invoice, related_name="+")

            class Meta:
                app_label = "testapp"

    monkeypatch.setattr(project, "apps", isolated)
    found = check_foreign_keys()
    assert {message.id for message in found} == {"jobqueue.E013"}
    assert sorted(message.msg.partition(" is ")[0] for message in found) == [
        "testapp.Group_jobs.job",
        "testapp.Invoice.dead",
        "testapp.Invoice.job",
    ]
    assert "Store the id: models.UUIDField" in str(found[0].hint)


class _Channels(BaseCommand):
    """The `runworker` of another package."""


class _Extended(RunWorker):
    """A project's `runworker` that extends ours."""


def test_runworker_of_another_app_is_w014(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {"runworker": "channels"}
    monkeypatch.setattr(project, "get_commands", lambda: commands)
    monkeypatch.setattr(project, "load_command_class", lambda *_: _Channels())
    assert as_tuples(check_command()) == [
        (
            "jobqueue.W014",
            "manage.py runworker is a command of 'channels', not of django_jobqueue.",
            "Put 'django_jobqueue' above 'channels' in INSTALLED_APPS, or start "
            "workers with: manage.py jobqueue worker",
        )
    ]


@pytest.mark.parametrize("is_loaded", [False, True])
def test_runworker_that_extends_ours_is_fine(
    is_loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = {"runworker": _Extended() if is_loaded else "shop"}
    monkeypatch.setattr(project, "get_commands", lambda: commands)
    monkeypatch.setattr(project, "load_command_class", lambda *_: _Extended())
    assert check_command() == []


def test_a_child_does_not_repeat_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(JOBQUEUE={"CONCURENCY": 1}):
        with pytest.raises(SystemCheckError):
            RunWorker().check(tags=["jobqueue"])
        monkeypatch.setenv("JOBQUEUE_CHILD", "{}")
        RunWorker().check(tags=["jobqueue"])
