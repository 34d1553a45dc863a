"""E001 to E003: settings and environment variables."""

from typing import Any

import pytest
from django.test import override_settings

from django_jobqueue.checks import (
    check_options,
)
from tests.checks.messages import as_tuples


def test_unknown_setting_is_e001() -> None:
    with override_settings(JOBQUEUE={"CONCURENCY": 1}):
        assert as_tuples(check_options()) == [
            (
                "jobqueue.E001",
                "JOBQUEUE has no key 'CONCURENCY'.",
                "Did you mean 'CONCURRENCY'?",
            )
        ]


def test_every_wrong_setting_is_a_separate_e001() -> None:
    with override_settings(JOBQUEUE={"CONCURRENCY": 0, "BATCH_SIZE": "x", "Q": 1}):
        found = check_options()
    assert [message.id for message in found] == ["jobqueue.E001"] * 3


def test_wrong_variable_is_e001(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_CONCURRENCY", "many")
    [(code, message, _)] = as_tuples(check_options())
    assert code == "jobqueue.E001"
    assert message == (
        "The environment variable WORKER_CONCURRENCY must be a whole number from 1 to "
        "10000; it is 'many'."
    )


def test_contradiction_is_e001() -> None:
    with override_settings(JOBQUEUE={"HEARTBEAT_TTL": 10}):
        [(code, message, hint)] = as_tuples(check_options())
    assert code == "jobqueue.E001"
    assert message.startswith("HEARTBEAT_TTL must be at least three times")
    assert hint == "A worker that misses one heartbeat must not count as dead."


def test_use_tz_false_is_e002() -> None:
    with override_settings(USE_TZ=False):
        assert as_tuples(check_options()) == [
            (
                "jobqueue.E002",
                "USE_TZ is False; django_jobqueue needs datetimes with a time zone.",
                "Set USE_TZ = True. TIME_ZONE still sets the zone people see.",
            )
        ]


def test_unknown_database_is_e003() -> None:
    with override_settings(JOBQUEUE={"DATABASE": "jobs"}):
        assert as_tuples(check_options()) == [
            (
                "jobqueue.E003",
                "JOBQUEUE['DATABASE'] is 'jobs', which DATABASES lacks.",
                "DATABASES has 'default', 'business'.",
            )
        ]


@pytest.mark.parametrize("value", ["set_tenant", 3, [3], {"a.b": 1}])
def test_middleware_of_the_wrong_type_is_e001(value: Any) -> None:
    with override_settings(JOBQUEUE={"MIDDLEWARE": value}):
        [(code, message, _)] = as_tuples(check_options())
    assert code == "jobqueue.E001"
    assert "a list of dotted paths such as 'shop.middleware.set_language'" in message


def test_queues_that_are_all_excluded_are_e001() -> None:
    given = {"QUEUES": ["mail", "low"], "EXCLUDE_QUEUES": ["low", "mail", "x"]}
    with override_settings(JOBQUEUE=given):
        [(code, message, _)] = as_tuples(check_options())
    assert code == "jobqueue.E001"
    assert message == "EXCLUDE_QUEUES leaves nothing of QUEUES to serve: low, mail."
    with override_settings(JOBQUEUE={**given, "EXCLUDE_QUEUES": ["low"]}):
        assert check_options() == []
