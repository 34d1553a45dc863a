"""What a supervisor decides, without a single process."""

from __future__ import annotations

import os
import time

import pytest

from django_jobqueue.options import Options, make_options
from django_jobqueue.worker.children import _make_environment
from django_jobqueue.worker.link import VARIABLE, ChildSpec
from django_jobqueue.worker.signs import SignsOfLife
from django_jobqueue.worker.supervisor import Supervisor


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


def test_signs_follow_what_the_supervisor_is_told() -> None:
    signs = SignsOfLife(Options())
    supervisor = Supervisor(make_options({}), command=[], signs=signs)
    supervisor.is_asked_to_stop()
    assert signs.answer_live()[0] == 200
    assert "no process is ready yet" in signs.answer_ready()[1]["reasons"]
    supervisor.stop()
    supervisor.is_asked_to_stop()
    assert "it drains" in signs.answer_ready()[1]["reasons"]


def test_children_do_not_speak_to_the_service_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "MINE"):
        monkeypatch.setenv(name, "1")
    spec = ChildSpec(
        worker_id="", supervisor=1, board=3, lifeline=4, places=1, is_isolated=False
    )
    environment = _make_environment(spec)
    assert {"MINE", VARIABLE} <= set(environment)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(environment)
