"""Random histories end in the same state in every version of the transitions.

On PostgreSQL the hand-written statements (on `default`) and the portable version (on
`business`) run the same history, on SQLite only the portable version does. Both are
compared with a small model. A failing history is printed as a program that repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import pytest
from django.db import transaction
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
from django_jobqueue.lifecycle.cancel import cancel_job
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.lifecycle.enqueue import enqueue_job
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.lifecycle.promote import promote_jobs
from django_jobqueue.lifecycle.prune import prune_jobs
from django_jobqueue.lifecycle.requeue import requeue_jobs
from django_jobqueue.lifecycle.rescue import rescue_jobs
from django_jobqueue.models import WorkerHeartbeat
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Crashed, GivenBack, judge_crash, judge_overrun
from django_jobqueue.states import AttemptOutcome
from django_jobqueue.storage.backlog import read_backlog
from django_jobqueue.storage.claims import Suspects
from django_jobqueue.storage.endings import Ending
from django_jobqueue.storage.ownership import make_claim, read_owned_jobs
from django_jobqueue.storage.worker_rows import BeatValues, beat_workers
from tests.histories.model import ModelQueue
from tests.histories.versions import (
    Version,
    describe,
    describe_dead,
    make_identity,
    make_outcome,
    make_versions,
)

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
BEAT = BeatValues(state="running", processed=0, failed=0, running=0, memory=0)


class Histories(RuleBasedStateMachine):
    """Every rule runs one transition in every version and in the model."""

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
        self.versions = make_versions()
        # Each history is rolled back at its end.
        self.stack = ExitStack()
        for version in self.versions:
            self.stack.enter_context(transaction.atomic(using=version.db.alias))

    def teardown(self) -> None:
        for version in self.versions:
            transaction.set_rollback(True, using=version.db.alias)
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
        for version in self.versions:
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
            job = enqueue_job(spec, db=version.db, now=self.now)
            assert (job.pk, job.was_created) == (expected, expected == id)
        return expected

    @rule()
    def promote(self) -> None:
        self.model.promote(self.now)
        for version in self.versions:
            promote_jobs(version.db, limit=1000, aging=self.options.aging, now=self.now)

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
        """Claim the pending jobs and finish them: the usual life, in one step."""
        self.promote()
        for id, token in self._claim({"a": 2, "b": 2}, worker, Suspects.INCLUDED):
            self.finish((id, token, worker), label, delay, error, False)

    @rule(
        worker=st.sampled_from(WORKERS),
        way=st.sampled_from(["released", "taken", "rescued"]),
        label=st.sampled_from(LABELS),
        delay=st.sampled_from(SECONDS),
    )
    def write_late_after_claiming_again(
        self, worker: UUID, way: str, label: str, delay: int
    ) -> None:
        """A worker loses its claims and claims the same jobs again. Then it writes the
        ends of its first attempts: all of them must be refused."""
        self.promote()
        old = self._claim({"a": 2, "b": 2}, worker, Suspects.INCLUDED)
        for id, token in old:
            if way == "released":
                self.finish((id, token, worker), "released", 0, "", False)
            elif way == "taken":
                self._take_back((id, token), worker)
        if way == "rescued":
            self.now += 2 * self.model.ttl
            self.rescue()
        self._claim({"a": 99, "b": 99}, worker, Suspects.INCLUDED)
        for id, token in old:
            self.finish((id, token, worker), label, delay, "oops", False)

    @rule(
        worker=st.sampled_from(WORKERS),
        label=st.sampled_from(LABELS),
        way=st.sampled_from(["finished", "crashed", "rescued"]),
        delay=st.sampled_from(SECONDS),
    )
    def cancel_while_running(
        self, worker: UUID, label: str, way: str, delay: int
    ) -> None:
        """Cancel running jobs; their attempts then end in various ways."""
        self.promote()
        claimed = self._claim({"a": 2, "b": 2}, worker, Suspects.INCLUDED)
        for id, token in claimed:
            self.cancel(id)
            if way == "finished":
                self.finish((id, token, worker), label, delay, "oops", True)
            elif way == "crashed":
                self._crash((id, token), worker, is_alone=len(claimed) == 1)
        if way == "rescued":
            self.now += 2 * self.model.ttl
            self.rescue()

    def _claim(
        self, quotas: dict[str, int], worker: UUID, suspects: Suspects
    ) -> list[tuple[UUID, int]]:
        expected = self.model.claim(quotas, worker, suspects.value)
        for version in self.versions:
            claimed = claim_jobs(
                version.db, quotas, worker_id=worker, suspects=suspects, now=self.now
            )
            assert [(c.id, c.lease_token) for c in claimed] == expected
            version.claims |= {(c.id, c.lease_token): c for c in claimed}
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
        """Finish a claim, owned or not; a lost reply sends it twice."""
        id, token, worker = claim
        if label == "succeeded":
            error = ""
        pause = timedelta(seconds=delay)
        outcome = make_outcome(label, pause, error)
        for _ in range(2 if is_sent_twice else 1):
            expected = self.model.finish(
                id, token, worker, now=self.now, label=label, delay=pause, error=error
            )
            for version in self.versions:
                ending = Ending(claim=version.claims[id, token], outcome=outcome)
                assert self._write(version, ending, worker) == expected, version.name

    def _write(self, version: Version, ending: Ending, worker: UUID) -> str:
        report = finish_attempts(
            version.db, [ending], worker_id=worker, options=self.options, now=self.now
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
        """The supervisor ends an attempt, whether the worker still owns it or not."""
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
            for version in self.versions:
                claimed = version.claims[id, token]
                outcome = judge_overrun(
                    attempt=claimed.attempt,
                    max_attempts=claimed.max_attempts or self.options.max_attempts,
                    delay=pause,
                    timeout=timedelta(seconds=9),
                    grace=timedelta(seconds=5),
                )
                ending = Ending(claim=claimed, outcome=outcome, is_taken=True)
                assert self._write(version, ending, worker) == expected, version.name

    @precondition(lambda self: self.list_owners())
    @rule(
        data=st.data(),
        count=st.sampled_from([0, 1, 1, 2, 3]),
        is_sent_twice=st.booleans(),
    )
    def die(self, data: st.DataObject, count: int, is_sent_twice: bool) -> None:
        """A worker's process dies while `count` of its handlers run.

        The supervisor charges these jobs and gives back those that had not started.
        """
        worker = data.draw(st.sampled_from(self.list_owners()))
        owned = self._list_owned(worker)
        running = data.draw(st.permutations(owned))[:count]
        for claim in owned:
            for _ in range(2 if is_sent_twice else 1):
                if claim in running:
                    self._crash(claim, worker, is_alone=len(running) == 1)
                else:
                    self._take_back(claim, worker)

    def _crash(self, claim: tuple[UUID, int], worker: UUID, *, is_alone: bool) -> None:
        id, token = claim
        pause = timedelta(seconds=3)
        ends = [
            (version, self._judge_crash(version, claim, worker, is_alone=is_alone))
            for version in self.versions
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
        for version, ending in ends:
            if isinstance(ending.outcome, Crashed):
                # Without jitter: all versions use the same delay.
                ending.outcome = replace(ending.outcome, delay=pause)
            assert self._write(version, ending, worker) == expected, version.name

    def _judge_crash(
        self, version: Version, claim: tuple[UUID, int], worker: UUID, *, is_alone: bool
    ) -> Ending:
        """Judge by the rows in the database, as the supervisor does."""
        if claim not in version.crashes:
            [job] = [
                job
                for job in read_owned_jobs(version.db, worker)
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
            version.crashes[claim] = Ending(
                claim=make_claim(job), outcome=outcome, is_taken=True
            )
        return version.crashes[claim]

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
        for version in self.versions:
            claimed = version.claims[claim]
            outcome = GivenBack(label=AttemptOutcome.RELEASED)
            ending = Ending(claim=claimed, outcome=outcome, is_taken=True)
            assert self._write(version, ending, worker) == expected, version.name

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
        """Give back the jobs that a restarted worker owns but does not run."""
        owned = self._list_owned(worker)
        for version in self.versions:
            found = read_owned_jobs(version.db, worker)
            assert sorted((job.id, job.lease_token) for job in found) == sorted(owned)
        for id, token in owned:
            self.finish((id, token, worker), "released", 0, "", False)

    @rule(workers=st.sampled_from([WORKERS[:1], WORKERS[1:], WORKERS]))
    def beat(self, workers: list[UUID]) -> None:
        self.model.beats |= dict.fromkeys(workers, self.now)
        limit = self.now - self.model.ttl
        is_someone_silent = any(seen < limit for seen in self.model.beats.values())
        beats = [(make_identity(worker), BEAT) for worker in workers]
        for version in self.versions:
            replies = beat_workers(version.db, beats, ttl=self.model.ttl, now=self.now)
            silent = {id: reply.is_someone_silent for id, reply in replies.items()}
            assert silent == dict.fromkeys(workers, is_someone_silent), version.name

    @rule()
    def rescue(self) -> None:
        expected = self.model.rescue(self.now)
        for version in self.versions:
            rescued = rescue_jobs(version.db, options=self.options, now=self.now).jobs
            assert len(rescued) == expected, version.name

    @rule(id=jobs)
    def cancel(self, id: UUID) -> None:
        expected = self.model.cancel(id, self.now)
        for version in self.versions:
            assert cancel_job(Job(pk=id), db=version.db, now=self.now) == expected

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data(), reset=st.booleans())
    def requeue(self, data: st.DataObject, reset: bool) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.dead)))
        is_back = self.model.requeue(id, self.now, reset=reset)
        for version in self.versions:
            rows = DeadJob.objects.using(version.db.alias).filter(pk=id)
            counts = requeue_jobs(
                rows, reset_attempts=reset, db=version.db, now=self.now
            )
            assert (counts.requeued, counts.key_in_use) == (is_back, not is_back)

    @rule()
    def prune(self) -> None:
        expected = self.model.prune(self.now)
        for version in self.versions:
            # One call prunes one batch of one status.
            count = 0
            while batch := prune_jobs(version.db, limit=1000, now=self.now):
                count += batch
            assert count == expected, version.name

    @invariant()
    def backlog_shows_what_a_claim_would_take(self) -> None:
        pending = [job for job in self.model.jobs.values() if job.status == "pending"]
        queues = {job.queue for job in pending if not job.isolate}
        suspects = {job.queue for job in pending if job.isolate}
        for version in self.versions:
            backlog = read_backlog(version.db, now=self.now)
            assert sorted(backlog.queues) == sorted(queues), version.name
            assert sorted(backlog.suspects) == sorted(suspects), version.name

    @invariant()
    def all_versions_have_the_same_rows(self) -> None:
        jobs = {id: describe(job) for id, job in self.model.jobs.items()}
        dead = {id: describe_dead(job) for id, job in self.model.dead.items()}
        for version in self.versions:
            assert version.read_jobs() == jobs, version.name
            assert version.read_dead() == dead, version.name
            assert version.read_attempts() == self.model.attempts, version.name


@pytest.fixture
def no_leftovers(db: None) -> Iterator[None]:
    yield
    assert not WorkerHeartbeat.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.django_db(databases=["default", "business"])
@pytest.mark.parametrize("way", ["released", "taken", "rescued"])
def test_a_late_write_is_refused_after_the_worker_claimed_the_job_again(
    no_leftovers: None, way: str
) -> None:
    for label in LABELS:
        history = Histories()
        try:
            history.enqueue("a", 0, 0, None, 5)
            history.write_late_after_claiming_again(WORKERS[0], way, label, 7)
            history.all_versions_have_the_same_rows()
        finally:
            history.teardown()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.django_db(databases=["default", "business"])
def test_random_histories_end_in_the_same_state_in_every_version(
    no_leftovers: None,
) -> None:
    run_histories(count=500, steps=12)


@pytest.mark.django_db(databases=["default", "business"])
def test_fewer_random_histories_end_in_the_same_state(no_leftovers: None) -> None:
    """Fewer histories of the same kind, for every combination of the matrix."""
    run_histories(count=25, steps=20)


def run_histories(*, count: int, steps: int) -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=count,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
