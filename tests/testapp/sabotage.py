"""Faults in a worker's own threads, switched on by its environment.

JOBQUEUE_TEST_CONSTANTS   `module.NAME=1.5 …`: other values for what is constant
JOBQUEUE_TEST_HEART       a file: while it is there, no beat comes back
JOBQUEUE_TEST_CLAIMS      a file: the process that removes it never claims again
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from django_jobqueue.worker import heart, heartbeat
from django_jobqueue.worker.claimer import Claimer


def change_constants(text: str) -> None:
    for setting in text.split():
        path, _, value = setting.partition("=")
        module, _, name = path.rpartition(".")
        found = import_module(f"django_jobqueue.worker.{module}")
        assert hasattr(found, name)
        setattr(found, name, float(value))


def hold_up(call: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Let a call wait for as long as the file is there."""

    def wait_and_call(*args: Any, **options: Any) -> Any:
        while file.exists():
            time.sleep(0.02)
        return call(*args, **options)

    return wait_and_call


def block_once(step: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Let the first step that finds the file never come back."""

    def step_or_block(*args: Any) -> Any:
        if file.exists():
            file.unlink()
            threading.Event().wait()
        return step(*args)

    return step_or_block


if constants := os.environ.get("JOBQUEUE_TEST_CONSTANTS"):
    change_constants(constants)
if path := os.environ.get("JOBQUEUE_TEST_HEART"):
    heart.beat_workers = hold_up(heart.beat_workers, Path(path))
    heartbeat.beat = hold_up(heartbeat.beat, Path(path))
if path := os.environ.get("JOBQUEUE_TEST_CLAIMS"):
    Claimer.step = block_once(Claimer.step, Path(path))
