"""Prune: succeeded, cancelled → gone, by age, by count, or at once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction
from django.test import override_settings
from django.utils import timezone

from django_jobqueue import DeadJob, Job
from django_jobqueue.lifecycle.claim import CLAIM_JOBS, claim_jobs, dump_spans
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.lifecycle.prune import (
    BATCH_JOBS,
    find_due_jobs,
    prune_in_batches,
    prune_jobs,
    prune_older,
)
from django_jobqueue.models import Attempt
from django_jobqueue.options import Options, Retention, get_options
from django_jobqueue.outcomes import Cancelled, Succeeded
from django_jobqueue.storage.claims import whole_queue
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from tests.factories import make_dead_job, make_job
from tests.lifecycle.claiming import WORKER, claim_one

pytestmark = pytest.mark.django_db

DB = Database(alias="default")
DAY = timedelta(days=1)
AGES = {"succeeded": Retention(age=DAY), "cancelled": Retention(age=7 * DAY)}
NOW = timezone.now()


def make_ended(
    status: str = "succeeded",
    *,
    ago: timedelta = timedelta(),
    age: timedelta | None = timedelta(),
    **values: Any,
) -> Job:
    """Insert a job that ended `ago` under an age; 0: under a count; None: is held."""
    finished_at = NOW - ago
    prune_at = None if age is None else finished_at + age
    return make_job(
        **{status: True}, finished_at=finished_at, prune_at=prune_at, **values
    )


def prune(retention: dict[str, Retention] | None = None, **more: Any) -> int:
    return prune_jobs(DB, now=NOW, retention={**AGES, **(retention or {})}, **more)


def remaining() -> set[Any]:
    return set(Job.objects.values_list("pk", flat=True))


def test_a_job_is_pruned_when_the_age_promised_at_its_end_has_come() -> None:
    make_ended(ago=DAY, age=DAY)
    make_ended("cancelled", ago=8 * DAY, age=7 * DAY)
    young = make_ended(ago=DAY - timedelta(seconds=1), age=DAY)
    other = make_ended("cancelled", ago=DAY, age=7 * DAY)

    assert sum(prune() for _ in range(3)) == 2

    assert remaining() == {young.pk, other.pk}


def test_live_jobs_and_held_ones_are_never_pruned() -> None:
    kept = [
        make_job(created_at=NOW - 900 * DAY, run_at=NOW - 900 * DAY),
        make_job(running=True),
        make_job(scheduled=True),
        make_ended(ago=900 * DAY, age=None),
    ]

    assert prune({"succeeded": Retention(keep=0)}) == 0

    assert remaining() == {job.pk for job in kept}


def test_dead_jobs_and_their_attempts_are_never_pruned() -> None:
    dead = make_dead_job(died_at=NOW - 900 * DAY)
    Attempt.objects.create(job_id=dead.pk, lease_token=3)
    make_ended(ago=DAY, age=DAY)

    assert prune() == 1

    assert DeadJob.objects.count() == Attempt.objects.count() == 1


def test_attempts_go_with_their_job() -> None:
    gone = make_ended(ago=DAY, age=DAY)
    stays = make_ended(age=DAY)
    for job in (gone, stays):
        for token in (1, 2):
            Attempt.objects.create(job_id=job.pk, lease_token=token)

    assert prune() == 1

    assert set(Attempt.objects.values_list("job_id", flat=True)) == {stays.pk}


def test_a_count_keeps_the_newest() -> None:
    jobs = [make_ended(ago=timedelta(minutes=n)) for n in range(10)]

    assert prune({"succeeded": Retention(keep=3)}) == 7

    assert remaining() == {job.pk for job in jobs[:3]}


def test_a_count_is_exact_among_jobs_that_ended_in_one_batch() -> None:
    for _ in range(10):
        make_ended()

    assert prune({"succeeded": Retention(keep=4)}) == 6
    assert prune({"succeeded": Retention(keep=4)}) == 0

    assert Job.objects.count() == 4


def test_a_count_larger_than_what_there_is_keeps_all() -> None:
    make_ended(ago=900 * DAY)

    assert prune({"succeeded": Retention(keep=1)}) == 0


def test_a_count_of_0_keeps_none() -> None:
    make_ended()

    assert prune({"succeeded": Retention(keep=0)}) == 1


def test_each_status_has_its_own_kind_of_retention() -> None:
    succeeded = [make_ended(ago=n * DAY) for n in range(4)]
    cancelled = [make_ended("cancelled", ago=n * DAY, age=2 * DAY) for n in range(4)]
    kinds = {"succeeded": Retention(keep=1), "cancelled": Retention(age=2 * DAY)}

    assert sum(prune(kinds) for _ in range(3)) == 5

    assert remaining() == {succeeded[0].pk, cancelled[0].pk, cancelled[1].pk}


def test_both_statuses_can_be_kept_by_count() -> None:
    succeeded = [make_ended(ago=n * DAY) for n in range(4)]
    cancelled = [make_ended("cancelled", ago=n * DAY) for n in range(4)]
    kinds = {"succeeded": Retention(keep=1), "cancelled": Retention(keep=2)}

    assert sum(prune(kinds) for _ in range(3)) == 5

    kept = [succeeded[0], cancelled[0], cancelled[1]]
    assert remaining() == {job.pk for job in kept}


def test_retention_0_prunes_what_finish_had_to_write() -> None:
    make_ended()

    assert prune({"succeeded": Retention(age=timedelta())}) == 1


def test_an_age_promised_before_the_setting_became_a_count_is_kept() -> None:
    promised = make_ended(ago=timedelta(hours=23), age=DAY)
    make_ended(ago=timedelta(hours=25), age=DAY)
    counted = make_ended(ago=timedelta(minutes=1))

    assert prune({"succeeded": Retention(keep=1)}) == 1

    assert remaining() == {promised.pk, counted.pk}


@pytest.mark.parametrize(("age", "expected"), [(DAY, 1), (3 * DAY, 0), (None, 0)])
def test_what_ended_under_a_count_follows_an_age_that_replaces_it(
    age: timedelta | None, expected: int
) -> None:
    make_ended(ago=2 * DAY)

    assert prune({"succeeded": Retention(age=age)}) == expected


def test_finding_what_is_due_deletes_nothing() -> None:
    make_ended(ago=DAY, age=DAY)

    due = find_due_jobs(DB, now=NOW, retention=AGES)

    assert {status: rows.count() for status, rows in due.items()} == {
        "succeeded": 1,
        "cancelled": 0,
    }
    assert Job.objects.count() == 1


def test_retention_comes_from_the_setting() -> None:
    make_ended(ago=DAY)

    with override_settings(JOBQUEUE={"RETENTION": {"succeeded": {"keep": 1}}}):
        assert prune_jobs(DB) == 0
    with override_settings(JOBQUEUE={"RETENTION": {"succeeded": {"keep": 0}}}):
        assert prune_jobs(DB) == 1


def test_each_batch_is_a_transaction_of_at_most_500_rows() -> None:
    fill(1201)
    with deletions() as deleted:
        batches = [b.total() for b in prune_in_batches(DB, now=NOW, retention=AGES)]

    assert batches == [500, 500, 201]
    assert [sum(rows.values()) for rows in deleted] == batches
    assert all(set(rows) == {"jobqueue_job"} for rows in deleted)


@pytest.mark.parametrize("limit", [1, 499, 500, 501, 9999])
def test_one_call_never_prunes_more_than_its_limit_or_a_batch(limit: int) -> None:
    fill(600)

    assert prune(limit=limit) == min(limit, BATCH_JOBS)

    assert Job.objects.count() == 600 - min(limit, BATCH_JOBS)


def test_batches_end_at_their_limit() -> None:
    fill(900)

    batches = prune_in_batches(DB, limit=700, now=NOW, retention=AGES)

    assert [batch.total() for batch in batches] == [500, 200]


@pytest.mark.sqlite
def test_a_look_that_finds_nothing_writes_nothing(
    django_assert_num_queries: Any,
) -> None:
    make_ended(age=DAY)

    # One for each status; a transaction on SQLite would stop all other writers.
    with django_assert_num_queries(2) as queries:
        assert prune() == 0

    assert all(q["sql"].startswith("SELECT") for q in queries.captured_queries)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_prune_passes_over_a_row_that_somebody_holds() -> None:
    held, free = (make_ended(ago=DAY, age=DAY) for _ in range(2))
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM jobqueue_job WHERE id = %s FOR UPDATE", [held.pk]
            )
        assert prune() == 1
    finally:
        other.close()

    assert remaining() == {held.pk}
    assert free.pk not in remaining()


def test_prune_older_ignores_retention_but_not_the_status() -> None:
    make_ended(ago=3 * DAY, age=None)
    make_ended("cancelled", ago=3 * DAY, age=900 * DAY)
    young = make_ended(ago=DAY, age=None)
    live = make_job(created_at=NOW - 9 * DAY, run_at=NOW - 9 * DAY)

    batches = list(prune_older(DB, before=NOW - 2 * DAY))

    assert sum(batches, start=Counter()) == {"succeeded": 1, "cancelled": 1}
    assert remaining() == {young.pk, live.pk}


def test_prune_older_passes_the_whole_table_by_bounded_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django_jobqueue.lifecycle.prune.WINDOW_JOBS", 100)
    fill(250)
    kept = [make_job(), make_ended(age=None)]

    batches = [b.total() for b in prune_older(DB, before=NOW - timedelta(seconds=1))]

    assert max(batches) <= 100
    assert sum(batches) == 250
    assert remaining() == {job.pk for job in kept}


def test_prune_older_ends_at_its_limit() -> None:
    fill(900)

    batches = [b.total() for b in prune_older(DB, before=NOW, limit=600)]

    assert batches == [500, 100]


@pytest.mark.parametrize("outcome", [Succeeded("1"), Cancelled("no")])
def test_finish_lets_prune_decide_what_ends_under_a_count(
    database: Database, options: Options, outcome: Any
) -> None:
    counts = dict.fromkeys(("succeeded", "cancelled"), Retention(keep=1))
    job = make_job()

    finish_attempts(
        database,
        [Ending(claim=claim_one(database), outcome=outcome)],
        worker_id=WORKER,
        options=replace(options, retention=counts),
    )

    job.refresh_from_db()
    assert job.prune_at == job.finished_at is not None


def test_cancel_lets_prune_decide_what_ends_under_a_count() -> None:
    job = make_job()

    with override_settings(JOBQUEUE={"RETENTION": {"cancelled": {"keep": 1}}}):
        job.cancel()

    assert job.prune_at == job.finished_at is not None


@pytest.mark.slow
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_200_000_jobs_are_pruned_while_claims_go_on() -> None:
    fill(200_000)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE jobqueue_job")
    make_pending(50)
    before = count_claim_pages()
    during = []
    with deletions() as deleted, working() as work:
        for number, _ in enumerate(prune_in_batches(DB, now=NOW, retention=AGES)):
            if number % 40 == 0:
                during.append(count_claim_pages())

    assert max(sum(rows.values()) for rows in deleted) <= BATCH_JOBS
    assert sum(rows["jobqueue_job"] for rows in deleted) == 200_000
    # A claim reads what it claims, however much is being pruned around it.
    assert max(during) <= 4 * before
    assert work.error is None
    assert work.done
    done = Job.objects.filter(pk__in=work.done).values_list("status", "lease_token")
    assert set(done) == {("succeeded", 1)}
    assert done.count() == len(work.done)


def fill(number: int) -> None:
    """Insert jobs that ended two days ago and are due since yesterday."""
    finished_at = NOW - 2 * DAY
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(FILL, [finished_at, finished_at, number])
        return
    Job.objects.bulk_create(
        Job(
            job_type="testapp.add",
            status="succeeded",
            finished_at=finished_at + timedelta(milliseconds=n),
            prune_at=finished_at + DAY + timedelta(milliseconds=n),
        )
        for n in range(number)
    )


FILL = """
    INSERT INTO jobqueue_job (id, job_type, status, finished_at, prune_at)
    SELECT
        gen_random_uuid(),
        'testapp.add',
        'succeeded',
        %s::timestamptz + n * interval '1 millisecond',
        %s::timestamptz + n * interval '1 millisecond' + interval '1 day'
    FROM generate_series(1, %s::integer) AS n
