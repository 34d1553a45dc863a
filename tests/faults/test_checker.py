"""The checker accepts correct histories and finds each kind of wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from django_jobqueue import DeadJob, Job
from django_jobqueue.models import Attempt
from django_jobqueue.models.record import make_id
from tests.factories import make_dead_job, make_job
from tests.testapp import ledger_jobs
from tests.testapp.dangerous import write_line
from tests.testapp.models import Effect

from .checker import (
    ALONE,
    Budgets,
    Case,
    check_jobs,
    find_doubles,
    find_losses,
    find_miscounts,
)
from .ledger import JobRuns

BUDGETS = Budgets(crashes=3, lost=10)
BESIDE_OTHERS = "this job"
# One job: lost, released by a supervisor, crashed twice, failed, succeeded.
HISTORY = [
    (1, 1, "lost", ""),
    (3, 1, "released", ""),
    (5, 1, "crashed", BESIDE_OTHERS),
    (7, 1, "crashed", ALONE),
    (9, 2, "failed", ""),
    (10, 3, "succeeded", ""),
]
COUNTERS = {"attempts": 3, "crashes": 0, "lost": 1, "isolate": False}


def make_case(
    record: Job | DeadJob | None,
    *,
    job_type: str = "testapp.work",
    attempts: list[tuple[int, int, str, str]] | None = None,
    starts: list[int] | None = None,
    ends: list[int] | None = None,
    effects: list[int] | None = None,
) -> Case:
    return Case(
        id=make_id(),
        job_type=job_type,
        record=record,
        attempts=[
            Attempt(lease_token=token, number=number, outcome=outcome, message=message)
            for token, number, outcome, message in attempts or []
        ],
        runs=JobRuns(starts or [], ends or []),
        effects=effects or [],
        budgets=BUDGETS,
    )


def make_success(*, token: int = 1, **values: Any) -> Job:
    counters = {"attempts": 1, "crashes": 0, "lost": 0, "isolate": False}
    return Job(
        **{"status": "succeeded", "lease_token": token, "result": token}
        | counters
        | values
    )


def make_death(**values: Any) -> DeadJob:
    counters = {"attempts": 1, "crashes": 1, "lost": 0, "isolate": True}
    return DeadJob(**{"reason": "crashed", "lease_token": 2} | counters | values)


def find_all(case: Case) -> list[str]:
    return [*find_losses(case), *find_doubles(case), *find_miscounts(case)]


def test_success_at_once_is_correct() -> None:
    assert find_all(make_case(make_success(), starts=[1], ends=[1])) == []


def test_long_history_with_right_counters_is_correct() -> None:
    job = make_success(token=10, **COUNTERS, progress={"note": "10"})
    case = make_case(
        job,
        job_type="testapp.work_atomically",
        attempts=HISTORY,
        starts=[1, 5, 7, 9, 10],
        ends=[5, 10],
        effects=[10],
    )
    assert find_all(case) == []


def test_death_after_its_budget_was_used_up_is_correct() -> None:
    attempts = [(token, 1, "crashed", BESIDE_OTHERS) for token in (1, 3, 5)]
    dead = make_death(crashes=3, lease_token=6)
    assert find_all(make_case(dead, attempts=attempts, starts=[1, 3])) == []
    once = make_case(
        make_death(), job_type="testapp.work_once", attempts=attempts[:1], starts=[1]
    )
    assert find_all(once) == []


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (make_case(None), "is in no table"),
        (make_case(Job(status="pending", lease_token=0)), "is pending"),
        (make_case(make_success(), starts=[1]), "without a whole run"),
        (make_case(make_success(token=3), ends=[1]), "without a whole run"),
        (
            make_case(make_success(), job_type="testapp.work_atomically", ends=[1]),
            "without its effect",
        ),
        (make_case(make_death(crashes=2)), "budget was not used up"),
        (make_case(make_death(reason="lost", lost=9)), "budget was not used up"),
        (make_case(make_death(reason="exception")), "budget was not used up"),
    ],
)
def test_loss_is_found(case: Case, text: str) -> None:
    [found] = find_losses(case)
    assert text in found


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (make_case(make_success(), effects=[1, 1]), "2 effects"),
        (make_case(make_death(), effects=[1]), "1 effects"),
        (make_case(make_success(token=3, result=1)), "ended by the claim 1"),
        (make_case(make_success(), starts=[1, 3]), "started by the claim 3"),
        (make_case(make_success(token=3), effects=[1]), "the effect of the claim [1]"),
        (
            make_case(make_success(token=3, progress={"note": "1"})),
            "the progress of the claim 1",
        ),
        (
            make_case(make_death(), job_type="testapp.work_once", starts=[1, 3]),
            "started 2 times",
        ),
    ],
)
def test_double_is_found(case: Case, text: str) -> None:
    [found] = find_doubles(case)
    assert text in found


@pytest.mark.parametrize(
    ("attempts", "counters", "text"),
    [
        (HISTORY, {**COUNTERS, "attempts": 4}, "4 attempts, and 3 count"),
        (HISTORY, {**COUNTERS, "lost": 2}, "lost 2 times, and was 1 times"),
        (HISTORY, {**COUNTERS, "crashes": 1}, "says 1 crashes"),
        (HISTORY, {**COUNTERS, "isolate": True}, "isolate True"),
        (HISTORY[1:], {**COUNTERS, "lost": 0}, "under the claim 3, not 1"),
        (HISTORY[:3] + HISTORY[4:], {**COUNTERS, "attempts": 2}, "claim 9, not 7"),
        (
            [*HISTORY[:5], (10, 2, "succeeded", "")],
            COUNTERS,
            "number 2, which is 3",
        ),
    ],
)
def test_miscount_is_found(
    attempts: list[tuple[int, int, str, str]], counters: dict[str, Any], text: str
) -> None:
    job = make_success(token=10, **counters)
    starts = [token for token, *_ in attempts]
    found = list(find_miscounts(make_case(job, attempts=attempts, starts=starts)))
    assert any(text in line for line in found), found


def test_start_without_a_row_is_found() -> None:
    [found] = find_miscounts(make_case(make_success(), starts=[1, 4], ends=[1]))
    assert "started under the claim 4" in found


def test_run_without_a_start_is_found() -> None:
    attempts = [(1, 1, "failed", ""), (2, 2, "succeeded", "")]
    job = make_success(token=2, attempts=2)
    [found] = find_miscounts(make_case(job, attempts=attempts, starts=[2]))
    assert "under the claim 1, and never started" in found


@pytest.mark.django_db
def test_jobs_are_compared_with_their_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    atomic = ledger_jobs.work_atomically.spec(ledger=str(ledger))
    gone = ledger_jobs.work.spec(ledger=str(ledger))
    once = ledger_jobs.work_once.spec(ledger=str(ledger))
    make_job(id=atomic.id, job_type=atomic.job_type, succeeded=True, result=1)
    counters = {"attempts": 1, "lease_token": 2, "lost": 1}
    make_dead_job(id=once.id, job_type=once.job_type, reason="lost", **counters)
    Attempt.objects.create(job_id=once.id, lease_token=1, outcome="lost")
    for line in (f"start {atomic.id} 1", f"end {atomic.id} 1", f"start {once.id} 1"):
        write_line(str(ledger), line)
    for _ in range(2):
        Effect.objects.create(job_id=atomic.id, name="1")

    findings = check_jobs([atomic, gone, once], ledger, budgets=BUDGETS)

    assert findings.lost == [f"testapp.work {gone.id} is in no table"]
    assert findings.doubled == [f"testapp.work_atomically {atomic.id} has 2 effects"]
    assert findings.miscounted == []
