"""assert_enqueued() and refute_enqueued(): when they fail, and their messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_jobqueue.exceptions import UnknownJobType
from django_jobqueue.testing import (
    JobQueueTestMixin,
    aassert_enqueued,
    arefute_enqueued,
    assert_enqueued,
    capture_jobs,
    refute_enqueued,
    run_jobs,
)
from tests.testapp import jobs

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
MOMENT = datetime(2040, 1, 1, tzinfo=UTC)


def failure(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the message of an assertion that must fail."""
    with pytest.raises(AssertionError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def test_jobs_are_found_by_handler_class_and_name() -> None:
    added = jobs.add.enqueue(x=1)
    mailed = jobs.EmailHandler.enqueue(to="me")

    assert assert_enqueued(jobs.add) == [added]
    assert assert_enqueued("testapp.add") == [added]
    assert assert_enqueued(jobs.EmailHandler) == [mailed]
    refute_enqueued(jobs.nothing)


@pytest.mark.parametrize(
    ("met", "missed"),
    [
        ({"queue": "mail"}, {"queue": "default"}),
        ({"priority": 5}, {"priority": 0}),
        ({"payload": {"x": 1, "y": 2}}, {"payload": {"x": 1}}),
        ({"payload__contains": {"x": 1}}, {"payload__contains": {"x": 2}}),
        ({"unique_key": "key"}, {"unique_key": None}),
        ({"delay": HOUR}, {"delay": 60}),
        ({"delay": 3600}, {"run_at": MOMENT}),
        ({"max_attempts": 7}, {"max_attempts": None}),
        ({"expires_at": MOMENT}, {"expires_at": None}),
        ({"tags": ["a"]}, {"tags": ["a", "c"]}),
        ({"tags": "b"}, {"tags": "c"}),
        ({"meta__contains": {"who": {"id": 1}}}, {"meta__contains": {"who": 1}}),
        ({"status": "scheduled"}, {"status": "pending"}),
        ({"args": []}, {"args": [1]}),
        ({"count": 1}, {"count": 2}),
    ],
)
def test_every_option_is_compared(met: dict[str, Any], missed: dict[str, Any]) -> None:
    jobs.add.using(
        queue="mail",
        priority=5,
        unique_key="key",
        delay=HOUR,
        max_attempts=7,
        expires_at=MOMENT,
        tags=["a", "b"],
        meta={"who": {"id": 1, "name": "Ada"}},
    ).enqueue(x=1, y=2)

    assert_enqueued(jobs.add, **met)
    failure(assert_enqueued, jobs.add, **missed)
    if "count" not in met:
        failure(refute_enqueued, jobs.add, **met)
        refute_enqueued(jobs.add, **missed)


def test_ended_and_dead_jobs_are_found() -> None:
    jobs.add.enqueue(x=1)
    jobs.discard_itself.enqueue()
    run_jobs()

    assert_enqueued(jobs.add, status="succeeded")
    [dead] = assert_enqueued(jobs.discard_itself, status="dead")
    assert dead.error == "Discard: not wanted"


def test_a_captured_list_can_be_searched_instead_of_the_database() -> None:
    jobs.add.enqueue(x=1)
    with capture_jobs() as captured:
        jobs.nothing.enqueue()

    assert_enqueued(jobs.nothing, among=captured)
    refute_enqueued(jobs.add, among=captured)
    assert failure(assert_enqueued, jobs.add, among=captured) == (
        "No testapp.add was enqueued. There is:\n"
        "  testapp.nothing queue='default' payload={}"
    )


def test_without_any_job_the_message_says_so() -> None:
    assert failure(assert_enqueued, jobs.add, queue="mail") == (
        "No testapp.add with queue='mail' was enqueued. There are no jobs at all."
    )


def test_a_failure_shows_the_closest_match_first() -> None:
    jobs.nothing.enqueue()
    jobs.add.using(queue="mail", priority=3).enqueue(x=1)
    jobs.add.using(queue="mail").enqueue(x=2)

    expected = {"queue": "mail", "priority": 0, "payload": {"x": 1}, "unique_key": None}
    assert failure(assert_enqueued, jobs.add, **expected) == (
        "No testapp.add with queue='mail', priority=0, payload={'x': 1}, "
        "unique_key=None was enqueued. There are 3 jobs:\n"
        "  testapp.add queue='mail' payload={'x': 1} priority=3 unique_key=None "
        "(not priority)\n"
        "  testapp.add queue='mail' payload={'x': 2} priority=0 unique_key=None "
        "(not payload)\n"
        "  testapp.nothing queue='default' payload={} priority=0 unique_key=None"
    )


def test_a_wrong_count_shows_the_jobs() -> None:
    jobs.add.enqueue(x=1)
    jobs.add.enqueue(x=2)

    assert failure(assert_enqueued, jobs.add, count=1) == (
        "2 testapp.add were enqueued, not 1. There are 2 jobs:\n"
        "  testapp.add queue='default' payload={'x': 1}\n"
        "  testapp.add queue='default' payload={'x': 2}"
    )
    found = failure(assert_enqueued, jobs.add, count=3, payload={"x": 2})
    assert found.startswith("1 testapp.add with payload={'x': 2} was enqueued, not 3.")
    assert failure(assert_enqueued, jobs.add, count=0).startswith("2 testapp.add were")
    assert assert_enqueued(jobs.nothing, count=0) == []


def test_a_failed_refutation_shows_the_jobs() -> None:
    jobs.add.enqueue(x=1)
    jobs.nothing.enqueue()

    assert failure(refute_enqueued, jobs.add) == (
        "1 testapp.add was enqueued, but none was expected. There is:\n"
        "  testapp.add queue='default' payload={'x': 1}"
    )


def test_a_long_list_is_cut() -> None:
    for x in range(12):
        jobs.add.enqueue(x=x)

    lines = failure(assert_enqueued, jobs.nothing).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  and 2 more"


def test_a_misspelt_name_is_an_error() -> None:
    with pytest.raises(UnknownJobType, match=r"Did you mean 'testapp\.add'"):
        refute_enqueued("testapp.ad")
    with pytest.raises(UnknownJobType, match=r"Did you mean 'testapp\.add'"):
        assert_enqueued("testapp.ad")


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'que'"):
        assert_enqueued(jobs.add, que="mail")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="has no option 'que'; known: queue, prio"):
        refute_enqueued(jobs.add, que="mail")
    with pytest.raises(TypeError, match="takes no count"):
        refute_enqueued(jobs.add, count=1)


