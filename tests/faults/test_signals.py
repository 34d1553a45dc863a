"""The signal matrix: every signal in every state of a worker, with a supervisor and
without. It ends in time, claims nothing more, and leaves nothing behind."""

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
from django_jobqueue.lifecycle.database import get_database
from django_jobqueue.lifecycle.rescue import rescue_jobs
from django_jobqueue.models import Attempt, WorkerHeartbeat
from django_jobqueue.options import get_options
from tests.gate import Gate, TcpGate, make_gate
from tests.processes import WorkerProcess
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
Signals = tuple[signal.Signals, ...]
TERM, INT, QUIT = signal.SIGTERM, signal.SIGINT, signal.SIGQUIT
HUP, USR1 = signal.SIGHUP, signal.SIGUSR1

# SHUTDOWN_TIMEOUT, and one that nobody has the patience for.
GRACE = 1.0
LONG = 60.0
# What is promised on top, and what a busy machine may take.
LAST_MOMENT = 2.0
LATE = 1.0
# How long a claim may have been on its way when the worker began to drain.
CLAIM = 0.5

# Signals know nothing of databases: the second mode is seen on one of them.
MODES = [(), pytest.param(("--in-process",), marks=pytest.mark.postgresql)]
# Of a worker with a running job, and with nothing to do at first. In "listening" the
# job ends when it is told, elsewhere it ignores everything.
STATES = ["idle", "claiming", "deaf", "listening", "draining", "away"]
STOPS = [(TERM,), (INT,), (QUIT,), (TERM, INT)]


def name(value: Any) -> str:
    if isinstance(value, str):
        return value
    names = [getattr(each, "name", each).strip("-") for each in value]
    return " ".join(names) or "supervised"


in_each_mode = pytest.mark.parametrize("mode", MODES, ids=name)
in_each_state = pytest.mark.parametrize("state", STATES, ids=name)


@dataclass
class Scene:
    """A worker in the state that a test asks for."""

    gate: Gate
    folder: Path
    worker: WorkerProcess
    state: str
    # The job that runs, if one does.
    job: Job | None = None
    asked: float = field(default=0.0)

    def prepare(self) -> None:
        """Bring the worker into its state."""
        self.worker.wait_until_started()
        if self.state == "idle":
            return
        handler: Any = jobs.ignore_everything
        if self.state == "listening":
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
            wait_until(self.drains)
        elif self.state == "away":
            self.gate.shut()
        elif self.state == "silent":
            gate = self.gate
            assert isinstance(gate, TcpGate)
            gate.silence()
            # Now somebody waits for an answer that does not come.
            wait_until(lambda: gate.waiting)

    def signal(self, *numbers: signal.Signals) -> None:
        self.asked = time.monotonic()
        for number in numbers:
            self.worker.signal(number)

    def drains(self) -> bool:
        log = self.worker.read_log()
        return "worker drains" in log or "worker stopped" in log

    def count_starts(self) -> int:
        """Return how often the process that we started has begun a program."""
        starts = (self.folder / "starts").read_text().split()
        return starts.count(str(self.worker.process.pid))

    def wait_for_exit(self, limit: float) -> None:
        """See it end well within so many seconds of the last signal."""
        left = self.asked + limit + LATE - time.monotonic()
        assert self.worker.wait(timeout=left) == 0
        wait_until(lambda: not has_group(self.worker.process.pid), timeout=LATE)

    def read_job(self) -> Job:
        assert self.job is not None
        return Job.objects.get(pk=self.job.pk)

    def end_job(self) -> None:
        """Let the running job end, if there is one, and see it succeed."""
        (self.folder / "end").touch()
        if self.job is not None:
            assert self.job.wait(timeout=30).status == "succeeded"


@pytest.fixture
def scene(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...], state: str, numbers: Signals
) -> Iterator[Scene]:
    grace = LONG if is_hurry(state, numbers) else GRACE
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
        made = Scene(gate, tmp_path, worker, state)
        made.prepare()
        yield made


def is_hurry(state: str, numbers: Signals) -> bool:
    """Tell whether nobody is to wait for SHUTDOWN_TIMEOUT."""
    stops = len(set(numbers) & {TERM, INT}) + (state == "draining")
    return QUIT in numbers or stops > 1


