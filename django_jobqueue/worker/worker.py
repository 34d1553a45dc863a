"""Worker: one process that runs jobs. Wires its loops, starts and stops them in order.

Made by `runworker`, as the child of a supervisor or without one. The heartbeat row is
committed before the first claim. At the end, drain.py stops the claims first and the
heartbeat last.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any, assert_never
from uuid import UUID, uuid4

from django.db import connections

from ..job_log import JobLog, report_worker
from ..log_events import Event
from ..options import Options, is_development
from ..outcomes import Died
from ..registry import find_handler
from ..signals import worker_started, worker_stopped
from ..storage.claims import Suspects
from ..storage.endings import Ending
from .claiming.claimer import Claimer
from .claiming.file_watcher import FileWatcher, find_files
from .claiming.listener import Listener
from .commands import Command
from .drain import Drain
from .finisher import Finisher
from .health.bounded import run_bounded, start_aside
from .health.reporter import HealthReporter
from .health.status import WorkerStatus
from .health.watchdog import Watchdog, format_stacks
from .heartbeat import (
    Heartbeat,
    describe_queues,
    describe_worker,
    make_identity,
)
from .loop import Loop
from .main_thread import MainThread
from .maintenance import Maintenance
from .receivers import Receivers
from .running.attempt_env import AttemptEnv
from .running.connections import use_immediate_transactions
from .running.deadlines import Deadlines
from .running.in_flight import InFlightJobs
from .running.policy import expected_retry_delay
from .running.thread_pool import ThreadPool
from .supervision.memory_values import Stage
from .supervision.supervised_heartbeat import SupervisedHeartbeat
from .worker_health import (
    StallHandler,
    make_health,
    read_beat_values,
    read_counts,
    read_worker_status,
)

logger = logging.getLogger("django_jobqueue.worker")

# How long the receivers of the last signals may take.
LAST_SIGNALS_SECONDS = 2.0
# How long the worker waits for receivers of worker_started and worker_stopped.
ANNOUNCE_SECONDS = 10.0
# How long the log may take for the stacks of all threads.
STACKS_LINE_SECONDS = 5.0


class Worker(MainThread):
    """Claims and runs jobs until it is asked to stop."""

    def __init__(
        self,
        options: Options,
        *,
        supervised: SupervisedHeartbeat | None = None,
        health_reporter: HealthReporter | None = None,
    ) -> None:
        super().__init__(options, health_reporter=health_reporter)
        self.id: UUID = supervised.worker_id if supervised is not None else uuid4()
        self.supervised = supervised
        self.shared_memory = (
            supervised.shared_memory if supervised is not None else None
        )
        # True once jobs may be claimed.
        self.is_started = False
        self._last_stage = Stage.DRAINING
        self._make_parts()
        self._drain = Drain(self)

    # Wiring.

    def _make_parts(self) -> None:
        """Make the loops and what they share, in the order in which they need each
        other. Callbacks that need a later part look it up when they are called."""
        options = self.options
        self.in_flight = InFlightJobs(
            self.shared_memory, grace=options.grace.total_seconds()
        )
        self.receivers = Receivers()
        log = self._make_job_log()
        self.finisher = Finisher(
            self.in_flight,
            log,
            worker_id=self.id,
            options=options,
            on_due=lambda seconds: self.claimer.on_due_in(seconds),
        )
        self.slots = self._make_slots(log)
        self.claimer = self._make_claimer()
        self.heartbeat = self._make_heartbeat()
        self.maintenance = Maintenance(
            self.heartbeat,
            self.claimer,
            worker_id=self.id,
            options=options,
            send=self.receivers.send,
        )
        self.deadlines = Deadlines(
            self.in_flight,
            find_delay=lambda in_flight: expected_retry_delay(in_flight, options),
        )
        self.listener = self._make_listener()
        stall_handler = StallHandler(self)
        self.watchdog = Watchdog(self.list_loops(), on_stuck=stall_handler.on_stuck)
        self.health = make_health(self, stall_handler)

    def _make_job_log(self) -> JobLog:
        return JobLog(
            self.id,
            is_complete=self.options.log_jobs == "all",
            send=self.receivers.send,
            shows_traceback=_shows_traceback if is_development() else _never,
        )

    def _make_slots(self, log: JobLog) -> ThreadPool:
        env = AttemptEnv(
            options=self.options,
            worker_id=self.id,
            report_progress=self.finisher.put_progress,
            report_started=log.report_started,
            is_fenced=self._is_fenced,
        )
        return ThreadPool(
            self.options.concurrency,
            env,
            on_end=self.finisher.put,
            on_room=lambda: self.claimer.on_free_slot(),
        )

    def _make_claimer(self) -> Claimer:
        memory = self.shared_memory
        return Claimer(
            self.in_flight,
            self.slots,
            self.finisher,
            worker_id=self.id,
            options=self.options,
            suspects=self._choose_suspects(),
            on_suspects=memory.flag_suspects if memory is not None else lambda: None,
            on_drained=lambda: self.mailbox.put(Command.DRAINED),
            is_fenced=self._is_fenced,
            send=self.receivers.send,
        )

    def _choose_suspects(self) -> Suspects:
        if self.supervised is None:
            return Suspects.INCLUDED
        return Suspects.ONLY if self.supervised.is_isolated else Suspects.EXCLUDED

    def _is_fenced(self) -> bool:
        """Return whether nothing may start: other workers may soon take this one for
        dead, or a job that may start only once could not be kept."""
        is_full = self.shared_memory is not None and self.shared_memory.is_full
        return is_full or self.heartbeat.is_overdue()

    def _make_heartbeat(self) -> Heartbeat | SupervisedHeartbeat:
        return self.supervised or Heartbeat(
            make_identity(self.id, self.options),
            options=self.options,
            read_beat_values=partial(read_beat_values, self),
            on_beat=self.claimer.request_ownership_check,
        )

    def _make_listener(self) -> Listener | FileWatcher | None:
        """Return what wakes the claim loop for new jobs; None: it only polls."""
        alias = self.options.database
        if connections[alias].vendor == "postgresql":
            return Listener(
                self.claimer, self.in_flight, worker_id=self.id, alias=alias
            )
        if paths := find_files(alias):
            return FileWatcher(
                paths, on_change=self.claimer.on_file_change, alias=alias
            )
        return None

    def list_loops(self) -> list[Loop]:
        loops = [self.finisher.loop, self.claimer.loop, self.maintenance.loop]
        if self.listener is not None:
            loops.append(self.listener.loop)
        if isinstance(self.heartbeat, Heartbeat):
            loops.append(self.heartbeat.loop)
        return loops

    # Commands.

    def _handle_command(self, command: Command) -> None:
        match command:
            case Command.SHOW_STACKS:
                self._log_stacks()
            case Command.DRAIN:
                self._drain_or_stop()
            case Command.STOP_NOW:
                self.is_to_restart = False
                self._begin_stop(within=0.0)
            case Command.RESTART:
                self._begin_restart()
            case Command.RETIRE:
                self._begin_stop(within=None)
            case Command.DRAINED:
                self._last_stage = Stage.DRAINED
                self._begin_stop(within=None)
            case Command.SUSPEND | Command.SUSPECTS_SEEN | Command.CHILD_CHANGED:
                text = "a worker was sent a command for a supervisor"
                self.report(text, level=logging.ERROR, command=command.name)
            case _:
                assert_never(command)

    def _log_stacks(self) -> None:
        stacks = format_stacks()
        run_bounded(
            lambda: logger.warning("stacks of all threads\n%s", stacks),
            seconds=STACKS_LINE_SECONDS,
        )

    def _drain_or_stop(self) -> None:
        """Drain; the second time, end now. Not in a child: its supervisor decides, and
        a service manager may send SIGTERM to all processes."""
        is_repeated = self._is_stop_requested and self.supervised is None
        self._is_stop_requested = True
        self.is_to_restart = False
        self._begin_stop(within=0.0 if is_repeated else self._shutdown_seconds)

    def _begin_restart(self) -> None:
        # A stop takes precedence, whichever came first.
        if not self.is_stopping:
            self.is_to_restart = True
            self._begin_stop(within=self._shutdown_seconds)

    def _begin_stop(self, *, within: float | None) -> None:
        """Stop, and give running jobs back after so many seconds; None: never."""
        if within is not None:
            self._drain.set_limit(within)
        self.is_stopping = True

    @property
    def _shutdown_seconds(self) -> float:
        return self.options.shutdown_timeout.total_seconds()

    # The life of a worker.

    def run(self) -> None:
        """Run until a command to stop, then drain."""
        use_immediate_transactions(self.options.database)
        self.receivers.start()
        self._register()
        self._announce_start()
        if not self.is_stopping:
            self.is_started = True
            # Before the first claim: a death from here on is no failed start.
            self._show_stage(Stage.READY)
            self._start_loops()
        # In slices: on some platforms an unlimited wait blocks signals.
        while not self.is_asked_to_stop(0.5):
            self._stop_if_idle()
        self._show_stage(self._last_stage)
        self.drain()
        if self.shared_memory is not None:
            self.shared_memory.mark_ended()
        self._drain.wait(self.receivers.finish, LAST_SIGNALS_SECONDS)
        seconds = min(ANNOUNCE_SECONDS, self.seconds_left or ANNOUNCE_SECONDS)
        run_bounded(self._report_stopped, seconds=seconds)

    def drain(self) -> None:
        """Stop all loops; running jobs end or are given back."""
        self._drain.run()

    @property
    def seconds_left(self) -> float | None:
        """How long the process may still take to end; None: there is no limit."""
        return self._drain.seconds_left

    @property
    def has_abandoned(self) -> bool:
        """True if running jobs had to be left behind in their threads."""
        return self._drain.has_abandoned

    def _register(self) -> None:
        """Start the heartbeat, and wait until our row is committed."""
        if isinstance(self.heartbeat, Heartbeat):
            self.heartbeat.loop.start()
        else:
            self.heartbeat.start(
                read_counts=partial(read_counts, self),
                on_beat=self.claimer.request_ownership_check,
                on_command=self.mailbox.put,
            )
        while not self.heartbeat.is_registered.is_set():
            if self.is_asked_to_stop(0.01):
                return

    def _announce_start(self) -> None:
        """Call the receivers of worker_started, for a limited time: they are code of
        the project."""
        if self.is_stopping:
            return
        thread = start_aside(self._report_started, name="announce")
        deadline = time.monotonic() + ANNOUNCE_SECONDS
        while thread is not None and thread.is_alive():
            if self.is_asked_to_stop(0.01):
                return
            if time.monotonic() > deadline:
                text = "a receiver of worker_started has not returned; jobs begin"
                self.report(text, level=logging.ERROR)
                return

    def _report_started(self) -> None:
        name = describe_worker(self.options)
        fields = {"name": name, "concurrency": self.options.concurrency}
        fields |= describe_queues(self.options)
        report_worker("worker started", worker_id=self.id, **fields)
        worker_started.send_robust(type(self), worker_id=self.id)

    def _report_stopped(self) -> None:
        processed = self.finisher.processed
        report_worker("worker stopped", worker_id=self.id, processed=processed)
        worker_stopped.send_robust(type(self), worker_id=self.id)

    def _show_stage(self, stage: Stage) -> None:
        if self.shared_memory is not None:
            self.shared_memory.stage = stage

    def _start_loops(self) -> None:
        self.deadlines.start()
        self.finisher.loop.start()
        self.claimer.loop.start()
        self.maintenance.loop.start()
        if self.listener is not None:
            self.listener.loop.start()
        self.watchdog.start()
        self.health.start()

    def _stop_if_idle(self) -> None:
        # For a child its supervisor decides: other children may be busy.
        if self.supervised is None and self._idle.is_over(
            self._read_status(), time.monotonic()
        ):
            # Not by stop(): the first signal still leaves running jobs their time.
            self._begin_stop(within=self._shutdown_seconds)
            logger.info(Event("no job for a while; this worker ends"))

    def report(self, text: str, *, level: int = logging.INFO, **fields: Any) -> None:
        """Log from the main thread, which must go on if the log blocks."""
        event = Event(text, worker_id=self.id, **fields)
        run_bounded(lambda: logger.log(level, event))

    def _check_after_wait(self) -> None:
        pass

    def _read_status(self) -> WorkerStatus:
        return read_worker_status(self)


def _shows_traceback(ending: Ending) -> bool:
    """On a development terminal: unless Django's log of tasks has it."""
    handler = find_handler(ending.claim.job_type)
    return not isinstance(ending.outcome, Died) or not hasattr(handler, "task")


def _never(ending: Ending) -> bool:
    return False
