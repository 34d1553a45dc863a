"""`manage.py runworker`: read the flags, wait for the database, run jobs.

The process that the user starts runs a Supervisor, which starts the same command line
again as children with a Worker each. With --in-process there is one process, a Worker.
"""

from __future__ import annotations

import errno
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import django
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from ... import __version__
from ...cli.answers import USAGE
from ...cli.queue_names import warn_about_unknown_queues
from ...cli.worker_flags import add_worker_flags, suggest_flags
from ...exceptions import ConfigurationError
from ...middleware import load_chains
from ...options import Options, get_options, make_options, read_options
from ...registry import all_handlers
from ...worker.health.reporter import HealthReporter
from ...worker.health.systemd import find_service
from ...worker.running.connections import find_pool_size
from ...worker.startup.cold_start import wait_for_database
from ...worker.startup.embedded import (
    find_web_process,
    fit_to_web_process,
    forget_web_process,
)
from ...worker.startup.logs import configure
from ...worker.startup.program import (
    CHILD_SIGNALS,
    LOG_LOST,
    SUPERVISOR_SIGNALS,
    WORKER_SIGNALS,
    can_supervise,
    flush,
    install_signal_handlers,
    is_own_program,
    leave,
    open_closed_outputs,
    restart,
)
from ...worker.supervision.supervised_heartbeat import (
    ChildSpec,
    SupervisedHeartbeat,
    is_child,
    isolate,
    take_spec,
)
from ...worker.supervision.supervisor import Supervisor
from ...worker.worker import Worker


class Command(BaseCommand):
    help = "Run background jobs (Ctrl-C once drains, twice stops at once)."
    # wait_for_database() checks the migrations: one clear line, no traceback.
    requires_migrations_checks = False
    requires_system_checks = ["jobqueue"]  # noqa: RUF012

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if is_own_program():
            open_closed_outputs()
        super().__init__(*args, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_worker_flags(parser)
        suggest_flags(parser)

    def check(self, *args: Any, **kwargs: Any) -> Any:
        # The supervisor has run the checks for its children.
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
        health_reporter = _make_health_reporter(options)
        supervisor = Supervisor(
            options,
            command=[sys.executable, *sys.orig_argv[1:]],
            health_reporter=health_reporter,
            web_process=find_web_process(),
        )
        configure(
            options.log_format,
            log_jobs=options.log_jobs,
            on_broken=lambda: supervisor.stop_without_log(LOG_LOST),
        )
        install_signal_handlers(supervisor.mailbox, SUPERVISOR_SIGNALS)
        with _open_health_reporter(health_reporter):
            # The children start in the meantime and wait until the supervisor runs.
            supervisor.spawn()
            try:
                wait_for_database(
                    supervisor, options.database, report=self.stderr.write
                )
            except BaseException:
                supervisor.abort()
                raise
            if not supervisor.is_stopping:
                self._show_banner(options)
                warn_about_unknown_queues(options)
            supervisor.run()
        if not supervisor.is_log_blocked:
            flush()
        if supervisor.is_to_restart:
            restart(supervisor)
        if supervisor.is_log_blocked:
            # The exit hooks of logging wait for the same lock.
            os._exit(supervisor.exit_code)
        if supervisor.exit_code:
            sys.exit(supervisor.exit_code)

    def _run_child(self, options: Options, spec: ChildSpec) -> None:
        forget_web_process()
        # The shared memory has this many slots, even if the settings have changed.
        options = replace(options, concurrency=spec.places)
        if spec.is_isolated:
            options = isolate(options)
        supervised = SupervisedHeartbeat(spec, options=options)
        worker = Worker(options, supervised=supervised)
        # A job may have broken it: the supervisor replaces this child. If its own
        # output is broken, its next log line shows that.
        configure(
            options.log_format,
            worker_id=worker.id,
            log_jobs=options.log_jobs,
            on_broken=worker.health.note_broken_log,
            broken={errno.EPIPE, errno.EBADF},
        )
        install_signal_handlers(worker.mailbox, CHILD_SIGNALS)
        worker.run()
        flush()
        leave(worker)

    def _run_alone(self, options: Options) -> None:
        if options.reload:
            raise CommandError(
                "--reload needs a supervisor, and a program that calls runworker has "
                "none. Start manage.py runworker --reload instead."
            )
        health_reporter = _make_health_reporter(options)
        worker = Worker(options, health_reporter=health_reporter)
        configure(
            options.log_format,
            worker_id=worker.id,
            log_jobs=options.log_jobs,
            on_broken=lambda: worker.stop_without_log(LOG_LOST),
        )
        install_signal_handlers(worker.mailbox, WORKER_SIGNALS)
        with _open_health_reporter(health_reporter):
            wait_for_database(worker, options.database, report=self.stderr.write)
            if not worker.is_stopping:
                self._show_banner(options)
                warn_about_unknown_queues(options)
                worker.run()
        flush()
        if worker.is_to_restart:
            restart(worker)
        leave(worker)
        if worker.exit_code:
            sys.exit(worker.exit_code)

    def _read_options(self, flags: dict[str, Any], *, is_quiet: bool) -> Options:
        try:
            options = make_options(flags)
            modes = {handler.is_async for handler in all_handlers().values()}
            load_chains(options.middleware, modes)
        except ConfigurationError as error:
            # The settings alone are fine: then a flag is wrong.
            is_flag = not read_options({})[1]
            raise CommandError(
                str(error), returncode=USAGE if is_flag else 1
            ) from error
        if options.database not in connections:
            known = ", ".join(connections)
            is_flag = flags.get("database") is not None
            raise CommandError(
                f"There is no database {options.database!r}; DATABASES has {known}.",
                returncode=USAGE if is_flag else 1,
            )
        # Handlers enqueue into the database that this worker reads.
        os.environ["JOBQUEUE_DATABASE"] = options.database
        get_options.cache_clear()
        if find_web_process() is not None:
            options = fit_to_web_process(options)
        return self._fit_pool(options, is_quiet=is_quiet)

    def _fit_pool(self, options: Options, *, is_quiet: bool) -> Options:
        """Never run more jobs than Django's pool has connections for."""
        size = find_pool_size(options.database)
        if size is None or size >= options.concurrency:
            return options
        text = (
            f"Concurrency lowered from {options.concurrency} to {size}, the size of "
            f"Django's connection pool. To raise it, set OPTIONS['pool']['max_size']."
        )
        if not is_quiet:
            self.stderr.write(text, self.style.WARNING)
        return replace(options, concurrency=size)

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
            else f"{_describe_processes(options)} and a supervisor"
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


def _make_health_reporter(options: Options) -> HealthReporter:
    # A program that calls this command notifies systemd itself.
    return HealthReporter(options, service=find_service() if is_own_program() else None)


@contextmanager
def _open_health_reporter(health_reporter: HealthReporter) -> Iterator[None]:
    try:
        health_reporter.open()
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    try:
        yield
    finally:
        health_reporter.close()


def _describe_processes(options: Options) -> str:
    fewest, most = options.process_bounds
    return str(most) if fewest == most else f"{fewest} to {most}"
