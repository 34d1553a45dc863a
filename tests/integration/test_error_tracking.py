"""The guide on error tracking: the events that Sentry gets from failing jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.venvs import ROOT

pytestmark = [pytest.mark.once, pytest.mark.slow]


@pytest.fixture(scope="module", params=["all", "only-dead"])
def events(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Return the events that the fake transport received, in order."""
    flags = ["--only-dead"] if request.param == "only-dead" else []
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.track_errors", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def read_exception(event: dict[str, Any]) -> dict[str, Any]:
    values: list[dict[str, Any]] = event["exception"]["values"]
    return values[-1]


def test_each_failure_is_one_event(events: list[dict[str, Any]]) -> None:
    """No event for a success, for Cancel, or for the log line of a failure."""
    texts = [
        read_exception(event)["value"] if "exception" in event else event["message"]
        for event in events
    ]
    assert sorted(texts) == ["async", "first", "second", "shop.pay is dead: crashed"]


def test_events_have_the_stack_of_the_handler(events: list[dict[str, Any]]) -> None:
    failures = [event for event in events if "exception" in event]
    for event in failures:
        frames = read_exception(event)["stacktrace"]["frames"]
        assert frames[-1]["function"] in ("fail", "fail_async")
    stacks = [
        [(frame["filename"], frame["lineno"]) for frame in each["stacktrace"]["frames"]]
        for each in map(read_exception, failures)
        if each["value"] in ("first", "second")
    ]
    # Sentry groups by the stack.
    assert stacks[0] == stacks[1]


def test_events_name_the_job(events: list[dict[str, Any]]) -> None:
    [event] = [each for each in events if "async" in str(each.get("exception"))]

    job_type = "tests.testapp.conformance_tasks.fail_async"
    assert event["transaction"] == event["tags"]["job_type"] == job_type
    assert event["contexts"]["job"]["id"]
    assert event["level"] == "error"


def test_a_death_without_an_exception_has_a_fingerprint(
    events: list[dict[str, Any]],
) -> None:
    [event] = [each for each in events if "exception" not in each]
    assert event["fingerprint"] == ["django_jobqueue", "shop.pay", "crashed"]
