"""Enqueue of many jobs: chunks, keys, what a bad spec leaves behind, and memory."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction

from django_jobqueue import EnqueueCounts, Job, JobSpec, exponential
from django_jobqueue.exceptions import (
    InvalidArguments,
    InvalidOption,
    InvalidPayload,
    InvalidPriority,
    UnknownJobType,
)
from django_jobqueue.lifecycle import enqueue_many as enqueue_many_module
from django_jobqueue.lifecycle.enqueue import enqueue_job
from django_jobqueue.lifecycle.enqueue_many import CHUNK_JOBS, enqueue_jobs
from django_jobqueue.storage.database import Database
from tests.testapp.jobs import EmailHandler, add, nothing
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parent.parent.parent


# The hand-written arrow and the portable one; on SQLite both are the portable one.
@pytest.fixture(params=["native", "portable"])
def db(request: pytest.FixtureRequest) -> Database:
    return Database(alias="default", is_portable=request.param == "portable")


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back what is done inside: a transaction, or a savepoint of one."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def keyed(*keys: str) -> list[JobSpec]:
    return [nothing.using(unique_key=key).spec() for key in keys]


def test_nothing_makes_no_jobs(db: Database) -> None:
    assert enqueue_jobs([], db=db) == EnqueueCounts(0, 0)


def test_counts_say_how_many_were_made(db: Database) -> None:
    specs = [add.spec(n) for n in range(5)]
    assert enqueue_jobs(specs, db=db) == EnqueueCounts(created=5, existing=0)
    assert {job.pk: job.payload for job in Job.objects.all()} == {
        spec.id: {"x": n} for n, spec in enumerate(specs)
    }


def test_specs_of_all_kinds_go_together(db: Database) -> None:
    specs = [
        JobSpec("testapp.add", {"x": 1}),
        add.using(priority=5).spec(2, y=3),
        EmailHandler.spec(to="ann"),
        nothing.using(unique_key="a", delay=60).spec(),
    ]
    assert enqueue_jobs(specs, db=db).created == 4
    stored = Job.objects.in_bulk([spec.id for spec in specs])
    rows = [stored[spec.id] for spec in specs]
    assert [(job.payload, job.queue, job.priority, job.status) for job in rows] == [
        ({"x": 1}, "default", 0, "pending"),
        ({"x": 2, "y": 3}, "default", 5, "pending"),
        ({"to": "ann"}, "mail", 0, "pending"),
        ({}, "default", 0, "scheduled"),
    ]


@pytest.mark.parametrize("unique_key", [None, "a"])
def test_job_of_a_bulk_is_like_one_enqueued_alone(
    db: Database, unique_key: str | None
) -> None:
    options: dict[str, Any] = {
        "queue": "mail",
        "priority": -7,
        "run_at": datetime(2200, 1, 1, tzinfo=UTC),
        "max_attempts": 9,
        "timeout": timedelta(seconds=1.5),
        "backoff": exponential(2, 60),
        "expires_at": datetime(2300, 1, 1, tzinfo=UTC),
        "tags": ["b", "a\\b\t\n'\""],
        "meta": {"trace": "\\N"},
    }
    payload = {"x": "\\N tab\t line\n quote'\" {} \\u0000 ü🎉", "y": None}
    alone = enqueue_job(JobSpec("testapp.add", payload, **options), db=db)
    spec = JobSpec("testapp.add", payload, **options, unique_key=unique_key)
    enqueue_jobs([spec], db=db)

    def columns(id: Any) -> dict[str, Any]:
        [row] = Job.objects.filter(pk=id).values()
        return row

    assert columns(spec.id) == columns(alone.pk) | {
        "id": spec.id,
        "created_at": columns(spec.id)["created_at"],
        "unique_key": unique_key,
    }


def test_delay_of_a_bulk_counts_from_now(db: Database) -> None:
    enqueue_jobs([nothing.using(delay=90).spec()], db=db)
    made = Job.objects.get()
    assert made.run_at - made.created_at == timedelta(seconds=90)
    assert made.status == "scheduled"


def test_key_taken_before_is_counted_as_existing(db: Database) -> None:
    nothing.using(unique_key="b").enqueue()
    counts = enqueue_jobs([*keyed("a", "b", "c"), nothing.spec()], db=db)
    assert counts == EnqueueCounts(created=3, existing=1)
    assert Job.objects.count() == 4


def test_key_twice_in_a_chunk_makes_one_job(db: Database) -> None:
    specs = keyed("a", "b", "a", "a")
    assert enqueue_jobs(specs, db=db) == EnqueueCounts(created=2, existing=2)
    assert set(Job.objects.values_list("unique_key", flat=True)) == {"a", "b"}


@pytest.mark.postgresql
def test_a_large_chunk_of_keyed_jobs_is_divided_by_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enqueue_many_module, "MAX_STATEMENT_BYTES", 3_000)
    sizes: list[int] = []
    execute = Database.execute

    def note(self: Database, statement: str, parameters: Any, **more: Any) -> Any:
        if statement == enqueue_many_module.INSERT_KEYED_JOBS:
            sizes.append(sum(map(len, parameters["payload"])))
        return execute(self, statement, parameters, **more)

    monkeypatch.setattr(Database, "execute", note)
    specs = [add.using(unique_key=str(n % 9)).spec(x="y" * 1000) for n in range(10)]

    counts = enqueue_jobs(specs, db=Database(alias="default"))

    assert counts == EnqueueCounts(created=9, existing=1)
    assert len(sizes) == 5
    assert max(sizes) < 3_000


def test_key_twice_in_two_chunks_makes_one_job(db: Database) -> None:
    first = [*keyed("a"), *(nothing.spec() for _ in range(CHUNK_JOBS - 1))]
    counts = enqueue_jobs([*first, *keyed("a", "b")], db=db)
    assert counts == EnqueueCounts(created=CHUNK_JOBS + 1, existing=1)


def test_key_of_another_job_type_is_another_key(db: Database) -> None:
    specs = [*keyed("a"), add.using(unique_key="a").spec(1)]
    assert enqueue_jobs(specs, db=db) == EnqueueCounts(created=2, existing=0)


@pytest.mark.django_db(transaction=True)
def test_taken_keys_do_not_abort_the_callers_transaction(db: Database) -> None:
    nothing.using(unique_key="a").enqueue()
    with transaction.atomic():
        Effect.objects.create(name="before")
        assert enqueue_jobs(keyed("a", "b"), db=db) == EnqueueCounts(1, 1)
        Effect.objects.create(name="after")
    assert Effect.objects.count() == 2
    assert Job.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_key_is_free_again_after_the_end() -> None:
    nothing.using(unique_key="a").enqueue().cancel()
    assert Job.objects.enqueue_many(keyed("a")) == EnqueueCounts(created=1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_inside", [True, False])
def test_generator_may_query_the_same_database(is_inside: bool) -> None:
    Effect.objects.bulk_create(Effect(name=str(n)) for n in range(CHUNK_JOBS + 500))

    def generate() -> Iterator[JobSpec]:
        for effect in Effect.objects.order_by("pk").iterator(chunk_size=100):
            assert Effect.objects.filter(pk=effect.pk).exists()
            yield add.spec(effect.pk)

    if is_inside:
        with transaction.atomic():
            counts = Job.objects.enqueue_many(generate())
    else:
        counts = Job.objects.enqueue_many(generate())
    assert counts.created == Job.objects.count() == CHUNK_JOBS + 500


@pytest.mark.django_db(transaction=True)
def test_generator_may_write_and_enqueue_too() -> None:
    def generate() -> Iterator[JobSpec]:
        for n in range(3):
            Effect.objects.create(name=str(n))
            nothing.using(queue="other").enqueue()
            yield nothing.spec()

    Job.objects.enqueue_many(generate(), atomic=True)
    assert Job.objects.count() == 6
    assert Effect.objects.count() == 3


def with_bad(index: int, bad: Any, total: int) -> Iterator[Any]:
    for n in range(total):
        yield bad if n == index else nothing.spec()


@pytest.mark.django_db(transaction=True)
def test_bad_spec_keeps_the_chunks_before_it() -> None:
    index = 2 * CHUNK_JOBS + 5
    bad = JobSpec("testapp.nothing", priority=101)
    with pytest.raises(InvalidPriority) as caught:
        Job.objects.enqueue_many(with_bad(index, bad, 3 * CHUNK_JOBS))
    assert caught.value.index == index
    assert caught.value.counts == EnqueueCounts(created=2 * CHUNK_JOBS)
    assert Job.objects.count() == 2 * CHUNK_JOBS


@pytest.mark.django_db(transaction=True)
def test_bad_spec_of_an_atomic_bulk_keeps_nothing() -> None:
    bad = JobSpec("testapp.nothing", priority=101)
    with pytest.raises(InvalidPriority) as caught:
        Job.objects.enqueue_many(with_bad(CHUNK_JOBS, bad, 2 * CHUNK_JOBS), atomic=True)
    assert caught.value.index == CHUNK_JOBS
    assert caught.value.counts == EnqueueCounts()
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_bad_spec_leaves_the_callers_transaction_usable() -> None:
    bad = JobSpec("testapp.nothing", priority=101)
    with transaction.atomic():
        Effect.objects.create(name="before")
        with pytest.raises(InvalidPriority) as caught:
            Job.objects.enqueue_many(with_bad(CHUNK_JOBS, bad, CHUNK_JOBS + 1))
        Effect.objects.create(name="after")
    assert caught.value.counts == EnqueueCounts(created=CHUNK_JOBS)
    assert Effect.objects.count() == 2
    assert Job.objects.count() == CHUNK_JOBS


@pytest.mark.django_db(transaction=True)
def test_chunks_inside_a_transaction_roll_back_with_it() -> None:
    with rolled_back():
        Job.objects.enqueue_many(nothing.spec() for _ in range(CHUNK_JOBS + 1))
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_chunks_outside_a_transaction_commit_one_by_one() -> None:
    def generate() -> Iterator[JobSpec]:
        for n in range(CHUNK_JOBS + 1):
            if n == CHUNK_JOBS:
                raise ZeroDivisionError
            yield nothing.spec()

    with pytest.raises(ZeroDivisionError):
        Job.objects.enqueue_many(generate())
    assert Job.objects.count() == CHUNK_JOBS


@pytest.mark.django_db(transaction=True)
def test_generator_that_fails_undoes_an_atomic_bulk() -> None:
    def generate() -> Iterator[JobSpec]:
        yield from (nothing.spec() for _ in range(CHUNK_JOBS))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Job.objects.enqueue_many(generate(), atomic=True)
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("bad", "cause", "message"),
    [
        (
            ("testapp.nothing", {}),
            InvalidOption,
            "enqueue_many takes JobSpec(job_type, payload, …) or handler.spec(…), not "
            "('testapp.nothing', {}).",
        ),
        (
            JobSpec("testapp.ad"),
            UnknownJobType,
            "No handler is registered for the job type 'testapp.ad'. Did you mean "
            "'testapp.add'?",
        ),
        (
            JobSpec("testapp.nothing", {"x": float("nan")}),
            InvalidPayload,
            "payload['x'] is nan, which JSON does not have; use None or a text.",
        ),
        (
            JobSpec("testapp.nothing", {"z": 1}),
            InvalidArguments,
            "testapp.nothing takes (): got an unexpected keyword argument 'z'. The "
            "keys of the payload are the handler's keyword arguments.",
        ),
        (
            JobSpec("testapp.nothing", prio=1),
            InvalidOption,
            "A job has no option 'prio'. Did you mean 'priority'?",
        ),
    ],
)
def test_bad_spec_says_what_is_wrong_and_which_one_it_is(
    bad: Any, cause: type[Exception], message: str
) -> None:
    with pytest.raises(cause) as caught:
        Job.objects.enqueue_many([nothing.spec(), bad, nothing.spec()])
    assert str(caught.value) == message
    assert caught.value.index == 1  # type: ignore[attr-defined]
    assert caught.value.counts == EnqueueCounts()  # type: ignore[attr-defined]
    assert not Job.objects.exists()


def test_counts_add_up() -> None:
    assert EnqueueCounts(1, 2) + EnqueueCounts(3, 4) == EnqueueCounts(4, 6)


def test_spec_knows_its_id_and_shows_it() -> None:
    spec = add.spec(1)
    assert repr(spec) == f"<JobSpec testapp.add {spec.id}>"
    assert add.spec(1).id != spec.id


@pytest.mark.django_db(transaction=True)
def test_aenqueue_many_enqueues() -> None:
    # Not asyncio.run(): its threads would keep a connection open.
    specs = (add.spec(n) for n in range(3))
    counts = async_to_sync(Job.objects.aenqueue_many)(specs, atomic=True)
    assert counts == EnqueueCounts(created=3)
    assert Job.objects.count() == 3


@pytest.mark.django_db(transaction=True)
def test_two_bulks_with_the_same_keys_do_not_deadlock() -> None:
    keys = [str(n) for n in range(300)]
    together = threading.Barrier(2, timeout=30)

    def enqueue(keys: list[str]) -> EnqueueCounts:
        connection.ensure_connection()
        together.wait()
        try:
            return Job.objects.enqueue_many(keyed(*keys))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as executor:
        futures = [executor.submit(enqueue, order) for order in (keys, keys[::-1])]
        total = sum((future.result(60) for future in futures), EnqueueCounts())
    assert total == EnqueueCounts(created=300, existing=300)
    assert Job.objects.count() == 300


MILLION = """
import sys
import time
import django
django.setup()
from django_jobqueue import Job
from tests.testapp.jobs import add

