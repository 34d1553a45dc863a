"""Demo: start the processes, enqueue jobs, stop at Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from pathlib import Path

from django.db import DatabaseError, connections, reset_queries

from .children import Child
from .preparation import (
    NotPrepared,
    find_port,
    is_listening,
    one_line,
    prepare_databases,
    reset_password,
)
from .terminal import Terminal
from .traffic import choose_actions, read_status, start_action, start_all_actions

# Between two jobs; for the start of the children; for their stop.
TICK_SECONDS = 0.25
START_SECONDS = 30.0
STOP_SECONDS = 12.0


class Demo:
    """Web, worker and a stream of jobs; without `seconds` it runs until Ctrl-C."""

    def __init__(self, *, port: int, seconds: float | None = None) -> None:
        self._port = port
        self._seconds = seconds
        self._terminal = Terminal()
        self._logs = Path()
        self._children: list[Child] = []
        # A flag and short sleeps, not an Event: the code that a signal interrupts may
        # hold the Event's lock.
        self._is_stopping = False

    def run(self) -> None:
        """Start everything, enqueue jobs until the end, stop everything."""
        self._listen_to_signals()
        prepare_databases()
        password = reset_password()
        self._port = find_port(self._port)
        self._logs = Path(tempfile.mkdtemp(prefix="jobqueue-demo-"))
        try:
            self._start_children()
            self._show_addresses(password)
            self._keep_busy()
        finally:
            self._stop_children()
        shutil.rmtree(self._logs, ignore_errors=True)

    def _listen_to_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        # SIGHUP ignored: started with nohup, the demo must survive its terminal.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._stop)

    def _start_children(self) -> None:
        # --insecure serves the style sheet even if DEBUG is off.
        web = ["runserver", "--noreload", "--insecure", f"127.0.0.1:{self._port}"]
        worker = ["runworker", "--name", "demo", "--shutdown-timeout", "5"]
        for name, arguments in (("web server", web), ("worker", worker)):
            log = self._logs / f"{name.replace(' ', '-')}.log"
            self._children.append(Child(name, arguments, log=log))
        deadline = time.monotonic() + START_SECONDS
        while not self._is_stopping and not is_listening(self._port):
            self._watch_children()
            if time.monotonic() > deadline:
                raise NotPrepared(f"The web server does not answer; see {self._logs}.")
            time.sleep(0.05)

    def _show_addresses(self, password: str) -> None:
        site = f"http://127.0.0.1:{self._port}"
        processes = ", ".join(f"{child.name} {child.pid}" for child in self._children)
        self._terminal.say(f"""
  Shop       {site}/
  Admin      {site}/admin/  user admin, password {password}
  Jobs       {site}/admin/jobqueue/job/
  Database   {_describe_database()}
  Processes  {processes}
  Logs       {self._logs}

Jobs keep coming until you press Ctrl-C.
""")

    def _keep_busy(self) -> None:
        started = time.monotonic()
        start_all_actions()
        for action in choose_actions():
            passed = time.monotonic() - started
            if self._is_stopping or (self._seconds and passed > self._seconds):
                self._terminal.say(f"Stopping after {passed:.0f} s.")
                return
            self._watch_children()
            try:
                start_action(action)
                if self._terminal.is_due:
                    self._terminal.show_status(read_status())
            except DatabaseError as error:
                self._terminal.say(f"The database does not answer: {one_line(error)}")
                connections.close_all()
                time.sleep(1)
            # With DEBUG each connection stores its queries.
            reset_queries()
            time.sleep(TICK_SECONDS)

    def _watch_children(self) -> None:
        for child in self._children:
            if end := child.restart_if_exited():
                self._terminal.say(f"{end} A new one has the pid {child.pid}.")

    def _stop_children(self) -> None:
        self._is_stopping = True
        for child in self._children:
            child.interrupt()
        deadline = time.monotonic() + STOP_SECONDS
        for child in self._children:
            if not child.wait(deadline - time.monotonic()):
                self._terminal.say(f"The {child.name} did not stop and was killed.")

    def _stop(self, *args: object) -> None:
        if self._is_stopping:
            # A second signal asks for a quick stop; the worker treats it the same way.
            for child in self._children:
                child.interrupt()
        self._is_stopping = True


def _describe_database() -> str:
    connection = connections["default"]
    database = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"{connection.display_name}, {_shorten(Path(database['NAME']))}"
    place = database["HOST"] or "the local socket"
    return f"{connection.display_name}, {database['NAME']} at {place}"


def _shorten(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
