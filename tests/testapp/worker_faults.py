"""Faults in a worker's own threads, switched on by its environment.

JOBQUEUE_TEST_CONSTANTS   `module.NAME=1.5 …`: other values for constants
JOBQUEUE_TEST_HEARTBEAT   a file: while it exists, no heartbeat returns
JOBQUEUE_TEST_CLAIMS      a file: the process that removes it never claims again
JOBQUEUE_TEST_STEPS       a file: each step of a claim loop appends a byte
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from django_jobqueue.worker import heartbeat
from django_jobqueue.worker.claiming.claimer import Claimer
from django_jobqueue.worker.supervision import supervisor_db


def change_constants(text: str) -> None:
    for setting in text.split():
        path, _, value = setting.partition("=")
        module, _, name = path.rpartition(".")
        found = import_module(f"django_jobqueue.worker.{module}")
        assert hasattr(found, name)
        setattr(found, name, float(value))


def hold_up(call: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Delay a call for as long as the file exists."""

    def wait_and_call(*args: Any, **options: Any) -> Any:
        while file.exists():
            time.sleep(0.02)
        return call(*args, **options)

    return wait_and_call


def block_once(step: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Block for ever in the first step that finds the file."""

    def step_or_block(*args: Any) -> Any:
        if file.exists():
            file.unlink()
            threading.Event().wait()
        return step(*args)

    return step_or_block


def count_steps(step: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Append a byte to the file after each step."""

    def step_and_count(*args: Any) -> Any:
        result = step(*args)
        with file.open("ab") as steps:
            steps.write(b".")
        return result

    return step_and_count


if constants := os.environ.get("JOBQUEUE_TEST_CONSTANTS"):
    change_constants(constants)
if path := os.environ.get("JOBQUEUE_TEST_HEARTBEAT"):
    supervisor_db.beat_workers = hold_up(supervisor_db.beat_workers, Path(path))
    heartbeat.beat = hold_up(heartbeat.beat, Path(path))
if path := os.environ.get("JOBQUEUE_TEST_CLAIMS"):
    Claimer.step = block_once(Claimer.step, Path(path))
if path := os.environ.get("JOBQUEUE_TEST_STEPS"):
    Claimer.step = count_steps(Claimer.step, Path(path))
