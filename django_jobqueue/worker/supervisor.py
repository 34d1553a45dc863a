"""Supervisor: the small parent of the processes that run jobs.

Made by `runworker`. It starts children, sees at once when one dies and how, ends
attempts that ignore their time-out, recycles by jobs or memory, and passes signals on.
It runs no job and no code of a handler, so that nothing a job does can stop it; all its
writing is done by Heart.
"""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Sequence
from contextlib import suppress

from ..options import Options
from ..signals import Event
from .board import Inside, Stage
from .children import Child, describe_exit
from .connections import use_immediate_transactions
from .crew import Crew
from .heart import Heart
from .idle import IdleClock
from .link import OUTDATED, TICK
from .program import reap_strangers
from .scaling import Scaler
from .seats import Seat
from .signs import SignsOfLife
from .sources import Sources
from .stacks import format_stacks
from .vitals import Vitals
from .watchdog import Watchdog

logger = logging.getLogger("django_jobqueue.worker")

# A child that has not shown for so long that its interpreter runs holds its lock.
HELD = 1.0
# … and with no job to blame it is beyond help after this.
WEDGED = 60.0
# How often the backlog is counted, and the files of the code are looked at.
SCALING_INTERVAL = 0.5
SOURCES_INTERVAL = 1.0
# Seconds on top of what children are given to end. A little more than they take
# themselves; the rest of two seconds is for what is to be written after them.
PATIENCE = 1.25
LAST_WRITES = 5.0
SHORT_WRITES = 0.4


