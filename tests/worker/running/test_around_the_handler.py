"""Code of the project before and after a handler has a limit that is enforced."""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from django_jobqueue.options import make_options
from django_jobqueue.outcomes import Died
from django_jobqueue.storage.claims import Claim
from django_jobqueue.worker.running import attempt as attempt_module
from django_jobqueue.worker.running import prepare as prepare_module
from django_jobqueue.worker.running.attempt_env import AttemptEnv
from django_jobqueue.worker.running.in_flight import InFlightJob
from django_jobqueue.worker.running.memory_place import (
    AROUND_HANDLER_SECONDS,
    MemoryPlace,
)
from django_jobqueue.worker.running.thread_pool import THREAD_DIED
from django_jobqueue.worker.supervision.memory_values import (
    InterruptReason,
    RunningAttempt,
)
from django_jobqueue.worker.supervision.shared_memory import SharedMemory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GRACE = 5.0


class Scene:
    """One attempt, and what its supervisor sees while the project's code runs."""

    def __init__(self) -> None:
        self.shared_memory = SharedMemory(1)
        self.seen: list[RunningAttempt] = []

    def look(self, *args: Any, **kwargs: Any) -> None:
        self.seen += self.shared_memory.read_places()

    def run(self, job_type: str, payload: dict[str, Any]) -> None:
        values: dict[str, Any] = dict.fromkeys(Claim._fields)
        values |= {"id": uuid.uuid4(), "lease_token": 1, "attempt": 1, "args": "[]"}
        values |= {"run_at": NOW, "claimed_at": NOW, "given_back": 0}
        values |= {"job_type": job_type, "payload": json.dumps(payload)}
        claim = Claim(**values)
        job = InFlightJob(claim, MemoryPlace(claim, self.shared_memory, GRACE))
        env = AttemptEnv(
            options=make_options({}),
            worker_id=uuid.uuid4(),
            report_progress=lambda claim, progress: None,
            report_started=lambda claim: None,
            tidy=self.look,
            needs_tidying=lambda: True,
        )
        attempt_module.run_attempt(job, env)
        job.free()
        assert not list(self.shared_memory.read_places())
        self.shared_memory.close_file()


def test_judging_and_tidying_after_the_handler_has_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()

    def judge(error: BaseException, *args: Any) -> Died:
        assert isinstance(error, TypeError)
        scene.look()
        return THREAD_DIED

    monkeypatch.setattr(attempt_module, "judge_error", judge)
    scene.run("testapp.add", {"no_such_argument": 1})
    before, judging, tidying = scene.seen
    assert before.cause is InterruptReason.TIDYING
    for each in (judging, tidying):
        assert each.cause is InterruptReason.OUTSIDE
        limit = time.monotonic() + GRACE + AROUND_HANDLER_SECONDS
        assert each.limit == pytest.approx(limit, abs=5)
        assert each.max_attempts == before.max_attempts > 1


def test_import_of_a_task_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    monkeypatch.setattr(prepare_module, "_import_handler", scene.look)
    scene.run("project.tasks.unknown", {})
    [importing] = scene.seen
    assert importing.cause is InterruptReason.OUTSIDE
    limit = time.monotonic() + GRACE + AROUND_HANDLER_SECONDS
    assert importing.limit == pytest.approx(limit, abs=5)
    assert importing.max_attempts > 1
