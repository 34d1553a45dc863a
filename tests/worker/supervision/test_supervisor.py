"""Decisions of a supervisor, tested without processes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from django_jobqueue.options import Options, make_options
from django_jobqueue.storage.claims import Claim
from django_jobqueue.worker.commands import Command
from django_jobqueue.worker.health.reporter import HealthReporter
from django_jobqueue.worker.health.watchdog import STUCK_TICKS
from django_jobqueue.worker.loop import STUCK_SECONDS
from django_jobqueue.worker.supervision.child import Child, _make_environment
from django_jobqueue.worker.supervision.child_watch import STUCK_CHILD_SECONDS
from django_jobqueue.worker.supervision.memory_values import Counts, Stage
from django_jobqueue.worker.supervision.pool_status import UNREADY_SECONDS
from django_jobqueue.worker.supervision.shared_memory import SharedMemory
from django_jobqueue.worker.supervision.supervised_heartbeat import (
    CHILD_VARIABLE,
    ChildSpec,
)
from django_jobqueue.worker.supervision.supervisor import Supervisor, logger


@pytest.fixture(autouse=True)
def flushed() -> Iterator[None]:
    yield
    assert logger.flush(10)


def seconds_left(supervisor: Supervisor) -> float:
    """Return how long its children would have to end."""
    return supervisor._kill_at - time.monotonic()


def test_an_orphan_drains_and_the_first_signal_leaves_it_the_time() -> None:
    supervisor = Supervisor(make_options({}), command=[], web_process=os.getppid())
    assert not supervisor.is_asked_to_stop()
    orphan = Supervisor(make_options({}), command=[], web_process=os.getpid())
    assert orphan.is_asked_to_stop()

    assert seconds_left(orphan) > 20
    orphan.stop()
    orphan.is_asked_to_stop()
    assert seconds_left(orphan) > 20
    orphan.stop()
    orphan.is_asked_to_stop()
    assert seconds_left(orphan) < 2


def test_probes_report_the_state_of_the_supervisor() -> None:
    health_reporter = HealthReporter(Options())
    supervisor = Supervisor(
        make_options({}), command=[], health_reporter=health_reporter
    )
    supervisor.is_asked_to_stop()
    assert health_reporter.answer_live()[0] == 200
    assert "no process is ready yet" in health_reporter.answer_ready()[1]["reasons"]
    supervisor.stop()
    supervisor.is_asked_to_stop()
    assert "draining" in health_reporter.answer_ready()[1]["reasons"]


def test_children_do_not_inherit_the_variables_of_the_service_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "MINE"):
        monkeypatch.setenv(name, "1")
    spec = ChildSpec(
        worker_id="",
        supervisor=1,
        shared_memory=3,
        command_pipe=4,
        places=1,
        is_isolated=False,
    )
    environment = _make_environment(spec)
    assert {"MINE", CHILD_VARIABLE} <= set(environment)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(environment)


class SilentChild(Child):
    """A child without a process; the test decides when it ticks."""

    def __init__(self, *, is_isolated: bool = False) -> None:
        self.shared_memory = SharedMemory(1)
        self.shared_memory.stage = Stage.READY
        self.is_isolated = is_isolated
        self.process: Any = SimpleNamespace(pid=7, poll=lambda: None)
        self._ticks, self._ticked = 0, time.monotonic()
        self._measured = self._ticked

    def age(self, seconds: float) -> None:
        """Let seconds pass in which the supervisor runs and the child shows no tick."""
        self._ticked -= seconds


def test_a_worker_whose_processes_do_not_run_is_not_ready() -> None:
    supervisor = Supervisor(make_options({"processes": 2}), command=[])
    one, other = SilentChild(), SilentChild()
    for slot, child in zip(supervisor._pool._slots, (one, other), strict=True):
        slot.child = child
    assert supervisor._read_status().is_ready
    one.age(UNREADY_SECONDS + 1)
    assert supervisor._read_status().is_ready
    other.age(UNREADY_SECONDS + 1)
    status = supervisor._read_status()
    assert not status.is_ready
    assert "process 7 has not run for 6 s" in status.silent[0]
    one.shared_memory.publish(Counts(ticks=1))
    assert supervisor._read_status().is_ready


def test_the_process_for_suspects_does_not_make_a_worker_ready() -> None:
    supervisor = Supervisor(make_options({}), command=[])
    supervisor._pool._isolation.child = SilentChild(is_isolated=True)
    assert not supervisor._read_status().is_ready


def test_the_time_in_which_the_supervisor_was_stopped_is_no_silence() -> None:
    child = SilentChild()
    began = child._measured
    assert child.measure_silence(began + 1) == pytest.approx(1)
    assert child.measure_silence(began + 100) == pytest.approx(1)
    assert child.measure_silence(began + 101) == pytest.approx(2)


class StubChild:
    """A child without a process that has been silent since SILENT."""

    stage = Stage.READY
    is_stalled = is_leaving = is_killed = False

    def __init__(self) -> None:
        self.shared_memory = SharedMemory(2)
        self.process = SimpleNamespace(pid=7)

    def enter(self, *, entered: float, limit: float) -> None:
        values: dict[str, Any] = dict.fromkeys(Claim._fields, 0)
        claim = Claim(**values | {"id": uuid4()})
        self.shared_memory.enter(claim, entered=entered, limit=limit, most=1)

    def kill(self) -> None:
        self.is_killed = True


SILENT = 1000.0
NOW = SILENT + STUCK_CHILD_SECONDS + 1


@pytest.mark.parametrize(
    ("attempts", "is_killed"),
    [
        pytest.param([], True, id="no attempt"),
        pytest.param([(900, NOW + 60)], False, id="one that may hold the interpreter"),
        pytest.param([(900, NOW - 1)], True, id="one past its limit"),
        pytest.param(
            [(900, NOW - 1), (900, NOW + 9)], False, id="only one past its limit"
        ),
        pytest.param([(1030, NOW + 60)], True, id="one that began in the silence"),
    ],
)
def test_a_silent_child_is_killed_unless_a_job_may_be_the_reason(
    attempts: list[tuple[float, float]], is_killed: bool
) -> None:
    supervisor = Supervisor(make_options({}), command=[])
    child: Any = StubChild()
    for entered, limit in attempts:
        child.enter(entered=entered, limit=limit)
    supervisor._watch.end_stuck(child, NOW, NOW - SILENT)
    assert child.is_killed is is_killed


def list_open_files() -> set[str]:
    """Return what the descriptors of this process point to, such as `pipe:[17]`."""
    targets = set()
    for entry in os.scandir("/proc/self/fd"):
        # The folder that is being read, and what another thread has just closed.
        with suppress(FileNotFoundError):
            targets.add(os.readlink(entry.path))
    return targets


def test_a_child_that_cannot_be_spawned_stops_nothing_and_leaves_nothing_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = Supervisor(make_options({}), command=["/no/such/interpreter"])
    supervisor._was_ready = True
    supervisor.spawn()
    before = list_open_files()
    supervisor._pool.fill(time.monotonic() + 60)
    # A garbage collection may close files of earlier tests meanwhile.
    assert not list_open_files() - before
    assert logger.flush(10)
    assert not supervisor.is_stopping
    assert supervisor._pool.list_children() == []
    assert len(caplog.messages) == 2
    assert "a child could not be started" in caplog.messages[0]


def test_a_worker_whose_first_child_cannot_be_spawned_ends() -> None:
    supervisor = Supervisor(
        make_options({"processes": 2}), command=["/no/such/interpreter"]
    )
    supervisor.spawn()
    assert supervisor.is_asked_to_stop()
    assert supervisor.exit_code == 1


class BlockedOutput(logging.Handler):
    """A log whose pipe is full."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.go_on.wait(30)
        self.lines.append(record.getMessage())


