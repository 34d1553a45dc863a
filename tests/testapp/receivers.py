"""Hostile receivers of every signal, switched on by the environment.

JOBQUEUE_TEST_RECEIVERS names a folder. Its file `way` names what the receivers do. Each
call appends a line to `calls` when it ends: signal, job and `done` or the exception.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.dispatch import Signal

from django_jobqueue import signals

from .dangerous import write_line
from .models import Effect

VARIABLE = "JOBQUEUE_TEST_RECEIVERS"
HANG_SECONDS = 3.0


def make_receiver(name: str, folder: Path) -> Callable[..., None]:
    def receive(sender: Any, **values: Any) -> None:
        # Signals of whole batches and of workers have no job.
        job_id = values.get("job_id", "-")
        with suppress(FileNotFoundError):
            way = (folder / "way").read_text()
            try:
                WAYS[way](name, folder)
            except BaseException as error:
                write_line(
                    str(folder / "calls"), f"{name} {job_id} {type(error).__name__}"
                )
                raise
            write_line(str(folder / "calls"), f"{name} {job_id} done")

    return receive


def is_first(folder: Path, name: str) -> bool:
    """Return whether this is the first call in this process since `way` was set."""
    way = (folder / "way").stat().st_mtime_ns
    mark = folder / f"{name}-{os.getpid()}-{way}"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _raise(name: str, folder: Path) -> None:
    raise ValueError("error of a receiver")


def _raise_base(name: str, folder: Path) -> None:
    raise KeyboardInterrupt("error of a receiver")


def _exit(name: str, folder: Path) -> None:
    sys.exit(3)


def _hang(name: str, folder: Path) -> None:
    if is_first(folder, name):
        time.sleep(HANG_SECONDS)


def _query(name: str, folder: Path) -> None:
    # job_started of a coroutine is sent on the event loop: Django refuses queries.
    if name != "job_started":
        Effect.objects.filter(name=name).exists()


def _lose_connection(name: str, folder: Path) -> None:
    """Break the connection once; the worker must open another."""
    _query(name, folder)
    if name == "job_succeeded" and is_first(folder, name):
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        else:
            connection.connection.close()
            _query(name, folder)


def _leave_transaction(name: str, folder: Path) -> None:
    if name != "job_started" and is_first(folder, name):
        transaction.atomic().__enter__()
        Effect.objects.create(name="never committed")


WAYS: dict[str, Callable[[str, Path], None]] = {
    "query": _query,
    "raise": _raise,
    "raise a base exception": _raise_base,
    "exit": _exit,
    "hang": _hang,
    "lose the connection": _lose_connection,
    "leave a transaction": _leave_transaction,
}
# A signal keeps only weak references to its receivers.
_connected: list[Callable[..., None]] = []


def connect_all(folder: Path) -> None:
    for name, signal in vars(signals).items():
        if isinstance(signal, Signal):
            receiver = make_receiver(name, folder)
            _connected.append(receiver)
            signal.connect(receiver)


if folder := os.environ.get(VARIABLE):
    connect_all(Path(folder))
