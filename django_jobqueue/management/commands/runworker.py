"""`manage.py runworker`: read the flags, look whether it can start, run jobs.

The process that the user starts becomes a Supervisor; started again by it, with the
same command line, a child with a Worker. With --in-process it is a Worker itself.
"""

from __future__ import annotations

import os
import signal
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
from ...cli.worker_flags import add_worker_flags
from ...exceptions import ConfigurationError
from ...middleware import load_chains
from ...options import Options, get_options, make_options
from ...registry import all_handlers
from ...worker.children import HELD_SIGNALS
from ...worker.cold_start import wait_for_database
from ...worker.connections import find_pool_size
from ...worker.hosting import (
    find_web_process,
    fit_to_web_process,
    forget_web_process,
)
from ...worker.link import ChildSpec, Link, is_child, isolate, take_spec
from ...worker.logs import configure
from ...worker.program import (
    can_supervise,
    flush,
    heed_signals,
    heed_signals_alone,
    is_own_program,
    leave,
    restart,
)
from ...worker.signs import SignsOfLife
from ...worker.supervisor import Supervisor
from ...worker.systemd import find_service
from ...worker.worker import Worker


class Command(BaseCommand):
    help = "Run background jobs until told to stop (Ctrl-C once drains, twice stops)."
    # Checked below, with a clear line instead of a traceback.
    requires_migrations_checks = False
    requires_system_checks = ["jobqueue"]  # noqa: RUF012

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_worker_flags(parser)

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
        signs = _make_signs(options)
        supervisor = Supervisor(
            options,
            command=[sys.executable, *sys.orig_argv[1:]],
            signs=signs,
            web_process=find_web_process(),
        )
        configure(options.log_format, on_broken=supervisor.stop)
        heed_signals(supervisor)
        with _open_signs(signs):
            # They start while we look at the database, and wait for our word.
            supervisor.spawn()
            try:
                wait_for_database(supervisor, options.database, tell=self.stderr.write)
            except BaseException:
                supervisor.abort()
                raise
            if not supervisor.is_stopping:
                self._show_banner(options)
            supervisor.run()
        flush()
        if supervisor.is_to_restart:
            restart(supervisor)
        if supervisor.exit_code:
            sys.exit(supervisor.exit_code)

    def _run_child(self, options: Options, spec: ChildSpec) -> None:
        forget_web_process()
        # The board has that many places, whatever the settings say by now.
        options = replace(options, concurrency=spec.places)
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
        flush()
        leave(worker)

    def _run_alone(self, options: Options) -> None:
        if options.reload:
            raise CommandError(
                "--reload needs a supervisor, and there is none where a program calls "
                "runworker. Start manage.py runworker --reload instead."
            )
        signs = _make_signs(options)
        worker = Worker(options, signs=signs)
        configure(options.log_format, worker_id=worker.id, on_broken=worker.stop)
        heed_signals_alone(worker)
        with _open_signs(signs):
            wait_for_database(worker, options.database, tell=self.stderr.write)
            if not worker.stopping.is_set():
                self._show_banner(options)
                worker.run()
        flush()
        if worker.is_to_restart:
            restart(worker)
        leave(worker)

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
        if find_web_process() is not None:
            options = fit_to_web_process(options)
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


def _make_signs(options: Options) -> SignsOfLife:
    # Where a program calls us, it speaks for itself.
    return SignsOfLife(options, service=find_service() if is_own_program() else None)


@contextmanager
def _open_signs(signs: SignsOfLife) -> Iterator[None]:
    try:
        signs.open()
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    try:
        yield
    finally:
        signs.close()


def _describe_processes(options: Options) -> str:
    fewest, most = options.process_bounds
    return str(most) if fewest == most else f"{fewest} to {most}"