def has_group(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def read_clock() -> datetime:
    return get_database().read_clock(None)


def assert_no_claim_after(moment: datetime, **conditions: Any) -> None:
    late = moment + timedelta(seconds=CLAIM)
    assert not Job.objects.filter(claimed_at__gt=late, **conditions).exists()


def assert_cut_off(job: Job) -> None:
    """A job that could not end is pending again, as if nothing had been."""
    values = (job.status, job.attempts, job.error, job.crashes, job.lost)
    assert values == ("pending", 0, "", 0, 0)
    outcomes = Attempt.objects.filter(job_id=job.pk).values_list("outcome", flat=True)
    assert set(outcomes) == {"released"}


def assert_left_to_rescue(job: Job) -> None:
    """A job whose worker could not write any more is rescued later, and only that."""
    assert (job.status, job.attempts, job.lease_token) == ("running", 1, 1)
    rescue_later()
    job.refresh_from_db()
    values = (job.status, job.attempts, job.lost, job.crashes, job.lease_token)
    assert values == ("pending", 0, 1, 0, 2)
    assert not DeadJob.objects.exists()


def rescue_later() -> None:
    later = read_clock() + timedelta(hours=1)
    rescue_jobs(get_database(), options=get_options(), now=later)


def assert_left_tidy(scene: Scene, *, is_hurried: bool) -> None:
    """Nothing runs, nobody is charged, and no row says that a worker was here."""
    assert not Job.objects.filter(status="running").exists()
    assert not WorkerHeartbeat.objects.exists()
    assert not DeadJob.objects.exists()
    if scene.state == "listening" and not is_hurried:
        job = scene.read_job()
        assert (job.status, job.attempts, job.lease_token) == ("succeeded", 1, 1)
    elif scene.state not in ("idle", "listening"):
        assert_cut_off(scene.read_job())
    if scene.state == "claiming":
        short = Job.objects.filter(job_type="testapp.sleep_briefly")
        assert short.filter(status="pending").count() > 500
        ends = {("pending", 0, ""), ("succeeded", 1, "")}
        assert set(short.values_list("status", "attempts", "error")) == ends


@in_each_mode
@in_each_state
@pytest.mark.parametrize("numbers", STOPS, ids=name)
def test_worker_stops_in_time_and_claims_nothing_more(
    scene: Scene, numbers: Signals
) -> None:
    is_hurried = is_hurry(scene.state, numbers)
    scene.signal(*numbers)

    wait_until(scene.drains)
    moment = read_clock()
    late = []
    if scene.state not in ("claiming", "away"):
        late = [jobs.add.enqueue(x=1) for _ in range(3)]
    scene.wait_for_exit(LAST_MOMENT if is_hurried else GRACE + LAST_MOMENT)

    if scene.state == "away":
        scene.gate.open()
        assert_left_to_rescue(scene.read_job())
        return
    assert_no_claim_after(moment)
    for job in late:
        job.refresh_from_db()
        assert (job.status, job.lease_token) == ("pending", 0)
    assert_left_tidy(scene, is_hurried=is_hurried)


@pytest.mark.postgresql
@in_each_mode
@pytest.mark.parametrize("state", ["silent"])
@pytest.mark.parametrize("numbers", [(TERM,), (QUIT,)], ids=name)
def test_worker_does_not_wait_for_a_silent_database(
    scene: Scene, numbers: Signals
) -> None:
    scene.signal(*numbers)

    is_hurried = is_hurry(scene.state, numbers)
    scene.wait_for_exit(LAST_MOMENT if is_hurried else GRACE + LAST_MOMENT)

    # What it has said is not answered any more either.
    scene.gate.shut()
    assert_left_to_rescue(scene.read_job())


@in_each_mode
@in_each_state
@pytest.mark.parametrize("numbers", [(HUP,)], ids=name)
def test_hup_drains_and_starts_anew(scene: Scene, numbers: Signals) -> None:
    before = list(WorkerHeartbeat.objects.values_list("pk", flat=True))
    scene.signal(*numbers)

    wait_until(scene.drains)
    moment = read_clock()
    if scene.state == "draining":
        # Whoever asked for the end gets it.
        scene.wait_for_exit(GRACE + LAST_MOMENT)
        assert_left_tidy(scene, is_hurried=False)
        return
    wait_until(lambda: scene.count_starts() == 2)
    assert time.monotonic() - scene.asked < GRACE + LAST_MOMENT + LATE
    scene.gate.open()
    assert jobs.add.using(priority=100).enqueue(x=1).wait(timeout=30).result == 2
    assert_no_claim_after(moment, status="succeeded", finished_by__in=before)
    if scene.state == "away":
        rescue_later()
        # An idle worker that listens hears of it now: the rescue was ours.
        jobs.add.enqueue(x=1)
    scene.end_job()
    if scene.job is not None:
        job = scene.read_job()
        # Ended by itself, given back and claimed again, or rescued in between.
        token = {"listening": 1, "away": 3}.get(scene.state, 2)
        assert (job.attempts, job.lease_token, job.crashes) == (1, token, 0)
        assert job.lost == (scene.state == "away")
    # The same process, and a worker of its own.
    assert scene.worker.process.poll() is None
    assert WorkerHeartbeat.objects.exclude(pk__in=before).count() == 1


@in_each_mode
@in_each_state
@pytest.mark.parametrize("numbers", [(USR1,)], ids=name)
def test_usr1_shows_stacks_and_changes_nothing(
    scene: Scene, mode: tuple[str, ...], numbers: Signals
) -> None:
    scene.signal(*numbers)

    shown = ["stacks of all threads\n"]
    shown += ["stacks of the supervisor\n"] if not mode else []
    wait_until(lambda: all(map(scene.worker.has_logged, shown)))
    assert "Thread jobqueue-heartbeat:" in scene.worker.read_log()
    if scene.state == "draining":
        scene.wait_for_exit(GRACE + LAST_MOMENT)
        assert_left_tidy(scene, is_hurried=False)
        return
    scene.gate.open()
    assert jobs.add.using(priority=100).enqueue(x=1).wait(timeout=30).result == 2
    assert not scene.drains()
    scene.end_job()
    if scene.job is not None:
        assert (scene.read_job().attempts, scene.read_job().lease_token) == (1, 1)
