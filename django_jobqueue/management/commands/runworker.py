"""`manage.py runworker`: read the flags, look whether it can start, run jobs.

The process that the user starts becomes a Supervisor; started again by it, with the
same command line, a child with a Worker. With --in-process it is a Worker itself.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from argparse import ArgumentParser
from contextlib import suppress
from dataclasses import replace
from typing import Any

import django
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from ... import __version__
from ...exceptions import ConfigurationError
from ...middleware import load_chains
from ...options import Options, get_options, make_options
from ...outcomes import is_database_trouble
from ...registry import all_handlers
from ...worker.children import HELD_SIGNALS
from ...worker.connections import find_pool_size
from ...worker.link import ChildSpec, Link, is_child, isolate, take_spec
from ...worker.logs import configure
from ...worker.supervisor import (
    HEEDED_SIGNALS,
    Supervisor,
    can_supervise,
    heed_signals,
    is_own_program,
)
from ...worker.worker import Worker

BUSY_WAIT = 1.0
LONGEST_WAIT = 10.0


class Command(BaseCommand):
    help = "Run background jobs until told to stop (Ctrl-C once drains, twice stops)."
    # Checked below, with a clear line instead of a traceback.
    requires_migrations_checks = False
    requires_system_checks = ["jobqueue"]  # noqa: RUF012

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queues",
            metavar="high:4,default,low",
            help="Queues to serve, with weights. Default: all, new ones included.",
        )
        parser.add_argument(
            "--exclude-queues", metavar="NAMES", help="Queues not to serve."
        )
        parser.add_argument(
            "--concurrency", type=int, metavar="N", help="Jobs that run at a time."
        )
        parser.add_argument(
            "--poll-interval",
            type=float,
            metavar="SECONDS",
            help="How often to look for jobs where nobody can notify us.",
        )
        parser.add_argument(
            "--batch-size", type=int, metavar="N", help="The most jobs one claim takes."
        )
        parser.add_argument(
            "--shutdown-timeout",
            type=float,
            metavar="SECONDS",
            help="How long running jobs may go on after the first signal.",
        )
        parser.add_argument(
            "--processes", type=int, metavar="N", help="Processes that run jobs."
        )
        parser.add_argument(
            "--max-jobs",
            type=int,
            metavar="N",
            help="Replace a process after so many jobs (--in-process: stop).",
        )
        parser.add_argument(
            "--max-memory",
            metavar="SIZE",
            help="Replace a process that takes more memory, such as 512M.",
        )
        parser.add_argument(
            "--in-process",
            action="store_true",
            default=None,
            help="No child processes, for debuggers: no hard time-outs either.",
        )
        ends = parser.add_mutually_exclusive_group()
        ends.add_argument(
            "--once", action="store_true", default=None, help="Stop after one job."
        )
        ends.add_argument(
            "--burst",
            action="store_true",
            default=None,
            help="Stop when nothing of the queues is pending, running or due.",
        )
        parser.add_argument(
            "--database", metavar="ALIAS", help="The database that holds the jobs."
        )
        parser.add_argument("--name", help="What to call this worker in lists.")
        parser.add_argument(
            "--log-format", choices=["text", "json"], help="logfmt or JSON lines."
        )
        parser.add_argument(
            "--log-jobs",
            choices=["auto", "all"],
            help="all: one line for each job, however many there are.",
        )

    def check(self, *args: Any, **kwargs: Any) -> Any:
        # A child would only repeat what its supervisor has said.
        return None if is_child() else super().check(*args, **kwargs)

    def handle(self, *args: Any, **flags: Any) -> None:
        spec = take_spec()
        options = self._read_options(flags, is_quiet=spec is not None)
        if spec is not None:
            self._run_child(options, spec)
        elif options.in_process or not can_supervise():
            self._run_alone(options)
        else:
            self._run_supervisor(options)

    def _run_supervisor(self, options: Options) -> None:
        supervisor = Supervisor(options, command=[sys.executable, *sys.orig_argv[1:]])
        configure(options.log_format, on_broken=supervisor.stop)
        heed_signals(supervisor)
        # They start while we look at the database, and wait for our word.
        supervisor.spawn()
        try:
            self._wait_for_database(supervisor, options.database)
        except BaseException:
            supervisor.abort()
            raise
        if not supervisor.is_stopping:
            self._show_banner(options)
        supervisor.run()
        _flush()
        if supervisor.is_to_restart:
            _restart(supervisor)
        if supervisor.exit_code:
            sys.exit(supervisor.exit_code)

    def _run_child(self, options: Options, spec: ChildSpec) -> None:
        if spec.is_isolated:
            options = isolate(options)
        link = Link(spec, options=options)
        worker = Worker(options, link=link)
        # Our supervisor decides for all of us.
        configure(
            options.log_format,
            worker_id=worker.id,
            on_broken=lambda: os.kill(spec.supervisor, signal.SIGTERM),
        )
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        signal.signal(signal.SIGQUIT, lambda *_: worker.stop(hurry=True))
        signal.signal(signal.SIGUSR1, lambda *_: worker.show_stacks())
        # Those that reach the whole group are the supervisor's. Not SIG_IGN: programs
        # that a handler starts would inherit it.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)
        worker.run()
        _flush()
        _leave(worker)

    def _run_alone(self, options: Options) -> None:
        worker = Worker(options)
        configure(options.log_format, worker_id=worker.id, on_broken=worker.stop)
        _heed_signals(worker)
        self._wait_for_database(worker, options.database)
        if not worker.stopping.is_set():
            self._show_banner(options)
            worker.run()
        _flush()
        if worker.is_to_restart:
            _restart(worker)
        _leave(worker)

    def _read_options(self, flags: dict[str, Any], *, is_quiet: bool) -> Options:
        try:
            options = make_options(flags)
            modes = {handler.is_async for handler in all_handlers().values()}
            load_chains(options.middleware, modes)
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        if options.database not in connections:
            known = ", ".join(connections)
            raise CommandError(
                f"There is no database {options.database!r}; DATABASES has {known}."
            )
        # What handlers enqueue shall go where this worker looks for jobs.
        os.environ["JOBQUEUE_DATABASE"] = options.database
        get_options.cache_clear()
        return self._fit_pool(options, is_quiet=is_quiet)

    def _fit_pool(self, options: Options, *, is_quiet: bool) -> Options:
        """Never run more jobs than Django's pool has connections for."""
        size = find_pool_size(options.database)
        if size is None or size >= options.concurrency:
            return options
        text = (
            f"Concurrency lowered from {options.concurrency} to {size}: that many "
            f"connections Django's pool has. OPTIONS['pool']['max_size'] raises it."
        )
        if not is_quiet:
            self.stderr.write(text, self.style.WARNING)
        return replace(options, concurrency=size)

    def _wait_for_database(self, worker: Worker | Supervisor, alias: str) -> None:
        """Come back when the tables are there; wait while the database is away."""
        pause = BUSY_WAIT
        while not worker.is_asked_to_stop():
            look = _Look(alias)
            look.start()
            while look.is_alive():
                look.join(0.05)
                if worker.is_asked_to_stop():
                    return
            if look.missing:
                raise CommandError(
                    f"The database {alias!r} lacks migrations of django_jobqueue "
                    f"({', '.join(look.missing)}). "
                    f"Run: manage.py migrate --database {alias}"
                )
            if look.error is None:
                return
            if not is_database_trouble(look.error):
                raise look.error
            reason = " ".join(str(look.error).split())[:200]
            self.stderr.write(
                f"The database {alias!r} cannot be reached, trying again in "
                f"{pause:g} s: {reason}"
            )
            _sleep(pause, worker)
            pause = min(2 * pause, LONGEST_WAIT)

    def _show_banner(self, options: Options) -> None:
        if not sys.stderr.isatty():
            return
        connection = connections[options.database]
        queues = ", ".join(f"{name}:{weight}" for name, weight in options.queues or ())
        is_postgres = connection.vendor == "postgresql"
        wake = "LISTEN, polling below" if is_postgres else "polling"
        processes = (
            "one, without supervisor"
            if options.in_process
            else f"{options.processes} and a supervisor"
        )
        self.stderr.write(
            f"django_jobqueue {__version__}, Django {django.get_version()}, "
            f"{connection.display_name} {connection.settings_dict['NAME']}\n"
            f"  processes {processes}\n"
            f"  queues    {queues or 'all'}\n"
            f"  slots     {options.concurrency} in each process; "
            f"async handlers share one connection\n"
            f"  wake-up   {wake}\n"
            f"  handlers  {len(all_handlers())}\n"
            f"Ctrl-C once drains, twice stops.",
            str,
        )


