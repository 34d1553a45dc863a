"""The system checks: what `manage.py check` says of settings and handlers."""

from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

from django_jobqueue import job, registry
from django_jobqueue.checks import check_handlers, check_options


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after each test what it registered."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "duplicates", [])


def told(found: list[CheckMessage]) -> list[tuple[str | None, str, str | None]]:
    return [(message.id, message.msg, message.hint) for message in found]


def test_tests_themselves_have_nothing_to_complain_about() -> None:
    assert run_checks(tags=["jobqueue"]) == []


def test_unknown_setting_is_e001() -> None:
    with override_settings(JOBQUEUE={"CONCURENCY": 1}):
        assert told(check_options()) == [
            (
                "jobqueue.E001",
                "JOBQUEUE has no key 'CONCURENCY'.",
                "Did you mean 'CONCURRENCY'?",
            )
        ]


def test_every_wrong_setting_is_an_e001_of_its_own() -> None:
    with override_settings(JOBQUEUE={"CONCURRENCY": 0, "BATCH_SIZE": "x", "Q": 1}):
        found = check_options()
    assert [message.id for message in found] == ["jobqueue.E001"] * 3


def test_wrong_variable_is_e001(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_CONCURRENCY", "many")
    [(code, message, _)] = told(check_options())
    assert code == "jobqueue.E001"
    assert message == (
        "The environment variable WORKER_CONCURRENCY must be a whole number from 1 to "
        "10000; it is 'many'."
    )


def test_contradiction_is_e001() -> None:
    with override_settings(JOBQUEUE={"HEARTBEAT_TTL": 10}):
        [(code, message, hint)] = told(check_options())
    assert code == "jobqueue.E001"
    assert message.startswith("HEARTBEAT_TTL must be at least three times")
    assert hint == "A worker that misses one beat must not be taken for dead."


def test_times_without_zones_are_e002() -> None:
    with override_settings(USE_TZ=False):
        assert told(check_options()) == [
            (
                "jobqueue.E002",
                "USE_TZ is False; django_jobqueue compares moments, not wall clocks.",
                "Set USE_TZ = True. TIME_ZONE still chooses what people see.",
            )
        ]


def test_unknown_database_is_e003() -> None:
    with override_settings(JOBQUEUE={"DATABASE": "jobs"}):
        assert told(check_options()) == [
            (
                "jobqueue.E003",
                "JOBQUEUE['DATABASE'] is 'jobs', which DATABASES lacks.",
                "DATABASES has 'default', 'business'.",
            )
        ]


def test_two_handlers_of_one_name_are_e010() -> None:
    @job("checks.twice")
    def first() -> None: ...

    @job("checks.twice")
    def second() -> None: ...

    place = f"{__name__}.test_two_handlers_of_one_name_are_e010.<locals>"
    assert told(check_handlers()) == [
        (
            "jobqueue.E010",
            f"Two handlers are named 'checks.twice': {place}.first and {place}.second.",
            "Rename one: @job('another.name').",
        )
    ]


def test_unknown_database_of_a_handler_is_e011() -> None:
    @job("checks.databases", databases=["default", "elsewhere"])
    def scattered() -> None: ...

    assert told(check_handlers()) == [
        (
            "jobqueue.E011",
            "The handler 'checks.databases' names the database 'elsewhere', which "
            "DATABASES lacks.",
            "Correct databases=… or DATABASES.",
        )
    ]


@pytest.mark.django_db(databases=["default", "business"])
@pytest.mark.parametrize("flags", [{}, {"tags": ["jobqueue"]}])
def test_manage_py_check_fails_on_an_error(flags: dict[str, Any]) -> None:
    with (
        override_settings(JOBQUEUE={"CONCURENCY": 1}),
        pytest.raises(SystemCheckError, match=r"jobqueue\.E001"),
    ):
        call_command("check", **flags)