def read(name):
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith(name)]
    return int(line.split()[1]) / 1024

def specs(count):
    return (add.spec(n, y=n) for n in range(count))

count = int(sys.argv[1])
Job.objects.enqueue_many(specs(2000))
before = read("VmRSS")
started = time.monotonic()
counts = Job.objects.enqueue_many(specs(count))
seconds = time.monotonic() - started
print(counts.created, read("VmHWM") - before, count / seconds)
"""


def enqueue_in_a_process(count: int, env: dict[str, str]) -> tuple[int, float]:
    """Return how many jobs were made, and by how many megabytes memory grew."""
    done = subprocess.run(
        [sys.executable, "-c", MILLION, str(count)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    created, growth, rate = done.stdout.split()
    print(f"{float(rate):,.0f} jobs/s, {float(growth):.1f} MB")
    return int(created), float(growth)


@pytest.mark.slow
@pytest.mark.postgresql
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_million_specs_take_less_than_fifty_megabytes(
    worker_env: dict[str, str],
) -> None:
    created, growth = enqueue_in_a_process(1_000_000, worker_env)
    assert created == 1_000_000
    assert Job.objects.count() == 1_002_000
    assert growth < 50


@pytest.mark.django_db
@pytest.mark.parametrize("options", [{}, {"tags": ["a"]}], ids=["plain", "special"])
def test_texts_arrive_as_they_were_whatever_copy_reads_in_them(
    options: dict[str, Any],
) -> None:
    texts = [
        "\\",
        "\\N",
        "\\.",
        "a\tb",
        "a\nb",
        "a\r\nb",
        'say "\\n"',
        "\x1f\x7fü\u2028",
    ]
    specs = [JobSpec("testapp.add", {"x": text}, **options) for text in texts]

    Job.objects.enqueue_many(specs)

    found = {job.pk: job.payload for job in Job.objects.all()}
    assert [found[spec.id] for spec in specs] == [{"x": text} for text in texts]
