"""Every signal in every state of a worker, with a supervisor and without.

The worker exits in time, claims nothing more and leaves no rows behind.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from django_jobqueue import DeadJob, Job
from django_jobqueue.lifecycle.rescue import rescue_jobs
from django_jobqueue.models import Attempt, WorkerHeartbeat
from django_jobqueue.options import get_options
from django_jobqueue.storage.database import get_database
from tests.gate import Gate, TcpGate, make_gate
from tests.processes import WorkerProcess, is_alive
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
Signals = tuple[signal.Signals, ...]
TERM, INT, QUIT = signal.SIGTERM, signal.SIGINT, signal.SIGQUIT
HUP, USR1 = signal.SIGHUP, signal.SIGUSR1

# SHUTDOWN_TIMEOUT, and one so long that no test waits for it.
SHUTDOWN_SECONDS = 1.0
LONG_SHUTDOWN_SECONDS = 60.0
# The promised time for the exit itself, and an allowance for a busy machine.
EXIT_SECONDS = 2.0
SLACK_SECONDS = 4.0
# How long a claim may take that was under way when the worker began to drain.
CLAIM_SECONDS = 0.5

# Signals do not depend on the database: the second mode runs on one of them.
MODES = [(), pytest.param(("--in-process",), marks=pytest.mark.postgresql)]
# The worker runs a job in all states but "idle". The job returns when asked to stop in
# "job stops when asked"; in the other states it ignores every request.
STATES = [
    "idle",
    "claiming",
    "job ignores stop",
    "job stops when asked",
    "draining",
    "database down",
]
STOPS = [(TERM,), (INT,), (QUIT,), (TERM, INT)]


def name(value: Any) -> str:
    if isinstance(value, str):
        return value
    names = [getattr(each, "name", each).strip("-") for each in value]
    return " ".join(names) or "supervised"


in_each_mode = pytest.mark.parametrize("mode", MODES, ids=name)
in_each_state = pytest.mark.parametrize("state", STATES, ids=name)


@dataclass
class SignalCase:
    """A worker in the state that a test needs."""

    gate: Gate
    folder: Path
    worker: WorkerProcess
    state: str
    # The running job, if there is one.
    job: Job | None = None
    signalled_at: float = field(default=0.0)

    def prepare(self) -> None:
        """Bring the worker into its state."""
        self.worker.wait_until_started()
        if self.state == "idle":
            return
        handler: Any = jobs.ignore_everything
        if self.state == "job stops when asked":
            handler = jobs.wait_for_file
        started, end = self.folder / "started", self.folder / "end"
        self.job = handler.enqueue(touch=str(started), until=str(end))
        wait_until(started.exists)
        if self.state == "claiming":
            specs = [jobs.sleep_briefly.spec(seconds=0.02) for _ in range(1500)]
            Job.objects.enqueue_many(specs)
            wait_until(lambda: Job.objects.counts()["succeeded"] > 50)
        elif self.state == "draining":
            self.signal(TERM)
            wait_until(self.is_draining)
        elif self.state == "database down":
            self.gate.shut()
        elif self.state == "database silent":
            gate = self.gate
            assert isinstance(gate, TcpGate)
            gate.silence()
            # Now the worker waits for a reply that does not come.
            wait_until(lambda: gate.waiting)

    def signal(self, *numbers: signal.Signals) -> None:
        self.signalled_at = time.monotonic()
        for number in numbers:
            self.worker.signal(number)

    def is_draining(self) -> bool:
        """Return whether the log shows that the worker has begun to stop."""
        log = self.worker.read_log()
        # A child that was not ready yet is killed without a line in the log.
        lines = ("worker drains", "worker stopped", "supervisor ends")
        return any(line in log for line in lines)

    def count_starts(self) -> int:
        """Return how often the process that we started has executed a program."""
        return self.list_started().count(self.worker.process.pid)

    def list_started(self) -> list[int]:
        """Return the pids of all programs started by the worker, and its own pid."""
        return list(map(int, (self.folder / "starts").read_text().split()))

    def wait_for_exit(self, limit: float) -> None:
        """Assert exit code 0 within `limit` seconds of the last signal."""
        left = self.signalled_at + limit + SLACK_SECONDS - time.monotonic()
        assert self.worker.wait(timeout=left) == 0
        wait_until(
            lambda: not any(map(is_alive, self.list_started())), timeout=SLACK_SECONDS
        )

    def read_job(self) -> Job:
        assert self.job is not None
        return Job.objects.get(pk=self.job.pk)

    def end_job(self) -> None:
        """Let the running job end, if there is one, and assert that it succeeds."""
        (self.folder / "end").touch()
        if self.job is not None:
            assert self.job.wait(timeout=30).status == "succeeded"


@pytest.fixture
def case(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...], state: str, numbers: Signals
) -> Iterator[SignalCase]:
    grace = LONG_SHUTDOWN_SECONDS if is_immediate(state, numbers) else SHUTDOWN_SECONDS
    variables = {
        "JOBQUEUE_SHUTDOWN_TIMEOUT": str(grace),
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{worker_env['PYTHONPATH']}",
    }
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nwith open({str(tmp_path / 'starts')!r}, 'a') as starts:\n"
        "    print(os.getpid(), file=starts)\n"
    )
    with (
        make_gate(worker_env) as gate,
        WorkerProcess(gate.env, *mode, is_group=True, **variables) as worker,
    ):
        made = SignalCase(gate, tmp_path, worker, state)
        made.prepare()
        yield made


def is_immediate(state: str, numbers: Signals) -> bool:
    """Return whether these signals end the worker before SHUTDOWN_TIMEOUT."""
    stops = len(set(numbers) & {TERM, INT}) + (state == "draining")
    return QUIT in numbers or stops > 1


def read_clock() -> datetime:
    return get_database().read_clock(None)


def assert_no_claim_after(moment: datetime, **conditions: Any) -> None:
    late = moment + timedelta(seconds=CLAIM_SECONDS)
    assert not Job.objects.filter(claimed_at__gt=late, **conditions).exists()


def assert_released(job: Job) -> None:
    """Assert that the job is pending again, and that the attempt cost nothing."""
    values = (job.status, job.attempts, job.error, job.crashes, job.lost)
    assert values == ("pending", 0, "", 0, 0)
    outcomes = Attempt.objects.filter(job_id=job.pk).values_list("outcome", flat=True)
    assert set(outcomes) == {"released"}


def assert_left_to_rescue(job: Job) -> None:
    """Assert that the job is still running, and that a later rescue releases it."""
    assert (job.status, job.attempts, job.lease_token) == ("running", 1, 1)
    rescue_later()
    job.refresh_from_db()
    values = (job.status, job.attempts, job.lost, job.crashes, job.lease_token)
    assert values == ("pending", 0, 1, 0, 2)
    assert not DeadJob.objects.exists()


def rescue_later() -> None:
    later = read_clock() + timedelta(hours=1)
    rescue_jobs(get_database(), options=get_options(), now=later)


def assert_nothing_left(case: SignalCase, *, is_immediate_stop: bool) -> None:
    """Assert that no job runs, none was charged and no worker row is left."""
    assert not Job.objects.filter(status="running").exists()
    assert not WorkerHeartbeat.objects.exists()
    assert not DeadJob.objects.exists()
    if case.state == "job stops when asked" and not is_immediate_stop:
        job = case.read_job()
        assert (job.status, job.attempts, job.lease_token) == ("succeeded", 1, 1)
    elif case.state not in ("idle", "job stops when asked"):
        assert_released(case.read_job())
    if case.state == "claiming":
        short = Job.objects.filter(job_type="testapp.sleep_briefly")
        assert short.filter(status="pending").count() > 500
        ends = {("pending", 0, ""), ("succeeded", 1, "")}
        assert set(short.values_list("status", "attempts", "error")) == ends


@in_each_mode
@in_each_state
@pytest.mark.parametrize("numbers", STOPS, ids=name)
def test_worker_stops_in_time_and_claims_nothing_more(
    case: SignalCase, numbers: Signals
) -> None:
    is_immediate_stop = is_immediate(case.state, numbers)
    case.signal(*numbers)

    wait_until(case.is_draining)
    moment = read_clock()
    late = []
    if case.state not in ("claiming", "database down"):
        late = [jobs.add.enqueue(x=1) for _ in range(3)]
    case.wait_for_exit(
        EXIT_SECONDS if is_immediate_stop else SHUTDOWN_SECONDS + EXIT_SECONDS
    )

    if case.state == "database down":
        case.gate.open()
        assert_left_to_rescue(case.read_job())
        return
    assert_no_claim_after(moment)
    for job in late:
        job.refresh_from_db()
        assert (job.status, job.lease_token) == ("pending", 0)
    assert_nothing_left(case, is_immediate_stop=is_immediate_stop)


@pytest.mark.postgresql
@in_each_mode
@pytest.mark.parametrize("state", ["database silent"])
@pytest.mark.parametrize("numbers", [(TERM,), (QUIT,)], ids=name)
def test_worker_does_not_wait_for_a_silent_database(
    case: SignalCase, numbers: Signals
) -> None:
    case.signal(*numbers)

    is_immediate_stop = is_immediate(case.state, numbers)
    case.wait_for_exit(
        EXIT_SECONDS if is_immediate_stop else SHUTDOWN_SECONDS + EXIT_SECONDS
    )

    # What the worker has sent is not answered any more either.
    case.gate.shut()
    assert_left_to_rescue(case.read_job())


@in_each_mode
@in_each_state
@pytest.mark.parametrize("numbers", [(HUP,)], ids=name)
def test_hup_drains_and_restarts(case: SignalCase, numbers: Signals) -> None:
    before = list(WorkerHeartbeat.objects.values_list("pk", flat=True))
    case.signal(*numbers)

    wait_until(case.is_draining)
    moment = read_clock()
    if case.state == "draining":
        # A stop that was requested first is carried out.
        case.wait_for_exit(SHUTDOWN_SECONDS + EXIT_SECONDS)
        assert_nothing_left(case, is_immediate_stop=False)
        return
    wait_until(lambda: case.count_starts() == 2)
    assert (
        time.monotonic() - case.signalled_at
        < SHUTDOWN_SECONDS + EXIT_SECONDS + SLACK_SECONDS
    )
    case.gate.open()
    assert jobs.add.using(priority=100).enqueue(x=1).wait(timeout=30).result == 2
    assert_no_claim_after(moment, status="succeeded", finished_by__in=before)
    if case.state == "database down":
        rescue_later()
        # Notify the idle worker: the rescue happened in this process.
        jobs.add.enqueue(x=1)
    case.end_job()
    if case.job is not None:
        job = case.read_job()
        # 1: it ended by itself. 2: released and claimed again. 3: rescued in between.
        token = {"job stops when asked": 1, "database down": 3}.get(case.state, 2)
        assert (job.attempts, job.lease_token, job.crashes) == (1, token, 0)
        assert job.lost == (case.state == "database down")
    # The same process, with a new worker row.
    assert case.worker.process.poll() is None
    assert WorkerHeartbeat.objects.exclude(pk__in=before).count() == 1


@in_each_mode
@in_each_state
@pytest.mark.parametrize("numbers", [(USR1,)], ids=name)
def test_usr1_shows_stacks_and_changes_nothing(
    case: SignalCase, mode: tuple[str, ...], numbers: Signals
) -> None:
    case.signal(*numbers)

    shown = ["stacks of all threads\n"]
    shown += ["stacks of the supervisor\n"] if not mode else []
    case.worker.wait_until_logged(*shown, "Thread jobqueue-heartbeat:")
    if case.state == "draining":
        case.wait_for_exit(SHUTDOWN_SECONDS + EXIT_SECONDS)
        assert_nothing_left(case, is_immediate_stop=False)
        return
    case.gate.open()
    assert jobs.add.using(priority=100).enqueue(x=1).wait(timeout=30).result == 2
    assert not case.is_draining()
    case.end_job()
    if case.job is not None:
        assert (case.read_job().attempts, case.read_job().lease_token) == (1, 1)
