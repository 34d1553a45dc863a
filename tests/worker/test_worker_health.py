"""What a worker does about a stuck loop."""

from __future__ import annotations

import pytest

from django_jobqueue.options import get_options
from django_jobqueue.worker import worker_health
from django_jobqueue.worker.loop import Loop
from django_jobqueue.worker.supervision.memory_values import Stall
from django_jobqueue.worker.supervision.shared_memory import SharedMemory
from django_jobqueue.worker.worker import Worker
from django_jobqueue.worker.worker_health import StallHandler


def test_stuck_maintenance_does_not_end_a_process_in_which_a_job_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[Loop] = []
    monkeypatch.setattr(worker_health, "end_stuck", ended.append)
    worker = Worker(get_options())
    worker.shared_memory = SharedMemory(1)
    loop = worker.maintenance.loop
    loop._failing_since = 5.0
    monkeypatch.setattr(type(worker.slots), "running", 1)
    handler = StallHandler(worker)

    handler.on_stuck(loop)
    handler.on_check(None)

    assert ended == []
    # The supervisor lets its jobs end and starts another process.
    assert worker.shared_memory.stall == Stall(
        part="maintenance", since=5.0, is_curable=True
    )
    assert not worker.shared_memory.has_ended

    monkeypatch.setattr(type(worker.slots), "running", 0)
    handler.on_stuck(loop)
    assert ended == [loop]
