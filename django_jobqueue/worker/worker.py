"""Worker: one process that runs jobs. Composes the loops, and stops them in order.

Made by `runworker`. First the heartbeat is committed, then claims begin; at the end the
claims stop first and the heartbeat last, so that a draining worker is never rescued.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from django.db import connections

from .. import __version__
from ..lifecycle.beat import Pulse, WorkerIdentity
from ..lifecycle.endings import Ending
from ..options import Options
from ..signals import Event, JobLog, report_worker, worker_started, worker_stopped
from ..states import WorkerState
from .attempt import Bench
from .claimer import RELEASED, Claimer
from .connections import use_immediate_transactions
from .deadlines import Deadlines
from .finisher import Finisher
from .heartbeat import Heartbeat, read_memory
from .held import HeldJobs
from .listener import Listener
from .maintenance import Maintenance
from .slots import Slots
from .stacks import format_stacks
from .watchdog import Watchdog

logger = logging.getLogger("django_jobqueue.worker")

# How long the ends of the last jobs may take to be written.
LAST_WRITES = 10.0
# After a second signal everything must be over within 2 s.
HURRIED = 1.0


class Worker:
    """Claims and runs jobs until it is told to stop."""

    def __init__(self, options: Options) -> None:
        self.id: UUID = uuid4()
        self.options = options
        self.held = HeldJobs()
        # Set by the main thread once it has seen that it is asked to stop.
        self.stopping = threading.Event()
        # Signals and the end of a burst. A SimpleQueue, since its put() is reentrant:
        # an Event set by a signal handler could deadlock with a wait it interrupts.
        self._calls: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._signals = 0
        self.is_to_restart = False
        # True if running jobs had to be left behind in their threads.
        self.has_abandoned = False
        log = JobLog(self.id, is_complete=options.log_jobs == "all")
        self.finisher = Finisher(
            self.held,
            log,
            worker_id=self.id,
            options=options,
            on_due=lambda seconds: self.claimer.tell_due(seconds),
        )
        bench = Bench(
            options=options,
            worker_id=self.id,
            report_progress=self.finisher.put_progress,
            report_started=log.report_started,
            is_fenced=lambda: self.heartbeat.is_overdue(),
        )
        self.slots = Slots(
            options.concurrency,
            bench,
            on_end=self.finisher.put,
            on_room=lambda: self.claimer.tell_room(),
        )
        self.claimer = Claimer(
            self.held,
            self.slots,
            self.finisher,
            worker_id=self.id,
            options=options,
            on_drained=lambda: self._calls.put("drained"),
            is_fenced=lambda: self.heartbeat.is_overdue(),
        )
        self.heartbeat = Heartbeat(
            self._make_identity(),
            options=options,
            read_pulse=self._read_pulse,
            on_beat=self.claimer.ask_reconcile,
        )
        self.maintenance = Maintenance(
            self.heartbeat, self.claimer, worker_id=self.id, options=options
        )
        self.deadlines = Deadlines(self.held)
        self.listener: Listener | None = None
        if connections[options.database].vendor == "postgresql":
            self.listener = Listener(
                self.claimer, self.held, worker_id=self.id, alias=options.database
            )

        self.watchdog = Watchdog([part.loop for part in self._list_parts()])

    def _list_parts(self) -> list[Any]:
        parts = [self.heartbeat, self.finisher, self.claimer, self.maintenance]
        return [*parts, self.listener] if self.listener is not None else parts

    def stop(self, *, hurry: bool = False) -> None:
        """Ask the worker to drain. Safe in a signal handler; again: to hurry."""
        self._calls.put("signal")
        if hurry:
            self._calls.put("signal")

    def show_stacks(self) -> None:
        """Ask for the stacks of all threads in the log. Safe in a signal handler."""
        self._calls.put("stacks")

    def restart(self) -> None:
        """Ask the worker to drain, and its process to start anew then."""
        self.is_to_restart = True
        self._calls.put("drained")

    def is_asked_to_stop(self, timeout: float = 0.0) -> bool:
        """Wait for a call to stop. Only for the thread that runs the worker."""
        with suppress(queue.Empty):
            call = self._calls.get(timeout=timeout)
            if call == "stacks":
                logger.warning("stacks of all threads\n%s", format_stacks())
            else:
                self._signals += call == "signal"
                self.stopping.set()
        return self.stopping.is_set()

    def run(self) -> None:
        """Run until stop() is called, then drain."""
        use_immediate_transactions(self.options.database)
        self._start()
        if not self.stopping.is_set():
            fields = {"name": self._describe(), "concurrency": self.options.concurrency}
            report_worker("worker started", worker_id=self.id, **fields)
            worker_started.send_robust(type(self), worker_id=self.id)
        # In slices: on some platforms a wait without end keeps signals out.
        while not self.is_asked_to_stop(0.5):
            pass
        self._drain()
        report_worker(
            "worker stopped", worker_id=self.id, processed=self.finisher.processed
        )
        worker_stopped.send_robust(type(self), worker_id=self.id)

    def _start(self) -> None:
        self.heartbeat.loop.start()
        while not self.heartbeat.is_registered.is_set():
            if self.is_asked_to_stop(0.01):
                return
        self.deadlines.start()
        self.finisher.loop.start()
        self.claimer.loop.start()
        self.maintenance.loop.start()
        if self.listener is not None:
            self.listener.loop.start()
        self.watchdog.start()

    def _drain(self) -> None:
        """Stop claims and rescue, let running jobs end or go back, stop the heart."""
        started = time.monotonic()
        self.watchdog.stop()
        is_empty = not len(self.held)
        if not is_empty:
            seconds = self.options.shutdown_timeout.total_seconds()
            report_worker("worker drains", worker_id=self.id, running=len(self.held))
        for loop in (self.claimer.loop, self.maintenance.loop):
            loop.stop()
        # What a claim on its way still brings is given back, not started.
        self.slots.close()
        if self.listener is not None:
            self.listener.loop.stop()
        self.claimer.loop.join(HURRIED)
        self._release_waiting()
        for held in self.held.list():
            held.flags.stopping = True
        if not is_empty:
            self._wait_for_jobs(started + seconds)
            self._release_running()
        self._finish_writes()
        if not self.slots.stop_coroutines(HURRIED):
            self.has_abandoned = True
        self.deadlines.stop()
        self.heartbeat.finish(HURRIED if self._is_hurried else LAST_WRITES)

    @property
    def _is_hurried(self) -> bool:
        """A second signal: everything must be over within two seconds."""
        return self._signals > 1

    def _release_waiting(self) -> None:
        self.claimer.release(job.claim for job in self.slots.take_waiting())

    def _wait_for_jobs(self, deadline: float) -> None:
        while self.slots.running and time.monotonic() < deadline:
            self.is_asked_to_stop(0.02)
            if self._is_hurried:
                return

    def _release_running(self) -> None:
        """Give back what still runs; its thread ends with the process."""
        running = [job for job in self.held.list() if job.started is not None]
        running = [job for job in running if job.thread or job.task]
        for held in running:
            task = held.task
            if task is not None:
                task.get_loop().call_soon_threadsafe(task.cancel)
            else:
                self.has_abandoned = True
            self.finisher.put(Ending(claim=held.claim, outcome=RELEASED))

    def _finish_writes(self) -> None:
        started = time.monotonic()
        while len(self.held):
            timeout = HURRIED if self._is_hurried else LAST_WRITES
            if time.monotonic() > started + timeout:
                break
            self.finisher.wake()
            self.is_asked_to_stop(0.01)
        self.finisher.loop.stop()
        self.finisher.wake()
        self.finisher.loop.join(HURRIED)
        self.finisher.close()
        if left := len(self.held):
            logger.warning(
                Event(
                    "the ends of jobs could not be written; they will be rescued",
                    worker_id=self.id,
                    count=left,
                )
            )

    def _make_identity(self) -> WorkerIdentity:
        options = self.options
        excluded = dict.fromkeys(options.exclude_queues, 0)
        return WorkerIdentity(
            id=self.id,
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            name=self._describe(),
            queues=excluded | dict(options.queues or ()),
            concurrency=options.concurrency,
            version=__version__,
        )

    def _describe(self) -> str:
        return self.options.name or f"{socket.gethostname()}:{os.getpid()}"[:200]

    def _read_pulse(self) -> Pulse:
        is_stopping = self.stopping.is_set()
        return Pulse(
            state=WorkerState.STOPPING if is_stopping else WorkerState.RUNNING,
            processed=self.finisher.processed,
            failed=self.finisher.failed,
            running=self.slots.running,
            memory=read_memory(),
        )
