"""Supervisor: the small parent of the processes that run jobs.

Made by `runworker`. It starts children, replaces those that die or hang, scales and
reloads, and passes signals on. It runs no job and no code of a handler, so no job can
stop it. SupervisorDb does all its database work.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from ...log_events import Event
from ...options import Options
from ..commands import Command
from ..health.bounded import LOG_LINE_SECONDS
from ..health.reporter import HealthReporter
from ..health.status import WorkerStatus
from ..health.watchdog import Watchdog, format_stacks
from ..loop import STUCK_SECONDS
from ..main_thread import MainThread
from ..running.connections import use_immediate_transactions
from ..startup.program import reap_orphans
from .child import Child, describe_exit
from .child_watch import ChildWatch
from .deaths import has_ended_well, is_failed_start, judge_death, report_death
from .memory_values import Stage
from .pool_status import read_pool_status
from .process_pool import ProcessPool, ProcessSlot
from .reload import CodeWatcher
from .scaling import PoolScaling
from .supervised_heartbeat import EXIT_OUTDATED, TICK_SECONDS
from .supervisor_db import SupervisorDb, logger

CODE_CHECK_SECONDS = 1.0
# On top of the time that children have to end. A little more than they take themselves;
# the rest of two seconds is for what is written after them.
KILL_MARGIN_SECONDS = 1.25
# How long the last writes may take: with something to write, and with nothing.
LAST_WRITES_SECONDS = 5.0
SHORT_WRITES_SECONDS = 0.4
LAST_REPORTS_SECONDS = 0.2
# The exit code if not even the first child could start.
EXIT_FAILED_START = 1


@dataclass(slots=True)
class MainLoop:
    """The supervisor's main loop, for its watchdog."""

    name: str = "main"
    steps: int = 0
    # It never waits for longer than a tick.
    is_asleep: bool = False
    is_dead: bool = False


