"""Worker: one process that runs jobs. Composes the loops, and stops them in order.

Made by `runworker`, in a child of a supervisor or in a process of its own. First the
heartbeat is committed, then claims begin; at the end the claims stop first and the
heartbeat last, so that a draining worker is never rescued.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID, uuid4

from django.db import connections

from ..lifecycle.beat import Pulse
from ..lifecycle.claim import Suspects
from ..lifecycle.endings import Ending
from ..options import Options
from ..signals import Event, JobLog, report_worker, worker_started, worker_stopped
from ..states import WorkerState
from .bench import Bench
from .board import Counts, Stage
from .claimer import RELEASED, Claimer
from .connections import use_immediate_transactions
from .deadlines import Deadlines
from .finisher import Finisher
from .heartbeat import Heartbeat, read_memory
from .held import HeldJob, HeldJobs
from .identity import describe_worker, make_identity
from .idle import IdleClock
from .link import DRAIN, HURRY, RETIRE, STACKS, Link
from .listener import Listener
from .loop import Loop
from .maintenance import Maintenance
from .policy import foresee_delay
from .signs import SignsOfLife
from .slots import Slots
from .stacks import format_stacks
from .vitals import Vitals
from .watchdog import Watchdog
from .watcher import Watcher, find_files

logger = logging.getLogger("django_jobqueue.worker")

# How long the ends of the last jobs may take to be written, and the end of our row.
LAST_WRITES = 10.0
LAST_ROW = 2.0
# Once running jobs are given back, everything must be over within 2 s.
HURRIED = 1.0

WORDS = {DRAIN: "drain", RETIRE: "retire", HURRY: "hurry", STACKS: "stacks"}


class Worker:
    """Claims and runs jobs until it is told to stop."""

    def __init__(
        self,
        options: Options,
        *,
        link: Link | None = None,
        signs: SignsOfLife | None = None,
    ) -> None:
        self.id: UUID = link.worker_id if link is not None else uuid4()
        self.options = options
        self.link = link
        # Of a worker without a supervisor.
        self._signs = signs
        self._idle = IdleClock(options)
        self.board = link.board if link is not None else None
        self.held = HeldJobs(self.board, grace=options.grace.total_seconds())
        # Set by the main thread once it has seen that it is asked to stop.
        self.stopping = threading.Event()
        # Signals and the end of a burst. A SimpleQueue, since its put() is reentrant:
        # an Event set by a signal handler could deadlock with a wait it interrupts.
        self._calls: queue.SimpleQueue[str] = queue.SimpleQueue()
        # Monotonic: when running jobs are given back; None: nobody is in a hurry.
        self._limit: float | None = None
        self._stage = Stage.DRAINING
        # Attempts that the supervisor has ended, whose threads are still there.
        self._expelled = 0
        self.is_to_restart = False
        self._is_started = False
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
            suspects=self._choose_suspects(),
            on_suspects=self.board.tell_suspects if self.board else lambda: None,
            on_drained=lambda: self._calls.put("drained"),
            is_fenced=lambda: self.heartbeat.is_overdue(),
        )
        self.heartbeat: Heartbeat | Link = link or Heartbeat(
            make_identity(self.id, options),
            options=options,
            read_pulse=self._read_pulse,
            on_beat=self.claimer.ask_reconcile,
        )
        self.maintenance = Maintenance(
            self.heartbeat, self.claimer, worker_id=self.id, options=options
        )
        self.deadlines = Deadlines(
            self.held, find_delay=lambda held: foresee_delay(held, options)
        )
        self.listener = self._make_listener()
        self.watchdog = Watchdog(self._list_loops())

    def _choose_suspects(self) -> Suspects:
        if self.link is None:
            return Suspects.TOO
        return Suspects.ONLY if self.link.is_isolated else Suspects.NOT

    def _make_listener(self) -> Listener | Watcher | None:
        """Return what tells the claim loop of new jobs, where anything can."""
        alias = self.options.database
        if connections[alias].vendor == "postgresql":
            return Listener(self.claimer, self.held, worker_id=self.id, alias=alias)
        if paths := find_files(alias):
            return Watcher(paths, on_change=self.claimer.tell_change, alias=alias)
        return None

    def _list_loops(self) -> list[Loop]:
        loops = [self.finisher.loop, self.claimer.loop, self.maintenance.loop]
        if self.listener is not None:
            loops.append(self.listener.loop)
        if isinstance(self.heartbeat, Heartbeat):
            loops.append(self.heartbeat.loop)
        return loops

    def stop(self, *, hurry: bool = False) -> None:
        """Ask the worker to drain. Safe in a signal handler."""
        self._calls.put("hurry" if hurry else "drain")

    def show_stacks(self) -> None:
        """Ask for the stacks of all threads in the log. Safe in a signal handler."""
        self._calls.put("stacks")

    def restart(self) -> None:
        """Ask the worker to drain, and its process to start anew then: unless somebody
        asks for the end, before or after. Safe in a signal handler."""
        self._calls.put("restart")

    def is_asked_to_stop(self, timeout: float = 0.0) -> bool:
        """Wait for a call to stop. Only for the thread that runs the worker."""
        with suppress(queue.Empty):
            self._heed(self._calls.get(timeout=timeout))
        if self._signs is not None:
            # Wherever the main thread waits, it passes here.
            self._signs.show(self._read_vitals())
        return self.stopping.is_set()

    def _heed(self, call: str) -> None:
        if call == "stacks":
            logger.warning("stacks of all threads\n%s", format_stacks())
            return
        now = time.monotonic()
        match call:
            case "drained":
                self._stage = Stage.DRAINED
            case "restart" if not self.stopping.is_set():
                self.is_to_restart = True
                self._limit = now + self.options.shutdown_timeout.total_seconds()
            case "drain":
                self.is_to_restart = False
                limit = now + self.options.shutdown_timeout.total_seconds()
                self._limit = limit if self._limit is None else self._limit
            case "hurry":
                self.is_to_restart = False
                self._limit = now if self._limit is None else min(now, self._limit)
        self.stopping.set()

    def heed_all(self) -> None:
        """Heed what was called for since, without waiting."""
        while not self._calls.empty():
            self._heed(self._calls.get())

    def run(self) -> None:
        """Run until stop() is called, then drain."""
        use_immediate_transactions(self.options.database)
        self._start()
        if not self.stopping.is_set():
            name = describe_worker(self.options)
            fields = {"name": name, "concurrency": self.options.concurrency}
            report_worker("worker started", worker_id=self.id, **fields)
            worker_started.send_robust(type(self), worker_id=self.id)
            self._is_started = True
            self._show_stage(Stage.READY)
        # In slices: on some platforms a wait without end keeps signals out.
        while not self.is_asked_to_stop(0.5):
            self._stop_if_idle()
        self._show_stage(self._stage)
        self._drain()
        report_worker(
            "worker stopped", worker_id=self.id, processed=self.finisher.processed
        )
        worker_stopped.send_robust(type(self), worker_id=self.id)

    def _stop_if_idle(self) -> None:
        # A child is one of several: its supervisor decides.
        if self.link is None and self._idle.is_over(
            self._read_vitals(), time.monotonic()
        ):
            logger.info(Event("no job for a while; this worker ends"))
            self.stop()

    def _show_stage(self, stage: Stage) -> None:
        if self.board is not None:
            self.board.stage = stage

    def _start(self) -> None:
        if isinstance(self.heartbeat, Heartbeat):
            self.heartbeat.loop.start()
        else:
            self.heartbeat.start(
                read_counts=self._read_counts,
                on_beat=self.claimer.ask_reconcile,
                on_word=lambda word: self._calls.put(WORDS[word]),
            )
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
        self.watchdog.stop()
        if running := len(self.held):
            report_worker("worker drains", worker_id=self.id, running=running)
        for loop in (self.claimer.loop, self.maintenance.loop):
            loop.stop()
        # What a claim on its way still brings is given back, not started.
        self.slots.close()
        for held in self.held.list():
            held.flags.stopping = True
        if self.listener is not None:
            self.listener.loop.stop()
        self._wait(self.claimer.loop.join, HURRIED)
        self._release_waiting()
        # Also if nothing was held before: a claim may have come in between.
        self._wait_for_jobs()
        self._release_running()
        self._finish_writes()
        now = time.monotonic()
        if not self.slots.stop_coroutines(max(0.05, self._cap(now + 0.5) - now)):
            self.has_abandoned = True
        self.deadlines.stop()
        self.heartbeat.finish()
        self._wait(self.heartbeat.join, LAST_ROW)

    @property
    def seconds_left(self) -> float | None:
        """How long the process may still take to end; None: as long as it likes."""
        if self._limit is None:
            return None
        return max(0.1, self._limit + HURRIED - time.monotonic())

    def _wait(self, join: Callable[[float], bool], seconds: float) -> None:
        """Give a thread time to end, and hear meanwhile that it is too much."""
        deadline = time.monotonic() + seconds
        while not join(0.02) and time.monotonic() < self._cap(deadline):
            self.is_asked_to_stop()

    def _cap(self, deadline: float) -> float:
        """Return the deadline, or the last moment if that is earlier."""
        return deadline if self._limit is None else min(deadline, self._limit + HURRIED)

    def _release_waiting(self) -> None:
        self.claimer.release(job.claim for job in self.slots.take_waiting())

    def _wait_for_jobs(self) -> None:
        while self._count_running() > 0:
            self.is_asked_to_stop(0.02)
            if self._limit is not None and time.monotonic() >= self._limit:
                return

    def _count_running(self) -> int:
        """Return how many attempts may still end by themselves."""
        for held in self.held.list():
            if self._is_expelled(held):
                # The supervisor has written its end; only the thread is left.
                self.has_abandoned = True
                self.held.remove([held.claim])
                self._expelled += 1
        return self.slots.running - self._expelled

    def _is_expelled(self, held: HeldJob) -> bool:
        place = held.place
        return (
            self.board is not None
            and place is not None
            and self.board.is_expelled(place)
        )

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
        """Wait until the last ends are written: as long as there is time for it."""
        deadline = time.monotonic() + LAST_WRITES
        if self._limit is not None:
            deadline = self._limit + HURRIED
        while len(self.held) and time.monotonic() < self._cap(deadline):
            self.finisher.wake()
            self.is_asked_to_stop(0.01)
        self.finisher.loop.stop()
        self.finisher.wake()
        self._wait(self.finisher.loop.join, 0.5)
        self.finisher.close()
        if left := len(self.held):
            logger.warning(
                Event(
                    "the ends of jobs could not be written; they will be rescued",
                    worker_id=self.id,
                    count=left,
                )
            )

    def _read_counts(self, ticks: int) -> Counts:
        return Counts(
            ticks=ticks,
            processed=self.finisher.processed,
            failed=self.finisher.failed,
            running=self.slots.running,
        )

    def _read_vitals(self) -> Vitals:
        now = time.monotonic()
        heartbeat = self.heartbeat
        is_stopping = self.stopping.is_set()
        confirmed = heartbeat.confirmed if isinstance(heartbeat, Heartbeat) else 0.0
        return Vitals(
            is_ready=self._is_started and not is_stopping,
            is_stopping=is_stopping,
            is_restarting=self.is_to_restart,
            confirmed=confirmed,
            stuck=tuple(loop.name for loop in self._list_loops() if loop.is_stuck(now)),
            processes=1,
            running=self.slots.running,
            processed=self.finisher.processed,
        )

    def _read_pulse(self) -> Pulse:
        is_stopping = self.stopping.is_set()
        return Pulse(
            state=WorkerState.STOPPING if is_stopping else WorkerState.RUNNING,
            processed=self.finisher.processed,
            failed=self.finisher.failed,
            running=self.slots.running,
            memory=read_memory(),
        )
