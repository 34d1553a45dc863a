"""Enqueue of one job: what is written, what is refused, and who gets a unique key."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, connection, connections, transaction
from django.test import override_settings
from django.utils import timezone as django_timezone

from django_jobqueue import Job, exponential, job, linear
from django_jobqueue.exceptions import (
    InvalidArguments,
    InvalidOption,
    InvalidPayload,
    InvalidPriority,
    InvalidQueueName,
    InvalidTime,
    JobQueueError,
    PayloadTooLarge,
    UniqueKeyBusy,
    UnknownJobType,
)
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.lifecycle.enqueue import enqueue_job
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Succeeded
from django_jobqueue.states import JobStatus
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.storage.new_jobs import JobSpec
from tests.settings import DATABASE
from tests.testapp.jobs import EmailHandler, add, add_async, nothing
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db

NAIVE = datetime(2026, 1, 1, 12, 30)
HOUR = timedelta(hours=1)


@job("enqueue.urgent", queue="high", priority=10)
def urgent() -> None: ...


@job("enqueue.anything")
def anything(**payload: Any) -> None: ...


# The hand-written arrow and the portable one; on SQLite both are the portable one.
@pytest.fixture(params=["native", "portable"])
def db(request: pytest.FixtureRequest) -> Database:
    return Database(alias="default", is_portable=request.param == "portable")


def nest(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back what is done inside: a transaction, or a savepoint of one."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def run_to_its_end(job: Job) -> None:
    """Claim and finish the job, as a worker would."""
    db, worker_id = Database(alias="default"), uuid4()
    claims = claim_jobs(db, {job.queue: 100}, worker_id=worker_id)
    endings = [Ending(claim=claim, outcome=Succeeded()) for claim in claims]
    finish_attempts(db, endings, worker_id=worker_id, options=get_options())


def test_enqueue_writes_a_pending_job(db: Database) -> None:
    before = django_timezone.now()
    spec = JobSpec("testapp.add", {"x": 1, "y": [None, "ü"]})
    made = enqueue_job(spec, db=db)
    stored = Job.objects.get()
    assert stored.pk == made.pk == spec.id
    assert stored.job_type == "testapp.add"
    assert stored.payload == {"x": 1, "y": [None, "ü"]}
    assert (stored.status, stored.queue, stored.priority) == ("pending", "default", 0)
    assert (stored.attempts, stored.lease_token, stored.worker_id) == (0, 0, None)
    assert (stored.max_attempts, stored.timeout, stored.backoff) == (None, None, None)
    assert (stored.unique_key, stored.tags, stored.meta) == (None, [], {})
    assert abs(stored.created_at - before) < timedelta(minutes=1)
    assert stored.run_at == stored.created_at


def test_enqueue_returns_the_job_as_it_is_stored(db: Database) -> None:
    spec = JobSpec(
        "testapp.add",
        {"x": 1},
        queue="mail",
        priority=-7,
        delay=60,
        max_attempts=9,
        timeout=timedelta(seconds=1.5),
        backoff=exponential(2, 60),
        unique_key="one",
        expires_at=datetime(2030, 1, 1, tzinfo=UTC),
        tags=["b", "a"],
        meta={"trace": "1"},
    )
    made = enqueue_job(spec, db=db)
    stored = Job.objects.get()
    names = [field.name for field in Job._meta.concrete_fields]
    assert {name: getattr(made, name) for name in names} == {
        name: getattr(stored, name) for name in names
    }
    assert made.was_created
    assert not made._state.adding


def test_enqueue_stores_every_option(db: Database) -> None:
    expires_at = datetime(2030, 1, 1, tzinfo=UTC)
    spec = JobSpec(
        "testapp.nothing",
        queue="mail",
        priority=100,
        max_attempts=9,
        timeout=1.5,
        backoff=[1, 2],
        unique_key="ключ",
        expires_at=expires_at,
        tags={"b", "a"},
        meta={"a": [1]},
    )
    enqueue_job(spec, db=db)
    stored = Job.objects.get()
    assert (stored.queue, stored.priority, stored.max_attempts) == ("mail", 100, 9)
    assert (stored.timeout, stored.backoff) == (timedelta(seconds=1.5), [1, 2])
    assert (stored.unique_key, stored.expires_at) == ("ключ", expires_at)
    assert (stored.tags, stored.meta) == (["a", "b"], {"a": [1]})


@pytest.mark.parametrize(
    ("backoff", "stored"),
    [
        (5, [5]),
        (timedelta(minutes=1), [60]),
        (linear(1, 9), {"linear": [1, 9]}),
    ],
)
def test_backoff_is_stored_as_json(db: Database, backoff: Any, stored: Any) -> None:
    enqueue_job(JobSpec("testapp.nothing", backoff=backoff), db=db)
    assert Job.objects.get().backoff == stored


def test_option_of_none_is_the_handlers(db: Database) -> None:
    enqueue_job(JobSpec("enqueue.urgent", queue=None, priority=None), db=db)
    stored = Job.objects.get()
    assert (stored.queue, stored.priority) == ("high", 10)


def test_option_of_zero_is_not_the_handlers(db: Database) -> None:
    enqueue_job(JobSpec("enqueue.urgent", priority=0), db=db)
    assert Job.objects.get().priority == 0


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, JobStatus.PENDING),
        ({"delay": 0}, JobStatus.PENDING),
        ({"delay": 60}, JobStatus.SCHEDULED),
        ({"delay": timedelta(days=36_500)}, JobStatus.SCHEDULED),
        ({"run_at": datetime(2000, 1, 1, tzinfo=UTC)}, JobStatus.PENDING),
        ({"run_at": datetime(2200, 1, 1, tzinfo=UTC)}, JobStatus.SCHEDULED),
        ({"run_at": datetime(1, 1, 1, tzinfo=UTC)}, JobStatus.PENDING),
        ({"run_at": datetime.max.replace(tzinfo=UTC)}, JobStatus.SCHEDULED),
    ],
)
def test_job_whose_time_has_not_come_is_scheduled(
    db: Database, options: dict[str, Any], status: str
) -> None:
    made = enqueue_job(JobSpec("testapp.nothing", **options), db=db)
    assert made.status == Job.objects.get().status == status


def test_delay_counts_from_now_on_the_databases_clock(db: Database) -> None:
    made = enqueue_job(JobSpec("testapp.nothing", delay=90.5), db=db)
    assert made.run_at - made.created_at == timedelta(seconds=90.5)


def test_run_at_is_kept_whatever_its_zone(db: Database) -> None:
    run_at = datetime(2200, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    enqueue_job(JobSpec("testapp.nothing", run_at=run_at), db=db)
    assert Job.objects.get().run_at == run_at


def test_higher_priority_has_the_lower_rank(db: Database) -> None:
    low, high = (
        enqueue_job(JobSpec("testapp.nothing", priority=priority), db=db)
        for priority in (-100, 100)
    )
    assert high.rank < low.rank


def test_one_level_of_priority_is_worth_the_aging(db: Database) -> None:
    with override_settings(JOBQUEUE={"AGING": 60}):
        made = enqueue_job(JobSpec("testapp.nothing", priority=3), db=db)
    waited = made.created_at - 3 * timedelta(seconds=60)
    assert made.rank == (waited - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


def test_past_run_at_does_not_jump_the_queue(db: Database) -> None:
    first = enqueue_job(JobSpec("testapp.nothing"), db=db)
    past = datetime(2000, 1, 1, tzinfo=UTC)
    second = enqueue_job(JobSpec("testapp.nothing", run_at=past), db=db)
    assert first.rank < second.rank


def test_handlers_enqueue_themselves() -> None:
    made = [
        add.enqueue(1, y=2),
        add_async.enqueue(3),
        EmailHandler.enqueue(to="ann"),
        EmailHandler.using(priority=5).enqueue(to="bob"),
        nothing.using(queue="mail", delay=60).enqueue(),
    ]
    assert [(job.job_type, job.payload, job.queue) for job in made] == [
        ("testapp.add", {"x": 1, "y": 2}, "default"),
        ("testapp.add_async", {"x": 3}, "default"),
        ("testapp.email", {"to": "ann"}, "mail"),
        ("testapp.email", {"to": "bob"}, "mail"),
        ("testapp.nothing", {}, "mail"),
    ]
    assert (made[3].priority, made[4].status) == (5, "scheduled")
    assert Job.objects.count() == 5


def test_payload_may_be_left_out() -> None:
    assert Job.objects.enqueue("testapp.nothing").payload == {}
    assert Job.objects.enqueue("testapp.nothing", None).payload == {}


def test_ids_sort_in_the_order_of_their_making() -> None:
    ids = [nothing.enqueue().pk for _ in range(50)]
    assert ids == sorted(ids)
    assert all(isinstance(id, UUID) and id.version == 7 for id in ids)


SIGNATURE = "The keys of the payload are the handler's keyword arguments."
REFUSED: list[tuple[str, Any, dict[str, Any], type[JobQueueError], str]] = [
    (
        "testapp.ad",
        {},
        {},
        UnknownJobType,
        "No handler is registered for the job type 'testapp.ad'. Did you mean "
        "'testapp.add'?",
    ),
    (
        "nobody.knows.this.job",
        {},
        {},
        UnknownJobType,
        "No handler is registered for the job type 'nobody.knows.this.job'. Handlers "
        "are found in the `jobs` and `tasks` modules of the installed apps; is the app "
        "in INSTALLED_APPS?",
    ),
    (
        "enqueue.anything",
        {"x": float("nan")},
        {},
        InvalidPayload,
        "payload['x'] is nan, which JSON does not have; use None or a text.",
    ),
    (
        "enqueue.anything",
        {"x": float("inf")},
        {},
        InvalidPayload,
        "payload['x'] is inf, which JSON does not have; use None or a text.",
    ),
    (
        "enqueue.anything",
        {"x": "a\0b"},
        {},
        InvalidPayload,
        "payload['x'] contains a NUL character, which PostgreSQL cannot store.",
    ),
    (
        "enqueue.anything",
        {"x": ["\ud83d"]},
        {},
        InvalidPayload,
        "payload['x'][0] contains a lone surrogate, which is not valid Unicode.",
    ),
    (
        "enqueue.anything",
        {"x": {1: 2}},
        {},
        InvalidPayload,
        "payload['x'] has the key 1; JSON keys are strings, use '1'.",
    ),
    (
        "enqueue.anything",
        {"x": b"raw"},
        {},
        InvalidPayload,
        "payload['x'] is of type bytes, which JSON does not have; decode it, or pass "
        "it in base64.",
    ),
    (
        "enqueue.anything",
        {"x": Effect(name="x")},
        {},
        InvalidPayload,
        "payload['x'] is a model instance (Effect), which JSON does not have; pass its "
        "primary key and load it in the handler.",
    ),
    (
        "enqueue.anything",
        {"x": {1}},
        {},
        InvalidPayload,
        "payload['x'] is of type set, which JSON does not have; pass a list.",
    ),
    (
        "enqueue.anything",
        {"x": NAIVE},
        {},
        InvalidPayload,
        "payload['x'] is of type datetime, which JSON does not have; pass "
        "value.isoformat().",
    ),
    (
        "enqueue.anything",
        [1],
        {},
        InvalidPayload,
        "The payload is a dict of the handler's keyword arguments, not of type list. "
        "Pass something like {'user_id': 1}.",
    ),
    (
        "enqueue.anything",
        {"x": nest(10_000)},
        {},
        InvalidPayload,
        "payload is nested too deeply or contains itself; flatten it.",
    ),
    (
        "enqueue.anything",
        {"x": "a" * 1_048_576},
        {},
        PayloadTooLarge,
        "The payload has 1,048,584 bytes of JSON; MAX_PAYLOAD_BYTES allows 1,048,576. "
        "Store the data elsewhere and pass a reference to it.",
    ),
    (
        "testapp.nothing",
        {"z": 1},
        {},
        InvalidArguments,
        f"testapp.nothing takes (): got an unexpected keyword argument 'z'. "
        f"{SIGNATURE}",
    ),
    (
        "testapp.nothing",
        {},
        {"priority": 101},
        InvalidPriority,
        "A priority is a whole number from -100 to 100 (higher runs first), not 101.",
    ),
    (
        "testapp.nothing",
        {},
        {"priority": True},
        InvalidPriority,
        "A priority is a whole number from -100 to 100 (higher runs first), not True.",
    ),
    (
        "testapp.nothing",
        {},
        {"priority": 1.5},
        InvalidPriority,
        "A priority is a whole number from -100 to 100 (higher runs first), not 1.5.",
    ),
    (
        "testapp.nothing",
        {},
        {"priority": "1"},
        InvalidPriority,
        "A priority is a whole number from -100 to 100 (higher runs first), not '1'.",
    ),
    (
        "testapp.nothing",
        {},
        {"run_at": NAIVE},
        InvalidTime,
        "run_at is the naive datetime 2026-01-01T12:30:00, which has no time zone. "
        "Use django.utils.timezone.now() or make_aware().",
    ),
    (
        "testapp.nothing",
        {},
        {"expires_at": NAIVE},
        InvalidTime,
        "expires_at is the naive datetime 2026-01-01T12:30:00, which has no time zone. "
        "Use django.utils.timezone.now() or make_aware().",
    ),
    (
        "testapp.nothing",
        {},
        {"run_at": datetime(2026, 1, 1, tzinfo=UTC), "delay": 5},
        InvalidTime,
        "run_at and delay both set when the job starts; pass only one of them.",
    ),
    (
        "testapp.nothing",
        {},
        {"delay": -1},
        InvalidTime,
        "delay is a timedelta or seconds, from 0 to 100 years, not -1.",
    ),
    (
        "testapp.nothing",
        {},
        {"queue": "a queue"},
        InvalidQueueName,
        "A queue name has 1 to 64 letters, digits, dots, dashes or underscores, not "
        "'a queue'. Choose a name such as 'mail' or 'reports.daily'.",
    ),
    (
        "testapp.nothing",
        {},
        {"timeout": 0},
        InvalidTime,
        "timeout is a timedelta or seconds above 0, not 0. Leave it out for the "
        "handler's, then the setting's.",
    ),
    (
        "testapp.nothing",
        {},
        {"max_attempts": 0},
        InvalidOption,
        "max_attempts is a whole number from 1 to 32000, not 0. 1 means: never retry.",
    ),
    (
        "testapp.nothing",
        {},
        {"backoff": lambda attempt, error: 5},
        InvalidOption,
        "A row cannot store a callable backoff: write @job(backoff=…) on the handler, "
        "or pass seconds, a list, exponential() or linear().",
    ),
    (
        "testapp.nothing",
        {},
        {"unique_key": "k" * 256},
        InvalidOption,
        f"unique_key is a text of 1 to 255 characters without NUL, not '{'k' * 80}'. "
        f"Hash a longer key.",
    ),
    (
        "testapp.nothing",
        {},
        {"unique_key": ""},
        InvalidOption,
        "unique_key is a text of 1 to 255 characters without NUL, not ''. Hash a "
        "longer key.",
    ),
    (
        "testapp.nothing",
        {},
        {"unique_key": "a\0"},
        InvalidOption,
        "unique_key is a text of 1 to 255 characters without NUL, not 'a\\x00'. Hash "
        "a longer key.",
    ),
    (
        "testapp.nothing",
        {},
        {"tags": "mail"},
        InvalidOption,
        "tags is a list of texts of 1 to 100 characters, not 'mail'.",
    ),
    (
        "testapp.nothing",
        {},
        {"tags": ["a\0"]},
        JobQueueError,
        "tags[0] contains a NUL character, which PostgreSQL cannot store.",
    ),
    (
        "testapp.nothing",
        {},
        {"meta": {"x": b""}},
        JobQueueError,
        "meta['x'] is of type bytes, which JSON does not have; decode it, or pass it "
        "in base64.",
    ),
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("job_type", "payload", "options", "cause", "message"),
    REFUSED,
    ids=[message[:50] for *_, message in REFUSED],
)
def test_bad_call_says_so_and_leaves_the_callers_transaction_usable(
    job_type: str,
    payload: Any,
    options: dict[str, Any],
    cause: type[JobQueueError],
    message: str,
) -> None:
    with transaction.atomic():
        Effect.objects.create(name="before")
        with pytest.raises(cause) as caught:
            Job.objects.enqueue(job_type, payload, **options)
        Effect.objects.create(name="after")
    assert str(caught.value) == message
    assert set(Effect.objects.values_list("name", flat=True)) == {"before", "after"}
    assert not Job.objects.exists()


FAR_WEST, FAR_EAST = timezone(timedelta(hours=-5)), timezone(timedelta(hours=5))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["run_at", "expires_at"])
@pytest.mark.parametrize(
    "moment",
    [datetime.max.replace(tzinfo=FAR_WEST), datetime.min.replace(tzinfo=FAR_EAST)],
)
def test_moment_beyond_the_calendar_is_refused(name: str, moment: datetime) -> None:
    with pytest.raises(InvalidTime):
        Job.objects.enqueue("testapp.nothing", **{name: moment})
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("depth", [5_000, 20_000])
def test_depth_of_a_payload_is_limited_whatever_python_allows(depth: int) -> None:
    allowed = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        with transaction.atomic():
            with pytest.raises(InvalidPayload):
                Job.objects.enqueue("enqueue.anything", {"x": nest(depth)})
            Effect.objects.create(name="after")
    finally:
        sys.setrecursionlimit(allowed)


def test_payload_as_deep_as_allowed_is_stored() -> None:
    payload = {"x": nest(100)}
    Job.objects.enqueue("enqueue.anything", payload)
    assert Job.objects.get().payload == payload


def test_limit_of_the_payload_is_a_setting() -> None:
    with override_settings(JOBQUEUE={"MAX_PAYLOAD_BYTES": 10}):
        Job.objects.enqueue("enqueue.anything", {"x": "1234"[:2]})
        with pytest.raises(PayloadTooLarge):
            Job.objects.enqueue("enqueue.anything", {"x": "12345"})


def test_refused_call_touches_no_database(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0), pytest.raises(InvalidPriority):
        Job.objects.enqueue("testapp.nothing", priority=101)


def test_enqueue_takes_one_statement(
    django_assert_max_num_queries: Any,
) -> None:
    with django_assert_max_num_queries(3 if DATABASE == "sqlite" else 1):
        nothing.enqueue()


@pytest.mark.django_db(transaction=True)
def test_job_appears_on_commit() -> None:
    def count() -> int:
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(in_own_connection(Job.objects.count)).result()

    with transaction.atomic():
        nothing.enqueue()
        assert count() == 0
    assert count() == 1


@pytest.mark.django_db(transaction=True)
def test_job_is_gone_on_rollback() -> None:
    with rolled_back():
        nothing.enqueue()
        nothing.using(unique_key="a").enqueue()
        assert Job.objects.count() == 2
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_job_of_a_rolled_back_savepoint_is_gone_and_the_others_stay() -> None:
    with transaction.atomic():
        kept = nothing.enqueue()
        with rolled_back():
            nothing.enqueue()
    assert list(Job.objects.values_list("pk", flat=True)) == [kept.pk]


@pytest.mark.django_db(databases=["default", "business"])
def test_jobs_go_to_the_database_of_the_setting() -> None:
    with override_settings(JOBQUEUE={"DATABASE": "business"}):
        made = nothing.enqueue()
        assert made._state.db == "business"
        assert Job.objects.filter(pk=made.pk).exists()
    assert not Job.objects.exists()


def test_live_job_of_the_key_is_returned(db: Database) -> None:
    first = enqueue_job(JobSpec("testapp.add", {"x": 1}, unique_key="a"), db=db)
    second = enqueue_job(JobSpec("testapp.add", {"x": 2}, unique_key="a"), db=db)
    assert (first.was_created, second.was_created) == (True, False)
    assert second.pk == first.pk
    assert second.payload == {"x": 1}
    assert Job.objects.count() == 1


def test_key_belongs_to_its_job_type(db: Database) -> None:
    for job_type in ("testapp.nothing", "enqueue.urgent"):
        assert enqueue_job(JobSpec(job_type, unique_key="a"), db=db).was_created


def test_jobs_without_a_key_are_never_the_same(db: Database) -> None:
    made = [enqueue_job(JobSpec("testapp.nothing"), db=db) for _ in range(3)]
    assert all(job.was_created for job in made)
    assert Job.objects.count() == 3


def test_job_read_from_the_database_was_not_created_here() -> None:
    nothing.enqueue()
    assert Job.objects.get().was_created is False


@pytest.mark.django_db(transaction=True)
def test_taken_key_does_not_abort_the_callers_transaction(db: Database) -> None:
    first = nothing.using(unique_key="a").enqueue()
    with transaction.atomic():
        Effect.objects.create(name="before")
        again = enqueue_job(JobSpec("testapp.nothing", unique_key="a"), db=db)
        Effect.objects.create(name="after")
    assert (again.pk, again.was_created) == (first.pk, False)
    assert Effect.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_key_is_free_again_after_the_end() -> None:
    first = nothing.using(unique_key="a").enqueue()
    run_to_its_end(first)
    second = nothing.using(unique_key="a").enqueue()
    assert second.was_created
    assert second.pk != first.pk


@pytest.mark.django_db(transaction=True)
def test_key_is_free_again_after_a_cancel() -> None:
    nothing.using(unique_key="a").enqueue().cancel()
    assert nothing.using(unique_key="a").enqueue().was_created


@pytest.mark.django_db(transaction=True)
def test_key_is_taken_while_the_job_runs() -> None:
    first = nothing.using(unique_key="a").enqueue()
    claim_jobs(Database(alias="default"), {"default": 1}, worker_id=uuid4())
    second = nothing.using(unique_key="a").enqueue()
    assert (second.pk, second.was_created) == (first.pk, False)
    assert second.status == "running"


@contextmanager
def before_each(statement: str, act: Callable[[], Any]) -> Iterator[None]:
    """Act before each statement that begins so, as somebody else would just then."""
    is_acting = False

    def watch(execute: Any, sql: str, *rest: Any) -> Any:
        nonlocal is_acting
        if sql.lstrip().startswith(statement) and not is_acting:
            is_acting = True
            act()
            is_acting = False
        return execute(sql, *rest)

    with connection.execute_wrapper(watch):
        yield


def take_key() -> None:
    Job.objects.create(job_type="testapp.nothing", unique_key="a")


def free_key() -> None:
    Job.objects.filter(unique_key="a").update(unique_key=None)


def test_key_that_changes_hands_on_every_try_says_so(db: Database) -> None:
    spec = JobSpec("testapp.nothing", unique_key="a")
    with (
        before_each("INSERT", take_key),
        before_each("SELECT", free_key),
        pytest.raises(UniqueKeyBusy) as caught,
    ):
        enqueue_job(spec, db=db)
    assert str(caught.value) == (
        "The unique key 'a' of testapp.nothing was taken and freed on each of 3 tries. "
        "Enqueue again."
    )
    assert not Job.objects.filter(pk=spec.id).exists()


def test_key_freed_before_it_was_looked_at_is_tried_again(db: Database) -> None:
    take_key()
    spec = JobSpec("testapp.nothing", unique_key="a")
    with before_each("SELECT", free_key):
        made = enqueue_job(spec, db=db)
    assert made.was_created
    assert Job.objects.filter(pk=spec.id).exists()


@pytest.mark.django_db(transaction=True)
def test_aenqueue_enqueues() -> None:
    async def enqueue() -> list[Job]:
        return [
            await Job.objects.aenqueue("testapp.add", {"x": 1}, priority=5),
            await add.using(queue="mail").aenqueue(2, y=3),
            await EmailHandler.aenqueue(to="ann"),
        ]

    # Not asyncio.run(): its threads would keep a connection open.
    made = async_to_sync(enqueue)()
    assert [(job.job_type, job.payload, job.queue, job.priority) for job in made] == [
        ("testapp.add", {"x": 1}, "default", 5),
        ("testapp.add", {"x": 2, "y": 3}, "mail", 0),
        ("testapp.email", {"to": "ann"}, "mail", 0),
    ]
    assert Job.objects.count() == 3


@pytest.mark.django_db(transaction=True)
def test_aenqueue_refuses_as_enqueue_does() -> None:
    with pytest.raises(InvalidPriority):
        async_to_sync(Job.objects.aenqueue)("testapp.nothing", priority=101)


def in_own_connection(work: Callable[[], Any]) -> Callable[[], Any]:
    """Return the work for another thread, which closes its connection afterwards."""

    def run() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    return run


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_creates_and_the_other_finds() -> None:
    together = threading.Barrier(2, timeout=30)

    def enqueue() -> Job:
        connection.ensure_connection()
        together.wait()
        return nothing.using(unique_key="race").enqueue()

    for _ in range(10):
        with ThreadPoolExecutor(2) as executor:
            futures = [executor.submit(in_own_connection(enqueue)) for _ in range(2)]
            first, second = (future.result(30) for future in futures)
        assert first.pk == second.pk
        assert {first.was_created, second.was_created} == {True, False}
        run_to_its_end(first)


def enqueue_beside(executor: ThreadPoolExecutor) -> tuple[Future[Job], int]:
    """Enqueue in another thread; return when it waits for our transaction."""
    pid: Future[int] = Future()

    def enqueue() -> Job:
        connection.ensure_connection()
        pid.set_result(connection.connection.info.backend_pid)
        return nothing.using(unique_key="race").enqueue()

    future = executor.submit(in_own_connection(enqueue))
    wait_until_blocked(pid.result(30))
    return future, pid.result()


def wait_until_blocked(pid: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT cardinality(pg_blocking_pids(%s))", [pid])
            if cursor.fetchone() != (0,):
                return
    pytest.fail("the other transaction did not wait")


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_loser_of_a_race_finds_what_the_winner_committed() -> None:
    with ThreadPoolExecutor(1) as executor:
        with transaction.atomic():
            winner = nothing.using(unique_key="race").enqueue()
            future, _ = enqueue_beside(executor)
        loser = future.result(30)
    assert (loser.pk, loser.was_created) == (winner.pk, False)
    assert Job.objects.count() == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_loser_of_a_race_creates_when_the_winner_rolls_back() -> None:
    with ThreadPoolExecutor(1) as executor:
        with rolled_back():
            winner = nothing.using(unique_key="race").enqueue()
            future, _ = enqueue_beside(executor)
        loser = future.result(30)
    assert loser.was_created
    assert loser.pk != winner.pk
    assert Job.objects.get().pk == loser.pk


@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("options", [{}, {"unique_key": "a"}])
def test_enqueue_may_be_the_first_query_of_a_connection(
    monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    """Django 6.0.0 reads the limit from a connection that it has not opened yet."""

    def read_limit(features: Any) -> int:
        assert features.connection.connection is not None
        return 999

    monkeypatch.setattr(
        type(connection.features), "max_query_params", property(read_limit)
    )
    connection.close()
    Job.objects.enqueue("testapp.nothing", **options)
    connection.close()
    Job.objects.enqueue_many([JobSpec("testapp.nothing")])
    assert Job.objects.count() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "enqueue",
    [nothing.enqueue, lambda: Job.objects.enqueue_many([JobSpec("testapp.nothing")])],
)
def test_missing_table_gives_a_hint_at_migrate(enqueue: Callable[[], object]) -> None:
    with connection.schema_editor() as editor:
        editor.alter_db_table(Job, "jobqueue_job", "elsewhere")
    try:
        with pytest.raises(DatabaseError) as caught:
            enqueue()
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(Job, "elsewhere", "jobqueue_job")
    assert "manage.py migrate" in "".join(caught.value.__notes__)