def test_async_assertions_read_the_database() -> None:
    async def scenario() -> str:
        await jobs.add.aenqueue(x=1)
        await aassert_enqueued(jobs.add, count=1)
        await arefute_enqueued(jobs.nothing)
        with pytest.raises(AssertionError) as caught:
            await aassert_enqueued(jobs.nothing)
        return str(caught.value)

    assert async_to_sync(scenario)().startswith("No testapp.nothing was enqueued.")


def visible_files(caught: pytest.ExceptionInfo[BaseException]) -> set[str]:
    """Return the files of the frames that pytest shows."""
    return {Path(str(entry.path)).name for entry in caught.traceback.filter(caught)}


@pytest.mark.parametrize(
    "call",
    [
        lambda: assert_enqueued(jobs.nothing),
        lambda: assert_enqueued(jobs.add, count=2),
        lambda: refute_enqueued(jobs.add),
        lambda: JobQueueTestMixin().assertEnqueued(jobs.nothing),
        lambda: JobQueueTestMixin().assertNotEnqueued(jobs.add),
    ],
)
def test_pytest_shows_no_frame_of_an_assertion(call: Callable[[], Any]) -> None:
    jobs.add.enqueue(x=1)
    with pytest.raises(AssertionError) as caught:
        call()
    assert visible_files(caught) == {"test_assertions.py"}


def test_pytest_shows_no_frame_of_an_async_assertion() -> None:
    shown: set[str] = set()

    async def check() -> None:
        with pytest.raises(AssertionError) as caught:
            await aassert_enqueued(jobs.nothing)
        shown.update(visible_files(caught))
        await jobs.add.aenqueue(x=1)
        with pytest.raises(AssertionError) as caught:
            await JobQueueTestMixin().aassertNotEnqueued(jobs.add)
        shown.update(visible_files(caught))

    async_to_sync(check)()
    assert shown == {"test_assertions.py"}