class _Look(threading.Thread):
    """Reads which migrations are missing.

    A thread: a database that does not answer at all would keep the main one, and every
    signal with it, for minutes.
    """

    def __init__(self, alias: str) -> None:
        super().__init__(name="jobqueue-look", daemon=True)
        self.missing: list[str] = []
        self.error: Exception | None = None
        self._alias = alias

    def run(self) -> None:
        try:
            self.missing = _find_missing_migrations(self._alias)
        # Raised again where somebody waits for it.
        except Exception as error:
            self.error = error
        finally:
            _close_connections()


def _find_missing_migrations(alias: str) -> list[str]:
    loader = MigrationLoader(connections[alias])
    ours = {name for app, name in loader.disk_migrations if app == "jobqueue"}
    done = {name for app, name in loader.applied_migrations if app == "jobqueue"}
    return sorted(ours - done)


def _heed_signals(worker: Worker) -> None:
    """TERM and INT drain, again: hurry; QUIT hurries; HUP drains and starts anew; USR1
    writes the stacks of all threads to the log."""
    asked = itertools.count()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop(hurry=next(asked) > 0))
    # Windows has none of these.
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGQUIT, lambda *_: worker.stop(hurry=True))
        signal.signal(signal.SIGHUP, lambda *_: worker.restart())
        signal.signal(signal.SIGUSR1, lambda *_: worker.show_stacks())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED_SIGNALS)


def _close_connections() -> None:
    """Leave nothing open: a supervisor has no use for Django's connections."""
    wrapper: Any
    for wrapper in connections.all(initialized_only=True):
        wrapper.close()
        if wrapper.settings_dict["OPTIONS"].get("pool"):
            wrapper.close_pool()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Nobody may be reading any more.
        with suppress(OSError, ValueError):
            stream.flush()


def _restart(worker: Worker | Supervisor) -> None:
    """Start the same process anew: whoever watches its pid sees no gap."""
    # What comes from here on waits until the new program has handlers: a signal must
    # not end it, nor get lost. What has come is heeded: it may be that we shall end.
    signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED_SIGNALS)
    worker.heed_all()
    if worker.is_to_restart:
        os.execv(sys.executable, sys.orig_argv)


def _leave(worker: Worker) -> None:
    """See that the process ends in time, whatever threads its jobs have left in it."""
    if worker.has_abandoned:
        # Threads with jobs that were given back must not go on one moment longer.
        os._exit(0)
    if worker.seconds_left is not None and is_own_program():
        # Python would wait for others for as long as they like.
        threading.Thread(
            target=_end_after, args=(worker.seconds_left,), daemon=True
        ).start()


def _end_after(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(0)


def _sleep(seconds: float, worker: Worker | Supervisor) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not worker.is_asked_to_stop(0.1):
        pass
