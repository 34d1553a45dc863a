"""Run rounds of faults until the time is up. Called by __main__.py."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
import traceback
from pathlib import Path

import psycopg
from django.core.management import call_command
from django.db import connection

from tests.processes import ROOT, make_worker_env

from .fault_round import FaultRound
from .injections import INJECTIONS, Injection
from .report import Line, format_report


def run_faults(*, minutes: float, seed: int, only: str) -> int:
    """Inject faults for `minutes`; print progress and report; return the exit code."""
    chosen = [each for each in INJECTIONS if only in each.name]
    if not chosen:
        names = ", ".join(each.name for each in INJECTIONS)
        raise SystemExit(f"No fault has {only!r} in its name: {names}.")
    lines = {each.name: Line(each.name) for each in chosen}
    started = time.monotonic()
    number = 0
    while number == 0 or time.monotonic() < started + 60 * minutes:
        number += 1
        injection = min(chosen, key=lambda each: lines[each.name].seconds / each.share)
        _run_round(injection, lines[injection.name], seed=f"{seed}/{number}")
        elapsed = (time.monotonic() - started) / 60
        line = lines[injection.name]
        print(f"[{elapsed:5.1f} min] {injection.name}: {line}", flush=True)
    print(f"\n{describe_run(seed, started)}\n\n{format_report(lines.values())}")
    return int(any(line.has_failed for line in lines.values()))


def _run_round(injection: Injection, line: Line, *, seed: str) -> None:
    call_command("flush", interactive=False, verbosity=0)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jobqueue-faults-") as folder:
        fault_round = FaultRound(
            env=make_worker_env(),
            folder=Path(folder),
            rng=random.Random(seed),
            database=os.environ["JOBQUEUE_TEST_DATABASE"],
        )
        try:
            result = injection.run(fault_round)
        # A wait timed out. The other injections still run.
        except AssertionError:
            traceback.print_exc()
            line.broken += 1
        else:
            line.add(result)
            if result.findings:
                print(f"round {seed}\n{result.findings}", flush=True)
    line.seconds += time.monotonic() - began


def describe_run(seed: int, started: float) -> str:
    """Name what a published number must name: script, seed, database, commit."""
    connection.ensure_connection()
    raw: psycopg.Connection = connection.connection
    server = raw.info.parameter_status("server_version")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.strip()
    minutes = (time.monotonic() - started) / 60
    return (
        f"python -m tests.faults --seed {seed}: {minutes:.0f} minutes, "
        f"PostgreSQL {server}, commit {commit or 'unknown'}"
    )
