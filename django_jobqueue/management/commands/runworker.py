"""`manage.py runworker`: read the flags, look whether it can start, run a Worker."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import ArgumentParser
from dataclasses import replace
from typing import Any

import django
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from ... import __version__
from ...exceptions import ConfigurationError
from ...options import Options, get_options, make_options
from ...outcomes import is_database_trouble
from ...registry import all_handlers
from ...worker.logs import configure
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
            "--max-jobs", type=int, metavar="N", help="Stop after so many jobs."
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

    def handle(self, *args: Any, **flags: Any) -> None:
        options = self._read_options(flags)
        worker = Worker(options)
        configure(options.log_format, worker_id=worker.id)
        self._heed_signals(worker)
        self._wait_for_database(worker)
        if not worker.stopping.is_set():
            self._show_banner(options, worker)
            worker.run()
        sys.stdout.flush()
        sys.stderr.flush()
        if worker.is_to_restart:
            # The same process anew: whoever watches its pid sees no gap.
            os.execv(sys.executable, sys.orig_argv)
        if worker.has_abandoned:
            # Threads with jobs that were given back must not go on one moment longer.
            os._exit(0)

    def _heed_signals(self, worker: Worker) -> None:
        """TERM and INT drain, again: hurry; QUIT hurries; HUP drains and starts anew;
        USR1 writes the stacks of all threads to the log."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        # Windows has none of these.
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGQUIT, lambda *_: worker.stop(hurry=True))
            signal.signal(signal.SIGHUP, lambda *_: worker.restart())
            signal.signal(signal.SIGUSR1, lambda *_: worker.show_stacks())

    def _read_options(self, flags: dict[str, Any]) -> Options:
        try:
            options = make_options(flags)
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
        return self._fit_pool(options)

    def _fit_pool(self, options: Options) -> Options:
        """Never run more jobs than Django's pool has connections for."""
        pool = connections[options.database].settings_dict["OPTIONS"].get("pool")
        if not pool:
            return options
        # psycopg_pool's own default for both sizes is 4.
        sizes = pool if isinstance(pool, dict) else {}
        size = sizes.get("max_size") or sizes.get("min_size", 4)
        if size >= options.concurrency:
            return options
        self.stderr.write(
            f"Concurrency lowered from {options.concurrency} to {size}: that many "
            f"connections Django's pool has. OPTIONS['pool']['max_size'] raises it.",
            self.style.WARNING,
        )
        return replace(options, concurrency=size)

    def _wait_for_database(self, worker: Worker) -> None:
        """Come back when the tables are there; wait while the database is away."""
        alias = worker.options.database
        pause = BUSY_WAIT
        while not worker.is_asked_to_stop():
            try:
                missing = _find_missing_migrations(alias)
            except Exception as error:
                if not is_database_trouble(error):
                    raise
                reason = " ".join(str(error).split())[:200]
                self.stderr.write(
                    f"The database {alias!r} cannot be reached, trying again in "
                    f"{pause:g} s: {reason}"
                )
                connections[alias].close()
                _sleep(pause, worker)
                pause = min(2 * pause, LONGEST_WAIT)
                continue
            finally:
                connections.close_all()
            if not missing:
                return
            raise CommandError(
                f"The database {alias!r} lacks migrations of django_jobqueue "
                f"({', '.join(missing)}). Run: manage.py migrate --database {alias}"
            )

    def _show_banner(self, options: Options, worker: Worker) -> None:
        if not sys.stderr.isatty():
            return
        connection = connections[options.database]
        queues = ", ".join(f"{name}:{weight}" for name, weight in options.queues or ())
        wake = "LISTEN, polling below" if worker.listener else "polling"
        self.stderr.write(
            f"django_jobqueue {__version__}, Django {django.get_version()}, "
            f"{connection.display_name} {connection.settings_dict['NAME']}\n"
            f"  worker   {worker.id}\n"
            f"  queues   {queues or 'all'}\n"
            f"  slots    {options.concurrency}; async handlers share one connection\n"
            f"  wake-up  {wake}\n"
            f"  handlers {len(all_handlers())}\n"
            f"Ctrl-C once drains, twice stops.",
            str,
        )


def _find_missing_migrations(alias: str) -> list[str]:
    loader = MigrationLoader(connections[alias])
    ours = {name for app, name in loader.disk_migrations if app == "jobqueue"}
    done = {name for app, name in loader.applied_migrations if app == "jobqueue"}
    return sorted(ours - done)


def _sleep(seconds: float, worker: Worker) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not worker.is_asked_to_stop(0.1):
        pass