"""


@contextmanager
def deletions() -> Iterator[list[dict[str, int]]]:
    """Collect how many rows of each table every transaction or savepoint deletes."""
    transactions: list[dict[str, int]] = [{}]

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if sql.startswith("SAVEPOINT"):
            transactions.append({})
        if sql.startswith("DELETE") and context["cursor"].rowcount:
            table = sql.split('"')[1]
            deleted = transactions[-1]
            deleted[table] = deleted.get(table, 0) + context["cursor"].rowcount
            transaction.on_commit(lambda: transactions.append({}))
        return result

    with connection.execute_wrapper(watch):
        yield transactions
    transactions[:] = [rows for rows in transactions if rows]


class Work:
    """What the worker of the test did."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.done: list[Any] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            # Leave the other thread its share of the machine.
            while not self.stop.wait(0.02):
                self.step()
        except BaseException as error:
            self.error = error
        finally:
            connections.close_all()

    def step(self) -> None:
        """Claim and finish ten jobs of a queue of its own."""
        worker, options = uuid4(), get_options()
        make_pending(10, queue="mine")
        claims = claim_jobs(DB, {"mine": 10}, worker_id=worker)
        endings = [Ending(claim=claim, outcome=Succeeded("1")) for claim in claims]
        report = finish_attempts(DB, endings, worker_id=worker, options=options)
        self.done += [ending.claim.id for ending in report.done]


@contextmanager
def working() -> Iterator[Work]:
    """Claim and finish jobs in another thread while the block runs."""
    work = Work()
    thread = threading.Thread(target=work.run)
    thread.start()
    try:
        yield work
    finally:
        work.stop.set()
        thread.join(60)


def make_pending(number: int, *, queue: str = "default") -> None:
    Job.objects.bulk_create(
        Job(job_type="testapp.add", status="pending", queue=queue)
        for _ in range(number)
    )


def count_claim_pages(now: datetime | None = None) -> int:
    """Return how many pages a claim of ten jobs reads; it is rolled back."""
    wanted = {"queues": ["default"], "limits": [10], "worker_id": uuid4(), "now": now}
    wanted |= {"with_suspects": False, "passed": []}
    wanted |= dump_spans([whole_queue("default")])
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + CLAIM_JOBS, wanted)
        [[found]] = cursor.fetchall()
        transaction.set_rollback(True)
    [plan] = json.loads(found) if isinstance(found, str) else found
    pages: int = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    return pages