class Supervisor:
    """Keeps its seats taken until it is told to stop."""

    def __init__(
        self,
        options: Options,
        *,
        command: Sequence[str],
        signs: SignsOfLife | None = None,
        web_process: int | None = None,
    ) -> None:
        self.options = options
        self.exit_code = 0
        self.is_to_restart = False
        self.is_stopping = False
        # Somebody has asked for the end: the next one who does is in a hurry.
        self._is_told = False
        self._command = command
        self._signs = signs
        # The parent without which this process has no business.
        self._web_process = web_process
        fewest, most = (1, 1) if options.once else options.process_bounds
        self._scaler = Scaler(options) if fewest < most else None
        self._next_scaling = 0.0
        self._idle = IdleClock(options)
        self._sources = Sources() if options.reload else None
        self._next_source_look = 0.0
        # Whether any child was ever ready: before that, a death is a failed start.
        self._was_ready = False
        # Jobs of children that have ended.
        self._processed = 0
        # Monotonic: when those that are still there are killed.
        self._kill_at = 0.0
        self._calls: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.heart = Heart(options, on_suspects=lambda: self._calls.put("suspects"))
        self._crew = Crew(options, size=fewest, start=self._start)
        self._watchdog = Watchdog([self.heart.loop])

    def stop(self, *, hurry: bool = False) -> None:
        """Ask for the end; again: at once. Safe in a signal handler."""
        self._calls.put("hurry" if hurry else "stop")

    def restart(self) -> None:
        """Ask for the end, and for the process to start anew then: unless somebody
        asks for the end alone, before or after. Safe in a signal handler."""
        self._calls.put("restart")

    def show_stacks(self) -> None:
        """Ask for the stacks of all processes in the log."""
        self._calls.put("stacks")

    def look(self) -> None:
        """Have the next step begin at once: a child may have ended."""
        self._calls.put("look")

    def is_asked_to_stop(self, timeout: float = 0.0) -> bool:
        """Wait for a call; tell whether the end was asked for."""
        with suppress(queue.Empty):
            self._heed(self._calls.get(timeout=timeout))
        # Wherever the main thread waits, it passes here.
        self._look_for_web_process()
        if self._signs is not None:
            self._signs.show(self._read_vitals())
        return self.is_stopping

    def heed_all(self) -> None:
        """Heed what was called for since, without waiting."""
        while not self._calls.empty():
            self._heed(self._calls.get())

    def _heed(self, call: str) -> None:
        match call:
            case "stacks":
                logger.warning("stacks of the supervisor\n%s", format_stacks())
                for child in self._crew.list_children():
                    child.show_stacks()
            case "restart" if not self.is_stopping:
                self.is_to_restart = True
                self._end_children(hurry=False)
            case "stop" if self.is_to_restart or not self._is_told:
                # An end that we have begun by ourselves does not count.
                self.is_to_restart, self._is_told = False, True
                self._end_children(hurry=False)
            case "stop" | "hurry":
                self.is_to_restart, self._is_told = False, True
                self._end_children(hurry=True)
            case "suspects":
                self._crew.is_isolation_wanted = True

    def spawn(self) -> None:
        """Start the first children. From the main thread: they end with the thread
        that started them."""
        self._crew.fill(time.monotonic())

    def abort(self) -> None:
        """End what was started; nothing has been claimed yet."""
        for child in self._crew.list_children():
            child.kill()
            child.process.wait()
            child.close()

    def run(self) -> None:
        """Watch over the children until the end."""
        use_immediate_transactions(self.options.database)
        self.heart.start()
        self._watchdog.start()
        while not self._is_over():
            self.is_asked_to_stop(self._choose_wait())
            now = time.monotonic()
            self._reap(now)
            for child in self._crew.list_children():
                self._watch(child, now)
            self._crew.watch_isolation(now)
            if self.is_stopping:
                self._press(now)
            else:
                self._crew.recycle()
                self._scale(now)
                self._reload_if_changed(now)
                self._crew.fill(now)
                self._stop_if_idle(now)
        self._watchdog.stop()
        self._finish()

    def _is_over(self) -> bool:
        if self._crew.list_children():
            return False
        return self.is_stopping or self._crew.is_done

    def _start(self, seat: Seat) -> Child:
        child = Child(seat.options, self._command, is_isolated=seat.is_isolated)
        self.heart.add(child)
        return child

    # Watching.

    def _watch(self, child: Child, now: float) -> None:
        self._was_ready = self._was_ready or child.stage >= Stage.READY
        silence = child.measure_silence(now)
        overruns = child.list_overruns(now)
        if overruns:
            self._expel(child, overruns, silence)
        elif silence > WEDGED and child.stage is not Stage.STARTING:
            self._end_wedged(child)
        if child.has_seen_suspects():
            self._crew.is_isolation_wanted = True

    def _expel(self, child: Child, overruns: Sequence[Inside], silence: float) -> None:
        """End attempts that would not stop; their process is replaced."""
        for inside in overruns:
            child.board.expel(inside)
            self.heart.end_attempt(child, inside)
            logger.error(
                Event(
                    "an attempt did not stop; its process is replaced",
                    job_id=inside.id,
                    attempt=inside.attempt,
                    worker_id=child.id,
                    pid=child.process.pid,
                )
            )
        if silence > HELD:
            # Nothing else in there can run or end.
            child.kill()
        elif not child.is_leaving:
            child.drain()
        self._crew.vacate(child)

    def _end_wedged(self, child: Child) -> None:
        if any(True for _ in child.board.read_inside()):
            # A job may hold the interpreter's lock: it has a time-out.
            return
        logger.critical(
            Event("a child is stuck and is replaced", pid=child.process.pid)
        )
        child.kill()

    # Scaling.

    def _scale(self, now: float) -> None:
        """Have as many seats as the work asks for."""
        if self._scaler is None or now < self._next_scaling:
            return
        self._next_scaling = now + SCALING_INTERVAL
        size, running = self._crew.size, self._crew.count_running()
        measured, backlog = self.heart.backlog
        if running:
            # What it says is looked at next time; while nothing runs, nothing waits.
            self.heart.ask_backlog(self._scaler.limit)
            if now - measured > 3 * SCALING_INTERVAL:
                return
        else:
            backlog = 0
        count = self._scaler.choose(size, running=running, backlog=backlog, now=now)
        if count != size:
            fields = {"processes": count, "running": running, "backlog": backlog}
            logger.info(Event("scaling", **fields))
            self._crew.fit(count)

    # Reloading.

    def _reload_if_changed(self, now: float) -> None:
        if self._sources is None or now < self._next_source_look:
            return
        self._next_source_look = now + SOURCES_INTERVAL
        path = self._sources.find_change()
        if path is not None:
            logger.info(Event("code has changed; running jobs end first", file=path))
            self._crew.change_over()

    def _report_broken(self) -> None:
        if not self._crew.is_held_back:
            text = "the code cannot be loaded; waiting until it changes"
            logger.error(Event(text))
        self._crew.is_held_back = True

    # Deaths.

    def _reap(self, now: float) -> None:
        for child in self._crew.list_children():
            code = child.process.poll()
            if code is not None:
                self._bury(child, code, now)
        if os.getpid() == 1:
            reap_strangers({child.process.pid for child in self._crew.list_children()})

    def _bury(self, child: Child, code: int, now: float) -> None:
        is_charged = code != 0 and not child.is_killed
        inside = [each for each in child.board.read_inside() if not each.is_expelled]
        self._report(child, code, inside)
        self.heart.bury(
            child,
            inside,
            kept=child.board.read_kept(),
            cause=describe_exit(code) if is_charged else None,
            # One that we had to end has not died by itself.
            is_clean=code == 0 or (child.is_killed and self.is_stopping),
        )
        self._processed += child.board.counts.processed
        stage = child.stage
        seat = self._crew.remove(child, now)
        if seat is not None:
            self._note_death(seat, code, stage)
        child.close()

    def _report(self, child: Child, code: int, inside: Sequence[Inside]) -> None:
        is_expected = code == 0 or child.is_killed or self.is_stopping
        logger.log(
            logging.INFO if is_expected else logging.ERROR,
            Event(
                f"child {describe_exit(code)}",
                pid=child.process.pid,
                worker_id=child.id,
                inside=len(inside),
                processed=child.board.counts.processed,
                lived=time.monotonic() - child.started,
            ),
        )

    def _note_death(self, seat: Seat, code: int, stage: Stage) -> None:
        """Decide what becomes of the seat of a child that ended unasked."""
        if seat.child is None:
            seat.is_done = code == 0 and stage is Stage.DRAINED
            if code != 0 and self.options.once:
                seat.is_done, self.exit_code = True, 1
        if code == OUTDATED:
            logger.warning(Event("the package was replaced; starting anew"))
            self.restart()
        elif code > 0 and self._sources is not None and stage is Stage.STARTING:
            self._report_broken()
        elif code > 0 and not self._was_ready and not self.is_stopping:
            # Not even the first one could start: to go on trying helps nobody.
            self.exit_code = code
            self._end_children(hurry=True)

    # What is known outside.

    def _read_vitals(self) -> Vitals:
        now = time.monotonic()
        children = self._crew.list_children()
        is_ready = any(child.stage is Stage.READY for child in self._crew.list_seated())
        counts = [child.board.counts for child in children]
        return Vitals(
            is_ready=is_ready and not self.is_stopping,
            is_stopping=self.is_stopping,
            is_restarting=self.is_to_restart,
            confirmed=self.heart.confirmed,
            stuck=("heartbeat",) if self.heart.loop.is_stuck(now) else (),
            processes=len(children),
            running=sum(each.running for each in counts),
            processed=self._processed + sum(each.processed for each in counts),
        )

    # The end.

    def _stop_if_idle(self, now: float) -> None:
        if self._idle.is_over(self._read_vitals(), now):
            logger.info(Event("no job for a while; this worker ends"))
            self._end_children(hurry=False)

    def _look_for_web_process(self) -> None:
        is_orphan = self._web_process not in (None, os.getppid())
        if is_orphan and not self.is_stopping:
            logger.info(Event("the web process is gone; this worker ends"))
            self._end_children(hurry=False)

    def _end_children(self, *, hurry: bool) -> None:
        seconds = 0.0 if hurry else self.options.shutdown_timeout.total_seconds()
        kill_at = time.monotonic() + seconds + PATIENCE
        # However often somebody asks, it does not take longer.
        self._kill_at = min(kill_at, self._kill_at) if self.is_stopping else kill_at
        self.is_stopping = True
        for child in self._crew.list_children():
            child.hurry() if hurry else child.drain()

    def _choose_wait(self) -> float:
        """Return how long to wait for a call: not beyond the moment to kill."""
        if not self.is_stopping:
            return TICK
        return min(TICK, max(0.01, self._kill_at - time.monotonic()))

    def _press(self, now: float) -> None:
        if now >= self._kill_at:
            for child in self._crew.list_children():
                child.kill()

    def _finish(self) -> None:
        """Write what is left to write; the database may be away."""
        began = time.monotonic()
        self.heart.finish()
        while not self.heart.loop.join(0.02):
            # Somebody may lose patience meanwhile.
            self.is_asked_to_stop()
            left = LAST_WRITES if self.heart.has_errands else SHORT_WRITES
            if self.is_stopping:
                left = max(SHORT_WRITES, min(left, self._kill_at - began))
            if time.monotonic() >= began + left:
                break
        if self.heart.has_errands:
            logger.warning(Event("not everything could be written; rescue will do it"))
