"""E010 to W012, E030 and E031: handlers and middleware."""

import pytest
from django.test import override_settings

from django_jobqueue import job
from django_jobqueue.checks import (
    check_handlers,
    check_middleware,
)
from tests.checks.messages import as_tuples

MIDDLEWARE = "tests.testapp.middleware"


def test_two_handlers_of_one_name_are_e010() -> None:
    @job("checks.twice")
    def first() -> None: ...

    @job("checks.twice")
    def second() -> None: ...

    place = f"{__name__}.test_two_handlers_of_one_name_are_e010.<locals>"
    assert as_tuples(check_handlers()) == [
        (
            "jobqueue.E010",
            f"Two handlers are named 'checks.twice': {place}.first and {place}.second.",
            "Rename one: @job('another.name').",
        )
    ]


def test_unknown_database_of_a_handler_is_e011() -> None:
    @job("checks.databases", databases=["default", "elsewhere"])
    def scattered() -> None: ...

    assert as_tuples(check_handlers()) == [
        (
            "jobqueue.E011",
            "The handler 'checks.databases' names the database 'elsewhere', which "
            "DATABASES lacks.",
            "Correct databases=… or DATABASES.",
        )
    ]


def test_atomic_with_several_databases_is_w012() -> None:
    @job("checks.atomic", atomic=True, databases=["business", "default"])
    def both() -> None: ...

    assert as_tuples(check_handlers()) == [
        (
            "jobqueue.W012",
            "The handler 'checks.atomic' is atomic and writes to 'business' too, but "
            "only what it writes to 'default', where the jobs are, is there exactly "
            "once.",
            "'default' commits last: after a crash in between, the job runs again. See "
            "that its writes to 'business' may be repeated, then silence this.",
        )
    ]


def test_atomic_with_the_jobs_database_alone_is_fine() -> None:
    @job("checks.atomic", atomic=True, databases=["default"])
    def one() -> None: ...

    assert check_handlers() == []


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("tests.nowhere.set_tenant", "No module named 'tests.nowhere'"),
        (f"{MIDDLEWARE}.nobody", "does not define a"),
        (f"{MIDDLEWARE}.not_callable", "must be a function or class"),
    ],
)
def test_missing_middleware_is_e030(path: str, part: str) -> None:
    with override_settings(JOBQUEUE={"MIDDLEWARE": [path]}):
        [(code, message, _)] = as_tuples(check_middleware())
    assert code == "jobqueue.E030"
    assert path in message
    assert part in message


@pytest.mark.parametrize(
    ("name", "kind"), [("only_sync", "async"), ("only_async", "sync")]
)
def test_middleware_that_does_not_fit_a_handler_is_e031(name: str, kind: str) -> None:
    with override_settings(JOBQUEUE={"MIDDLEWARE": [f"{MIDDLEWARE}.{name}"]}):
        [(code, message, hint)] = as_tuples(check_middleware())
    assert code == "jobqueue.E031"
    assert message.startswith(
        f"The middleware '{MIDDLEWARE}.{name}' cannot run around {kind} handlers, such "
        f"as '"
    )
    assert "sync_and_async_middleware" in str(hint)


def test_middleware_for_both_is_fine() -> None:
    with override_settings(JOBQUEUE={"MIDDLEWARE": [f"{MIDDLEWARE}.outer"]}):
        assert check_middleware() == []