class Supervisor(MainThread):
    """Keeps a pool of children running until it is asked to stop."""

    def __init__(
        self,
        options: Options,
        *,
        command: Sequence[str],
        health_reporter: HealthReporter | None = None,
        web_process: int | None = None,
    ) -> None:
        super().__init__(options, health_reporter=health_reporter)
        # True if the last log lines could not be written: an ordinary exit would wait.
        self.is_log_blocked = False
        # Why it stops, for the log; empty: there is nothing left to do.
        self._reason = ""
        # Monotonic: when the children that are left are killed.
        self._kill_at = 0.0
        self._command = command
        # The pid of the parent without which this process must end.
        self._web_process = web_process
        # Whether any child was ever ready: before that, a death is a failed start.
        self._was_ready = False
        # Jobs processed by children that have ended.
        self._processed = 0
        fewest, most = (1, 1) if options.once else options.process_bounds
        self._code_watcher = CodeWatcher() if options.reload else None
        self._next_code_check = 0.0
        self.supervisor_db = SupervisorDb(
            options,
            on_suspects=lambda: self.mailbox.put(Command.SUSPECTS_SEEN),
        )
        self._pool = ProcessPool(options, size=fewest, start=self._start)
        self._watch = ChildWatch(self._pool, self.supervisor_db)
        self._scaling: PoolScaling | None = None
        if fewest < most:
            self._scaling = PoolScaling(options, self._pool, self.supervisor_db)
        self._main = MainLoop()
        self._watchdog = Watchdog([self.supervisor_db.loop, self._main])

    # Commands.

    def _handle_command(self, command: Command) -> None:
        match command:
            case Command.SHOW_STACKS:
                logger.warning("stacks of the supervisor\n%s", format_stacks())
                for child in self._pool.list_children():
                    child.show_stacks()
            case Command.SUSPEND:
                self._suspend()
            case Command.RESTART:
                self._begin_restart()
            case Command.DRAIN:
                # The second time means: now. An end that the supervisor has begun by
                # itself does not count.
                self._begin_stop(now=self._is_stop_requested)
            case Command.STOP_NOW:
                self._begin_stop(now=True)
            case Command.SUSPECTS_SEEN:
                self._pool.is_isolation_wanted = True
            case Command.CHILD_CHANGED:
                # The step that follows checks all children.
                pass
            case Command.RETIRE | Command.DRAINED:
                text = "a supervisor was sent a command for a worker"
                logger.error(Event(text, command=command.name))
            case _:
                assert_never(command)

    def _begin_stop(self, *, now: bool) -> None:
        self.is_to_restart, self._is_stop_requested = False, True
        self._end_children("asked to stop", now=now)

    def _begin_restart(self) -> None:
        # A stop takes precedence, whichever came first.
        if not self.is_stopping:
            self.is_to_restart = True
            self._end_children("asked to restart", now=False)

    def _suspend(self) -> None:
        """Stop all processes until SIGCONT: Ctrl-Z reaches the supervisor only."""
        children = self._pool.list_children()
        for child in children:
            child.suspend()
        os.kill(os.getpid(), signal.SIGSTOP)
        for child in children:
            child.resume()

    # The life of a supervisor.

    def spawn(self) -> None:
        """Start the first children. Call it in the main thread: a child ends with the
        thread that started it."""
        self._pool.fill(time.monotonic())

    def abort(self) -> None:
        """Kill the children before run(); nothing has been claimed yet."""
        for child in self._pool.list_children():
            child.kill()
            child.process.wait()
            child.close()

    def run(self) -> None:
        """Supervise the children until the end."""
        use_immediate_transactions(self.options.database)
        self.supervisor_db.start()
        self._watchdog.start()
        while not self._is_over():
            self.is_asked_to_stop(self._choose_wait())
            self._step(time.monotonic())
        self._watchdog.stop()
        self._finish_writes()
        reason = self._reason or "nothing left to do"
        logger.info(Event("supervisor ends", cause=reason, code=self.exit_code))
        self.is_log_blocked = not logger.flush(LOG_LINE_SECONDS)

    def _is_over(self) -> bool:
        if self._pool.list_children():
            return False
        return self.is_stopping or self._pool.is_done

    def _choose_wait(self) -> float:
        """Return the seconds to wait for a command: not beyond the moment to kill."""
        if not self.is_stopping:
            return TICK_SECONDS
        return min(TICK_SECONDS, max(0.01, self._kill_at - time.monotonic()))

    def _step(self, now: float) -> None:
        self._reap(now)
        for child in self._pool.list_children():
            self._was_ready = self._was_ready or child.stage >= Stage.READY
            self._watch.check(child, now)
        self._pool.watch_isolation(now)
        if self.is_stopping:
            self._kill_late_children(now)
        else:
            self._pool.recycle(now)
            if self._scaling is not None:
                self._scaling.step(now)
            self._reload_if_changed(now)
            self._pool.fill(now)
            self._stop_if_idle(now)

    def _start(self, slot: ProcessSlot) -> Child | None:
        """Start a child; None if the system cannot: the pool tries again later."""
        if self.is_stopping:
            return None
        try:
            child = Child(slot.options, self._command, is_isolated=slot.is_isolated)
        except OSError as error:
            self._note_failed_spawn(error)
            return None
        self.supervisor_db.add(child)
        return child

    def _note_failed_spawn(self, error: OSError) -> None:
        if not self._was_ready and self._code_watcher is None:
            self._end_without_child(f"failed with {error}", EXIT_FAILED_START)
        else:
            text = "a child could not be started; trying again"
            # Not the error itself: its traceback keeps the shared memory.
            logger.error(Event(text, error=str(error)))

    def _reload_if_changed(self, now: float) -> None:
        if self._code_watcher is None or now < self._next_code_check:
            return
        self._next_code_check = now + CODE_CHECK_SECONDS
        path = self._code_watcher.find_change()
        if path is not None:
            logger.info(Event("code has changed; running jobs end first", file=path))
            self._pool.change_over()

    # Deaths.

    def _reap(self, now: float) -> None:
        for child in self._pool.list_children():
            code = child.process.poll()
            if code is not None:
                self._record_death(child, code, now)
        if os.getpid() == 1:
            reap_orphans({child.process.pid for child in self._pool.list_children()})

    def _record_death(self, child: Child, code: int, now: float) -> None:
        death = judge_death(child, code, is_stopping=self.is_stopping)
        self.supervisor_db.record_death(death)
        self._processed += child.shared_memory.counts.processed
        self._was_ready = self._was_ready or child.stage >= Stage.READY
        slot = self._pool.remove(child, now)
        if slot is not None:
            self._handle_unasked_exit(slot, child, code)
        child.close()
        report_death(death, code, is_stopping=self.is_stopping, logger=logger)

    def _handle_unasked_exit(self, slot: ProcessSlot, child: Child, code: int) -> None:
        """Decide whether the slot of a child that ended unasked gets another one."""
        is_well = has_ended_well(child, code)
        if slot.child is None:
            slot.is_done = is_well and child.stage is Stage.DRAINED
            if not is_well and self.options.once:
                slot.is_done, self.exit_code = True, 1
        if is_failed_start(child, code):
            self._handle_failed_start(code)

    def _handle_failed_start(self, code: int) -> None:
        if code == EXIT_OUTDATED:
            self.mailbox.put(Command.RESTART)
            logger.warning(Event("the package was replaced; starting anew"))
        elif self._code_watcher is not None:
            if not self._pool.is_held_back:
                text = "the code cannot be loaded; waiting until it changes"
                logger.error(Event(text))
            self._pool.is_held_back = True
        elif not self._was_ready and not self.is_stopping:
            self._end_without_child(describe_exit(code), max(code, EXIT_FAILED_START))

    def _end_without_child(self, cause: str, code: int) -> None:
        # Not even the first child could start: more tries would not help.
        self.exit_code = code
        self._end_children(f"the first child {cause} at its start", now=True)
        text = "no child could start; this worker ends"
        logger.error(Event(text, cause=cause, code=self.exit_code))

    # Status.

    def _read_status(self) -> WorkerStatus:
        now = time.monotonic()
        return read_pool_status(
            self._pool,
            now,
            is_stopping=self.is_stopping,
            is_restarting=self.is_to_restart,
            confirmed=self.supervisor_db.confirmed,
            stuck=self._list_stuck(now),
            processed=self._processed,
        )

    def _list_stuck(self, now: float) -> tuple[str, ...]:
        states = {
            "heartbeat": self.supervisor_db.loop.is_stuck(now),
            "log": logger.measure_delay(now) > STUCK_SECONDS,
        }
        return tuple(name for name, is_stuck in states.items() if is_stuck)

    # The end.

    def _stop_if_idle(self, now: float) -> None:
        if self._idle.is_over(self._read_status(), now):
            self._end_children("no job for a while", now=False)
            logger.info(Event("no job for a while; this worker ends"))

    def _check_after_wait(self) -> None:
        self._main.steps += 1
        self._check_web_process()

    def _check_web_process(self) -> None:
        is_orphan = self._web_process not in (None, os.getppid())
        if is_orphan and not self.is_stopping:
            self._end_children("the web process is gone", now=False)
            logger.info(Event("the web process is gone; this worker ends"))

    def _end_children(self, reason: str, *, now: bool) -> None:
        self._reason = self._reason if self.is_stopping else reason
        seconds = 0.0 if now else self.options.shutdown_timeout.total_seconds()
        kill_at = time.monotonic() + seconds + KILL_MARGIN_SECONDS
        # A repeated request never extends the time.
        self._kill_at = min(kill_at, self._kill_at) if self.is_stopping else kill_at
        self.is_stopping = True
        for child in self._pool.list_children():
            child.stop_now() if now else child.drain()

    def _kill_late_children(self, now: float) -> None:
        if now >= self._kill_at:
            for child in self._pool.list_children():
                child.kill()

    def _finish_writes(self) -> None:
        """Wait for the last writes; the database may be away."""
        began = time.monotonic()
        self.supervisor_db.finish()
        while not self.supervisor_db.loop.join(0.02):
            # A second signal may come meanwhile.
            self.is_asked_to_stop()
            has_unwritten = self.supervisor_db.has_unwritten
            left = LAST_WRITES_SECONDS if has_unwritten else SHORT_WRITES_SECONDS
            if self.is_stopping:
                left = max(SHORT_WRITES_SECONDS, min(left, self._kill_at - began))
            if time.monotonic() >= began + left:
                break
        self.supervisor_db.finish_reports(LAST_REPORTS_SECONDS)
        if self.supervisor_db.has_unwritten:
            logger.warning(Event("not everything could be written; rescue will do it"))
