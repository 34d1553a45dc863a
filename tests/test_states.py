"""The state machine: its values, its transitions, and the database constraints."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from django_jobqueue.models import DeadJob, Job
from django_jobqueue.states import (
    DEAD,
    ENDED,
    GONE,
    LIVE,
    MOVES,
    WAITING,
    AttemptOutcome,
    CancelResult,
    DeadReason,
    JobStatus,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def targets(transition: str) -> set[str]:
    return set().union(*MOVES[transition].values())


def test_stored_statuses_are_the_documented_ones() -> None:
    assert set(JobStatus.values) == {
        "scheduled",
        "pending",
        "running",
        "blocked",
        "succeeded",
        "cancelled",
    }


def test_stored_reasons_are_the_documented_ones() -> None:
    assert set(DeadReason.values) == {
        "exception",
        "timeout",
        "crashed",
        "lost",
        "unknown_handler",
        "discarded",
    }


def test_cancel_results_are_the_documented_ones() -> None:
    assert [str(result) for result in CancelResult] == [
        "cancelled",
        "requested",
        "ended",
    ]


def test_every_status_is_either_live_or_ended() -> None:
    assert set(JobStatus) == LIVE | ENDED
    assert not LIVE & ENDED
    assert set(WAITING) == {JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.BLOCKED}


def test_transitions_are_the_eight_verbs() -> None:
    assert set(MOVES) == {
        "enqueue",
        "promote",
        "claim",
        "finish",
        "rescue",
        "cancel",
        "requeue",
        "prune",
    }


def test_transitions_connect_different_known_states() -> None:
    known = {*JobStatus.values, DEAD, GONE}
    for starts in MOVES.values():
        for start, ends in starts.items():
            assert {start, *ends} <= known
            assert ends
            assert start not in ends


def test_only_claim_makes_a_job_running() -> None:
    assert [name for name in MOVES if "running" in targets(name)] == ["claim"]


def test_ended_jobs_are_only_pruned() -> None:
    for transition, starts in MOVES.items():
        assert transition == "prune" or not ENDED & starts.keys()


def test_dead_jobs_are_only_requeued() -> None:
    assert [name for name in MOVES if DEAD in MOVES[name]] == ["requeue"]


def test_every_status_can_be_reached_and_left() -> None:
    starts = {start for moves in MOVES.values() for start in moves}
    ends = set().union(*map(targets, MOVES))
    assert set(JobStatus.values) <= starts
    assert set(JobStatus.values) <= ends


@pytest.mark.parametrize("choices", [JobStatus, DeadReason, AttemptOutcome])
def test_values_fit_their_columns(choices: Any) -> None:
    assert max(map(len, choices.values)) <= 16


RUNNING = {"worker_id": uuid.UUID(int=1), "claimed_at": NOW}
ENDED_AT = {"finished_at": NOW}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "columns",
    [
        {"status": "scheduled"},
        {"status": "pending", "unique_key": "a"},
        {"status": "blocked"},
        {"status": "running", **RUNNING},
        {"status": "succeeded", **ENDED_AT},
        {"status": "cancelled", **ENDED_AT, "prune_at": NOW},
        {"status": "pending", "priority": 100},
        {"status": "pending", "priority": -100},
    ],
)
def test_database_accepts_a_legal_row(columns: dict[str, Any]) -> None:
    Job.objects.create(job_type="states", **columns)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "columns",
    [
        {"status": "dead"},
        {"status": "running"},
        {"status": "running", "worker_id": uuid.UUID(int=1)},
        {"status": "pending", "worker_id": uuid.UUID(int=1)},
        {"status": "succeeded"},
        {"status": "succeeded", **ENDED_AT, **RUNNING},
        {"status": "succeeded", **ENDED_AT, "unique_key": "a"},
        {"status": "pending", **ENDED_AT},
        {"status": "pending", "prune_at": NOW},
        {"status": "pending", "priority": 101},
        {"status": "pending", "priority": -101},
        {"status": "pending", "attempts": -1},
        {"status": "pending", "attempts": 2, "lease_token": 1},
        {"status": "pending", "crashes": -1},
        {"status": "pending", "lost": -1},
        {"status": "pending", "given_back": -1},
    ],
)
def test_database_refuses_an_illegal_row(columns: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Job.objects.create(job_type="states", **columns)


@pytest.mark.django_db
def test_database_refuses_an_unknown_reason() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        DeadJob.objects.create(job_type="states", reason="bored")


@pytest.mark.django_db
def test_database_refuses_a_second_live_job_of_a_key() -> None:
    Job.objects.create(job_type="states", unique_key="a")
    Job.objects.create(job_type="states", unique_key="b")
    Job.objects.create(job_type="other", unique_key="a")
    with pytest.raises(IntegrityError), transaction.atomic():
        Job.objects.create(job_type="states", unique_key="a")
