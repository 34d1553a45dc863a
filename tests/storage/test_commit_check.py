"""Settle: what became of a COMMIT whose reply did not come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction

from django_jobqueue import DeadJob, Job
from django_jobqueue.exceptions import LeaseLost
from django_jobqueue.lifecycle.finish import finish_attempts, finish_in_transaction
from django_jobqueue.lifecycle.prune import prune_jobs
from django_jobqueue.options import Options, Retention
from django_jobqueue.outcomes import Cancelled, Died, GivenBack, Outcome, Succeeded
from django_jobqueue.states import AttemptOutcome, DeadReason
from django_jobqueue.storage import commit_check
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.commit_check import CommitState, check_commit
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from tests.factories import make_job
from tests.lifecycle.claiming import WORKER, claim_one
from tests.lifecycle.test_finish import FAILURE
from tests.waiting import wait_until

RELEASED = GivenBack(label=AttemptOutcome.RELEASED)
DIED = Died(reason=DeadReason.EXCEPTION, failure=FAILURE)


def settle_claim(database: Database, claimed: Claim) -> CommitState:
    return check_commit(
        database, claimed, worker_id=WORKER, retry_for=timedelta(seconds=0.1)
    )


def write_end(database: Database, claimed: Claim, options: Options) -> None:
    """Do what an atomic job does at the end of its transaction."""
    ending = Ending(claim=claimed, outcome=Succeeded("1"))
    with database.atomic():
        finish_in_transaction(database, ending, worker_id=WORKER, options=options)


def test_an_end_under_our_token_and_by_us_has_committed(
    database: Database, options: Options
) -> None:
    make_job()
    claimed = claim_one(database)
    write_end(database, claimed, options)

    assert settle_claim(database, claimed) is CommitState.COMMITTED


def test_what_still_runs_under_our_token_was_rolled_back(database: Database) -> None:
    make_job()
    assert settle_claim(database, claim_one(database)) is CommitState.ROLLED_BACK


@pytest.mark.parametrize(
    "columns",
    [
        {"lease_token": 2},
        {"worker_id": uuid4()},
        {"status": "pending", "worker_id": None, "finished_by": WORKER},
        {"status": "pending", "worker_id": None, "lease_token": 2},
    ],
    ids=["raised token", "other owner", "given back", "rescued"],
)
def test_a_job_that_was_taken_away_is_lost(
    database: Database, columns: dict[str, Any]
) -> None:
    make_job()
    claimed = claim_one(database)
    Job.objects.update(**columns)

    assert settle_claim(database, claimed) is CommitState.LOST


def test_an_end_under_our_token_by_another_worker_is_not_ours(
    database: Database, options: Options
) -> None:
    """Two workers share a token when a claim is forgotten by a failover."""
    make_job()
    claimed = claim_one(database)
    write_end(database, claimed, options)
    Job.objects.update(finished_by=uuid4())

    assert settle_claim(database, claimed) is CommitState.LOST


def test_a_job_in_the_dead_letters_is_lost(
    database: Database, options: Options
) -> None:
    make_job()
    claimed = claim_one(database)
    ending = Ending(claim=claimed, outcome=DIED)
    finish_attempts(database, [ending], worker_id=WORKER, options=options)
    assert DeadJob.objects.exists()

    assert settle_claim(database, claimed) is CommitState.LOST


def test_a_job_that_is_gone_had_committed(database: Database, options: Options) -> None:
    """RETENTION 0: either deleted as it ended, or at the next prune."""
    retention = {**options.retention, "succeeded": Retention(age=timedelta())}
    options = replace(options, retention=retention)
    make_job()
    claimed = claim_one(database)
    write_end(database, claimed, options)
    prune_jobs(database, retention=retention)
    assert not Job.objects.exists()

    assert settle_claim(database, claimed) is CommitState.COMMITTED


@pytest.mark.parametrize("outcome", [RELEASED, Cancelled("timeout"), DIED])
def test_another_end_of_what_had_committed_is_reported_as_the_success_it_was(
    database: Database, options: Options, outcome: Outcome
) -> None:
    """Where settle had no answer, the attempt was judged by its error."""
    make_job()
    claimed = claim_one(database)
    write_end(database, claimed, options)

    ending = Ending(claim=claimed, outcome=outcome, ran=2.0)
    report = finish_attempts(database, [ending], worker_id=WORKER, options=options)

    assert [(done.outcome, done.ran) for done in report.done] == [(Succeeded(), 2.0)]
    assert (report.lost, report.busy) == ([], [])
    assert Job.objects.get().status == "succeeded"


def test_finish_in_transaction_refuses_what_has_ended_under_its_token(
    database: Database, options: Options
) -> None:
    """Given back by the shutdown: it will run again, so its effects must not stay."""
    make_job()
    claimed = claim_one(database)
    ending = Ending(claim=claimed, outcome=RELEASED)
    finish_attempts(database, [ending], worker_id=WORKER, options=options)

    with pytest.raises(LeaseLost):
        write_end(database, claimed, options)
    assert Job.objects.get().status == "pending"


@contextmanager
def database_away() -> Iterator[Callable[[], None]]:
    """Let every new connection fail, until the block ends or the yielded is called."""
    params = connection.settings_dict
    kept = {"NAME": params["NAME"], "PORT": params["PORT"]}
    away = {"NAME": "/nowhere/at/all"}
    if connection.vendor == "postgresql":
        away = {"PORT": "1"}
    connection.close()
    params.update(away)
    try:
        yield lambda: params.update(kept)
    finally:
        params.update(kept)


@pytest.mark.django_db(transaction=True)
def test_a_database_that_comes_back_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, options: Options
) -> None:
    database = Database(alias="default")
    make_job()
    claimed = claim_one(database)
    write_end(database, claimed, options)
    pauses: list[float] = []
    with database_away() as come_back:

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 4:
                come_back()

        monkeypatch.setattr(commit_check.time, "sleep", pause)
        assert (
            check_commit(database, claimed, worker_id=WORKER) is CommitState.COMMITTED
        )
    assert len(pauses) == 4
    assert pauses[0] < pauses[3] <= commit_check.LONGEST_PAUSE_SECONDS


@pytest.mark.django_db(transaction=True)
def test_patience_with_a_database_that_stays_away_ends() -> None:
    database = Database(alias="default")
    make_job()
    claimed = claim_one(database)
    with database_away():
        assert settle_claim(database, claimed) is CommitState.UNKNOWN


@contextmanager
def open_transaction(claimed: Claim, options: Options) -> Iterator[None]:
    """Be the old backend: it has written the end and is about to commit."""
    database = Database(alias="default")
    ending = Ending(claim=claimed, outcome=Succeeded())
    connection.set_autocommit(False)
    try:
        finish_in_transaction(database, ending, worker_id=WORKER, options=options)
        yield
    finally:
        connection.rollback()
        connection.set_autocommit(True)


@contextmanager
def settling(claimed: Claim, **options: Any) -> Iterator[list[CommitState]]:
    """Settle in another thread; the list gets the answer by the end of the block."""
    fates: list[CommitState] = []

    def look() -> None:
        database = Database(alias="default")
        fates.append(check_commit(database, claimed, worker_id=WORKER, **options))
        connections.close_all()

    looking = threading.Thread(target=look)
    looking.start()
    yield fates
    looking.join(20)


def count_waiting() -> int:
    """Return how many sessions wait for a row that this one holds.

    Not how many wait at all: other test runs use the same server.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks"
            " WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("end", "fate"),
    [
        (transaction.commit, CommitState.COMMITTED),
        (transaction.rollback, CommitState.ROLLED_BACK),
    ],
    ids=["commit", "rollback"],
)
def test_the_look_waits_for_a_backend_that_is_still_committing(
    options: Options, end: Callable[[], None], fate: CommitState
) -> None:
    make_job()
    claimed = claim_one(Database(alias="default"))
    with open_transaction(claimed, options), settling(claimed) as fates:
        wait_until(count_waiting)
        assert fates == []
        end()
    assert fates == [fate]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_patience_with_a_backend_that_does_not_end_ends(
    monkeypatch: pytest.MonkeyPatch, options: Options
) -> None:
    monkeypatch.setattr(commit_check, "LIMIT_WAIT", "SET LOCAL lock_timeout = '50ms'")
    make_job()
    claimed = claim_one(Database(alias="default"))
    with open_transaction(claimed, options):
        with settling(claimed, retry_for=timedelta()) as fates:
            pass
        assert fates == [CommitState.UNKNOWN]
