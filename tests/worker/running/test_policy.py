"""What handler, job and settings say together, also where the row says nonsense."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from django_jobqueue.options import get_options
from django_jobqueue.outcomes import GivenBack, Retried
from django_jobqueue.registry import find_handler
from django_jobqueue.worker.running.in_flight import InFlightJob
from django_jobqueue.worker.running.policy import expected_retry_delay, judge_error
from django_jobqueue.worker.running.prepare import _judge_unknown
from tests.worker.running.test_in_flight import make_claim

JUNK = ["x", 7, {}, [], ["a"], [-1], {"linear": 3}, {"cubic": [1, 2]}, [1e300], None]


@pytest.mark.parametrize("stored", JUNK, ids=repr)
def test_a_junk_backoff_leaves_the_error_of_the_handler(
    stored: Any, caplog: pytest.LogCaptureFixture
) -> None:
    claim = make_claim()._replace(job_type="testapp.add", backoff=json.dumps(stored))
    handler = find_handler("testapp.add")
    assert handler is not None

    with caplog.at_level(logging.WARNING, "django_jobqueue.worker"):
        outcome = judge_error(ValueError("mine"), handler, claim, get_options())

    assert isinstance(outcome, Retried)
    assert outcome.failure.short == "ValueError: mine"
    [record] = caplog.records
    assert f"the backoff of a job cannot be read job_id={claim.id}" in str(record.msg)
    assert expected_retry_delay(InFlightJob(claim), get_options()) is not None


def test_an_unknown_handler_is_asked_for_soon_and_then_less_often() -> None:
    delays = []
    waited = timedelta()
    for _ in range(10):
        claim = make_claim()
        claim = claim._replace(unknown_since=claim.claimed_at - waited)
        outcome = _judge_unknown(claim, get_options())
        assert isinstance(outcome, GivenBack)
        assert outcome.delay is not None
        delays.append(outcome.delay.total_seconds())
        waited += outcome.delay

    assert delays == [0.5, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert outcome.failure.short.endswith(
        "Is its app in INSTALLED_APPS, and the handler in its `jobs` or `tasks` "
        "module? See manage.py check."
    )