@pytest.fixture
def output() -> Iterator[BlockedOutput]:
    made = BlockedOutput()
    package = logging.getLogger("django_jobqueue")
    package.addHandler(made)
    yield made
    made.go_on.set()
    assert logger.flush(10)
    package.removeHandler(made)


def test_a_blocked_log_does_not_stop_the_main_thread(
    output: BlockedOutput,
) -> None:
    supervisor = Supervisor(make_options({}), command=[])
    began = time.monotonic()
    supervisor.mailbox.put(Command.SHOW_STACKS)
    supervisor.is_asked_to_stop()
    logger.error("the last line")
    assert time.monotonic() - began < 5
    assert not logger.flush(0.01)
    assert supervisor._list_stuck(began) == ()
    assert supervisor._list_stuck(time.monotonic() + STUCK_SECONDS) == ("log",)
    output.go_on.set()
    assert logger.flush(10)
    assert "stacks of the supervisor" in output.lines[0]
    assert output.lines[1] == "the last line"


def test_the_watchdog_of_a_supervisor_watches_its_main_thread() -> None:
    supervisor = Supervisor(make_options({}), command=[])
    stuck: list[str] = []
    supervisor._watchdog._on_stuck = lambda loop: stuck.append(loop.name)
    for _ in range(2 * STUCK_TICKS):
        supervisor.is_asked_to_stop()
        supervisor._watchdog.tick()
    assert "main" not in stuck
    for _ in range(STUCK_TICKS):
        supervisor._watchdog.tick()
    assert "main" in stuck
