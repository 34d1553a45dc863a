"""Random histories of arrows end alike in every version of them and in a small model.

On PostgreSQL the hand-written statements (on `default`) and the portable version (on
`business`) walk the same history side by side; on SQLite the portable version does. A
failing history is printed as a program, with what it takes to run it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.failures import Failure
from django_jobqueue.lifecycle.beat import Pulse, WorkerIdentity, beat_workers
from django_jobqueue.lifecycle.cancel import cancel_job
from django_jobqueue.lifecycle.claim import (
    Claim,
    Suspects,
    claim_jobs,
)
from django_jobqueue.lifecycle.database import Database
from django_jobqueue.lifecycle.endings import Ending
from django_jobqueue.lifecycle.enqueue import enqueue_job
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.lifecycle.look import look_around
from django_jobqueue.lifecycle.promote import promote_jobs
from django_jobqueue.lifecycle.prune import prune_jobs
from django_jobqueue.lifecycle.reconcile import make_claim, read_owned_jobs
from django_jobqueue.lifecycle.requeue import requeue_jobs
from django_jobqueue.lifecycle.rescue import rescue_jobs
from django_jobqueue.models import Attempt, WorkerHeartbeat
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import (
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Outcome,
    Retried,
    Succeeded,
    judge_crash,
    judge_overrun,
)
from django_jobqueue.states import AttemptOutcome, DeadReason
from tests.histories.model import ModelJob, ModelQueue

NAMESPACE = UUID("6f1c1d0e-0000-4000-8000-000000000000")
WORKERS = [uuid5(NAMESPACE, f"worker {n}") for n in range(3)]
START = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = [
    "succeeded",
    "failed",
    "snoozed",
    "released",
    "unknown_handler",
    "cancelled",
    "discarded",
]
QUEUES = st.sampled_from(["a", "b"])
PRIORITIES = st.sampled_from([-1, 0, 0, 5])
KEYS = st.sampled_from([None, None, None, "k1", "k2"])
LIMITS = st.sampled_from([None, 1, 5])
SECONDS = [0, 0, 7]
CAUSE = "killed by SIGKILL"
CRASHED = "WorkerCrashed: The process that ran this job died: killed by SIGKILL."
CRASHED_ALONE = (
    "WorkerCrashed: The process that ran this job and nothing else died: killed by "
    "SIGKILL."
)
OVERRUN = (
    "JobTimeout: The attempt took longer than 9 s and did not stop within 5 s after "
    "that; its process was replaced."
)
PULSE = Pulse(state="running", processed=0, failed=0, running=0, memory=0)


class World:
    """One version of the arrows on a database of its own."""

    def __init__(self, alias: str, *, is_portable: bool) -> None:
        self.name = f"{connections[alias].vendor} portable={is_portable}"
        self.db = Database(alias=alias, is_portable=is_portable)
        # (job, token) → the claim this world handed out.
        self.claims: dict[tuple[UUID, int], Claim] = {}
        # (job, token) → how the supervisor ended it when its process died.
        self.crashes: dict[tuple[UUID, int], Ending] = {}

    def read_jobs(self) -> dict[UUID, tuple[Any, ...]]:
        rows = Job.objects.using(self.db.alias).all()
        return {job.pk: describe(job) for job in rows}

    def read_dead(self) -> dict[UUID, tuple[Any, ...]]:
        rows = DeadJob.objects.using(self.db.alias).all()
        return {dead.pk: describe_dead(dead) for dead in rows}

    def read_attempts(self) -> dict[tuple[UUID, int], tuple[int, str]]:
        return {
            (row.job_id, row.lease_token): (row.number, row.outcome)
            for row in Attempt.objects.using(self.db.alias).all()
        }


def describe(job: Job | ModelJob) -> tuple[Any, ...]:
    """What a live job must look like in every world."""
    is_model = isinstance(job, ModelJob)
    return (
        str(job.status),
        job.attempts,
        job.lease_token,
        job.crashes,
        job.lost,
        job.given_back,
        job.isolate,
        job.worker_id,
        job.unique_key,
        job.max_attempts,
        job.run_at,
        job.rank if job.status == "pending" else None,
        job.error,
        job.prune_at,
        job.is_unknown if is_model else job.unknown_since is not None,
        job.is_cancel_requested if is_model else job.cancel_requested_at is not None,
    )


def describe_dead(job: DeadJob | ModelJob) -> tuple[Any, ...]:
    return (
        str(job.reason),
        job.attempts,
        job.lease_token,
        job.crashes,
        job.lost,
        job.given_back,
        job.isolate,
        job.unique_key,
        job.max_attempts,
        job.error,
    )


def make_identity(worker: UUID) -> WorkerIdentity:
    return WorkerIdentity(
        id=worker,
        host="elsewhere",
        pid=1,
        name="",
        queues={},
        concurrency=1,
        version="",
    )


def make_outcome(label: str, delay: timedelta, error: str) -> Outcome:
    failure = Failure(message=error)
    match label:
        case "succeeded":
            return Succeeded("1")
        case "failed":
            return Retried(delay=delay, failure=failure)
        case "cancelled":
            return Cancelled(error)
        case "discarded":
            return Died(
                reason=DeadReason.DISCARDED,
                failure=failure,
                label=AttemptOutcome.DISCARDED,
            )
        case _:
            return GivenBack(
                label=AttemptOutcome(label),
                delay=delay,
                failure=failure,
                is_trouble=error == "trouble",
            )


class Histories(RuleBasedStateMachine):
    """Every rule does one arrow in every world and in the model, and compares."""

    jobs: Bundle[UUID] = Bundle("jobs")
    claims: Bundle[tuple[UUID, int, UUID]] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.options = get_options()
        self.now = START
        self.count = 0
        self.model = ModelQueue(
            ttl=self.options.heartbeat_ttl,
            max_attempts=self.options.max_attempts,
            max_crashes=self.options.max_crashes,
            max_lost=self.options.max_lost,
        )
        self.worlds = make_worlds()
        # Each history is undone at its end.
        self.stack = ExitStack()
        for world in self.worlds:
            self.stack.enter_context(transaction.atomic(using=world.db.alias))

    def teardown(self) -> None:
        for world in self.worlds:
            transaction.set_rollback(True, using=world.db.alias)
        self.stack.close()

    @initialize(target=jobs, count=st.integers(2, 6), data=st.data())
    def begin_with_some_jobs(self, count: int, data: st.DataObject) -> Any:
        made = [
            self.enqueue(
                data.draw(QUEUES),
                data.draw(PRIORITIES),
                0,
                data.draw(KEYS),
                data.draw(LIMITS),
            )
            for _ in range(count)
        ]
        return multiple(*made)

    @rule(seconds=st.sampled_from([0.001, 1, 10, 31, 400, 90_000, 700_000]))
    def let_time_pass(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(seconds=st.sampled_from([1, 60, 4000]))
    def set_the_clock_back(self, seconds: int) -> None:
        self.now -= timedelta(seconds=seconds)

    @rule(
        target=jobs,
        queue=QUEUES,
        priority=PRIORITIES,
        delay=st.sampled_from([0, 0, 0, 5, 100]),
        key=KEYS,
        max_attempts=LIMITS,
    )
    def enqueue(
        self,
        queue: str,
        priority: int,
        delay: int,
        key: str | None,
        max_attempts: int | None,
    ) -> UUID:
        self.count += 1
        id = uuid5(NAMESPACE, f"job {self.count}")
        expected = self.model.enqueue(
            id,
            self.now,
            timedelta(seconds=delay),
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            unique_key=key,
        )
        for world in self.worlds:
            spec = JobSpec(
                "testapp.nothing",
                {},
                queue=queue,
                priority=priority,
                delay=delay,
                unique_key=key,
                max_attempts=max_attempts,
            )
            spec.id = id
            job = enqueue_job(spec, db=world.db, now=self.now)
            assert (job.pk, job.was_created) == (expected, expected == id)
        return expected

    @rule()
    def promote(self) -> None:
        self.model.promote(self.now)
        for world in self.worlds:
            promote_jobs(world.db, limit=1000, aging=self.options.aging, now=self.now)

    @rule(
        target=claims,
        worker=st.sampled_from(WORKERS),
        quotas=st.sampled_from([{"a": 1}, {"b": 2}, {"a": 2, "b": 1}]),
        suspects=st.sampled_from(Suspects),
        is_reply_lost=st.sampled_from([False, False, False, True]),
    )
    def claim(
        self,
        worker: UUID,
        quotas: dict[str, int],
        suspects: Suspects,
        is_reply_lost: bool,
    ) -> Any:
        expected = self._claim(quotas, worker, suspects)
        if is_reply_lost:
            return multiple()
        return multiple(*((id, token, worker) for id, token in expected))

    @rule(
        worker=st.sampled_from(WORKERS),
        label=st.sampled_from(LABELS),
        delay=st.sampled_from(SECONDS),
        error=st.sampled_from(["oops", "trouble"]),
    )
    def run(self, worker: UUID, label: str, delay: int, error: str) -> None:
        """Claim what there is and finish it: the usual life, in one step."""
        self.promote()
        for id, token in self._claim({"a": 2, "b": 2}, worker, Suspects.TOO):
            self.finish((id, token, worker), label, delay, error, False)

    def _claim(
        self, quotas: dict[str, int], worker: UUID, suspects: Suspects
    ) -> list[tuple[UUID, int]]:
        expected = self.model.claim(quotas, worker, suspects.value)
        for world in self.worlds:
            claimed = claim_jobs(
                world.db, quotas, worker_id=worker, suspects=suspects, now=self.now
            )
            assert [(c.id, c.lease_token) for c in claimed] == expected
            world.claims |= {(c.id, c.lease_token): c for c in claimed}
        return expected

    @rule(
        claim=claims,
        label=st.sampled_from(LABELS),
        delay=st.sampled_from(SECONDS),
        error=st.sampled_from(["oops", "trouble"]),
        is_sent_twice=st.booleans(),
    )
    def finish(
        self,
        claim: tuple[UUID, int, UUID],
        label: str,
        delay: int,
        error: str,
        is_sent_twice: bool,
    ) -> None:
        """Finish a claim, be it still ours or not; a lost reply sends it twice."""
        id, token, worker = claim
        if label == "succeeded":
            error = ""
        pause = timedelta(seconds=delay)
        outcome = make_outcome(label, pause, error)
        for _ in range(2 if is_sent_twice else 1):
            expected = self.model.finish(
                id, token, worker, now=self.now, label=label, delay=pause, error=error
            )
            for world in self.worlds:
                ending = Ending(claim=world.claims[id, token], outcome=outcome)
                assert self._write(world, ending, worker) == expected, world.name

    def _write(self, world: World, ending: Ending, worker: UUID) -> str:
        report = finish_attempts(
            world.db, [ending], worker_id=worker, options=self.options, now=self.now
        )
        return "done" if report.done else "lost" if report.lost else "busy"

    @rule(
        claim=claims,
        delay=st.sampled_from(SECONDS),
        is_sent_twice=st.booleans(),
    )
    def take_an_overrun(
        self, claim: tuple[UUID, int, UUID], delay: int, is_sent_twice: bool
    ) -> None:
        """The supervisor ends an attempt, be it still that worker's or not."""
        id, token, worker = claim
        pause = timedelta(seconds=delay)
        for _ in range(2 if is_sent_twice else 1):
            expected = self.model.finish(
                id,
                token,
                worker,
                now=self.now,
                label="timeout",
                delay=pause,
                error=OVERRUN,
                is_taken=True,
            )
            for world in self.worlds:
                claimed = world.claims[id, token]
                outcome = judge_overrun(
                    attempt=claimed.attempt,
                    max_attempts=claimed.max_attempts or self.options.max_attempts,
                    delay=pause,
                    timeout=timedelta(seconds=9),
                    grace=timedelta(seconds=5),
                )
                ending = Ending(claim=claimed, outcome=outcome, is_taken=True)
                assert self._write(world, ending, worker) == expected, world.name

    @precondition(lambda self: self.list_owners())
    @rule(
        data=st.data(),
        count=st.sampled_from([0, 1, 1, 2, 3]),
        is_sent_twice=st.booleans(),
    )
    def die(self, data: st.DataObject, count: int, is_sent_twice: bool) -> None:
        """A worker's process dies with so many jobs inside their handlers.

        The supervisor charges those and gives back what had not begun.
        """
        worker = data.draw(st.sampled_from(self.list_owners()))
        owned = self._list_owned(worker)
        inside = data.draw(st.permutations(owned))[:count]
        for claim in owned:
            for _ in range(2 if is_sent_twice else 1):
                if claim in inside:
                    self._crash(claim, worker, is_alone=len(inside) == 1)
                else:
                    self._take_back(claim, worker)

    def _crash(self, claim: tuple[UUID, int], worker: UUID, *, is_alone: bool) -> None:
        id, token = claim
        pause = timedelta(seconds=3)
        ends = [
            (world, self._judge_crash(world, claim, worker, is_alone=is_alone))
            for world in self.worlds
        ]
        expected = self.model.crash(
            id,
            token,
            worker,
            now=self.now,
            is_alone=is_alone,
            delay=pause,
            error=CRASHED_ALONE if is_alone else CRASHED,
        )
        for world, ending in ends:
            if isinstance(ending.outcome, Crashed):
                # Without the jitter, so that all worlds wait for as long.
                ending.outcome = replace(ending.outcome, delay=pause)
            assert self._write(world, ending, worker) == expected, world.name

    def _judge_crash(
        self, world: World, claim: tuple[UUID, int], worker: UUID, *, is_alone: bool
    ) -> Ending:
        """Judge by what the database says, as the supervisor does."""
        if claim not in world.crashes:
            [job] = [
                job
                for job in read_owned_jobs(world.db, worker)
                if (job.id, job.lease_token) == claim
            ]
            outcome = judge_crash(
                CAUSE,
                crashes=job.crashes,
                attempt=job.attempt,
                max_attempts=job.max_attempts or self.options.max_attempts,
                max_crashes=self.options.max_crashes,
                is_alone=is_alone,
            )
            world.crashes[claim] = Ending(
                claim=make_claim(job), outcome=outcome, is_taken=True
            )
        return world.crashes[claim]

    def _take_back(self, claim: tuple[UUID, int], worker: UUID) -> None:
        id, token = claim
        expected = self.model.finish(
            id,
            token,
            worker,
            now=self.now,
            label="released",
            delay=timedelta(),
            error="",
            is_taken=True,
        )
        for world in self.worlds:
            claimed = world.claims[claim]
            outcome = GivenBack(label=AttemptOutcome.RELEASED)
            ending = Ending(claim=claimed, outcome=outcome, is_taken=True)
            assert self._write(world, ending, worker) == expected, world.name

    def list_owners(self) -> list[UUID]:
        return sorted({job.worker_id for job in self.model.jobs.values()} - {None})

    def _list_owned(self, worker: UUID) -> list[tuple[UUID, int]]:
        return [
            (job.id, job.lease_token)
            for job in self.model.jobs.values()
            if job.worker_id == worker
        ]

    @rule(worker=st.sampled_from(WORKERS))
    def reconcile(self, worker: UUID) -> None:
        """Give back what a worker owns although it holds nothing: it was restarted."""
        owned = self._list_owned(worker)
        for world in self.worlds:
            found = read_owned_jobs(world.db, worker)
            assert sorted((job.id, job.lease_token) for job in found) == sorted(owned)
        for id, token in owned:
            self.finish((id, token, worker), "released", 0, "", False)

    @rule(workers=st.sampled_from([WORKERS[:1], WORKERS[1:], WORKERS]))
    def beat(self, workers: list[UUID]) -> None:
        self.model.beats |= dict.fromkeys(workers, self.now)
        limit = self.now - self.model.ttl
        is_someone_silent = any(seen < limit for seen in self.model.beats.values())
        beats = [(make_identity(worker), PULSE) for worker in workers]
        for world in self.worlds:
            replies = beat_workers(world.db, beats, ttl=self.model.ttl, now=self.now)
            told = {id: reply.is_someone_silent for id, reply in replies.items()}
            assert told == dict.fromkeys(workers, is_someone_silent), world.name

    @rule()
    def rescue(self) -> None:
        expected = self.model.rescue(self.now)
        for world in self.worlds:
            rescued = rescue_jobs(world.db, options=self.options, now=self.now)
            assert len(rescued) == expected, world.name

    @rule(id=jobs)
    def cancel(self, id: UUID) -> None:
        expected = self.model.cancel(id, self.now)
        for world in self.worlds:
            assert cancel_job(Job(pk=id), db=world.db, now=self.now) == expected

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data(), reset=st.booleans())
    def requeue(self, data: st.DataObject, reset: bool) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.dead)))
        is_back = self.model.requeue(id, self.now, reset=reset)
        for world in self.worlds:
            rows = DeadJob.objects.using(world.db.alias).filter(pk=id)
            counts = requeue_jobs(rows, reset_attempts=reset, db=world.db, now=self.now)
            assert (counts.requeued, counts.key_in_use) == (is_back, not is_back)

    @rule()
    def prune(self) -> None:
        expected = self.model.prune(self.now)
        for world in self.worlds:
            # One call takes one batch, of one status.
            count = 0
            while batch := prune_jobs(world.db, limit=1000, now=self.now):
                count += batch
            assert count == expected, world.name

    @invariant()
    def looks_find_what_a_claim_would_take(self) -> None:
        pending = [job for job in self.model.jobs.values() if job.status == "pending"]
        queues = {job.queue for job in pending if not job.isolate}
        suspects = {job.queue for job in pending if job.isolate}
        for world in self.worlds:
            look = look_around(world.db, now=self.now)
            assert sorted(look.queues) == sorted(queues), world.name
            assert sorted(look.suspects) == sorted(suspects), world.name

    @invariant()
    def all_worlds_are_alike(self) -> None:
        jobs = {id: describe(job) for id, job in self.model.jobs.items()}
        dead = {id: describe_dead(job) for id, job in self.model.dead.items()}
        for world in self.worlds:
            assert world.read_jobs() == jobs, world.name
            assert world.read_dead() == dead, world.name
            assert world.read_attempts() == self.model.attempts, world.name


def make_worlds() -> list[World]:
    if connections["default"].vendor == "postgresql":
        return [
            World("default", is_portable=False),
            World("business", is_portable=True),
        ]
    return [World("default", is_portable=True)]


@pytest.fixture
def no_leftovers(db: None) -> Iterator[None]:
    yield
    assert not WorkerHeartbeat.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.django_db(databases=["default", "business"])
def test_random_histories_end_alike_in_every_version_and_in_the_model(
    no_leftovers: None,
) -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=500,
            stateful_step_count=12,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.django_db(databases=["default", "business"])
def test_short_random_histories_end_alike(no_leftovers: None) -> None:
    """A smaller dose of the same, for every combination of versions."""
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
