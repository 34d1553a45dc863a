"""Measures of memory, of the start of a worker and of import time."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchmarks.catalog import OURS
from benchmarks.driver import System
from benchmarks.measures.draining import drain
from benchmarks.measures.measure import Numbers, Scale, count_for, patient
from benchmarks.processes import memory_megabytes
from tests.venvs import ROOT

WEIGH = """
import django
django.setup()
from django.db import connection
connection.ensure_connection()
print(flush=True)
input()
"""
# Every project has these: without a model, Django would not load a database backend.
BASE = ["django.contrib.contenttypes", "django.contrib.auth"]
SETUP = """
import os, time
import django.conf
from django.conf import settings
settings.configure(
    INSTALLED_APPS={apps},
    DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql"}}}},
)
import django
started = time.perf_counter()
django.setup()
print(time.perf_counter() - started)
"""


def memory(system: System, scale: Scale) -> Numbers:
    count = count_for(system.peer, patient(scale), most=scale.memory)
    result = drain(system, patient(scale), count=count)
    early, late = result.memory
    numbers = {"MB": late, "MB after a tenth": early, "growth MB": late - early}
    if system.peer.name == OURS:
        numbers["beyond Django MB"] = late - _weigh_django(system)
    return numbers


def first_job(system: System, scale: Scale) -> Numbers:
    """Start a worker with one job waiting, and wait for that job."""
    system.call("clear")
    system.call("enqueue", handler="nothing", count=1)
    with system.workers() as workers:
        sample = workers.wait_for_calls(1, seconds=60)
        seconds = sample.begun[0] / 1e9 - workers.started
    numbers = {"s": seconds}
    if system.peer.name == OURS:
        shell = _best_of_three(["-m", "django", "shell", "-c", "pass"], system)
        numbers |= {"shell s": shell, "of shell": seconds / shell}
    return numbers


def import_time(system: System, scale: Scale) -> Numbers:
    """Compare django.setup() with and without our app, best of three for each."""
    times: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(3):
        for name, apps in (("without", BASE), ("with", [*BASE, "django_jobqueue"])):
            code = SETUP.format(apps=apps)
            done = subprocess.check_output([sys.executable, "-c", code], text=True)
            times[name].append(1000 * float(done))
    without, with_ours = min(times["without"]), min(times["with"])
    return {"added ms": with_ours - without, "without ms": without}


def _weigh_django(system: System) -> float:
    """Return the memory of a process that has set up Django and connected."""
    with subprocess.Popen(
        [sys.executable, "-c", WEIGH],
        env=_environment(system),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        found = memory_megabytes([process.pid])
        process.communicate("\n")
    return found


def _best_of_three(arguments: list[str], system: System) -> float:
    times = []
    for _ in range(3):
        started = time.monotonic()
        command = [sys.executable, *arguments]
        subprocess.run(
            command,
            env=_environment(system),
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        times.append(time.monotonic() - started)
    return min(times)


def _environment(system: System) -> dict[str, str]:
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "DATABASE_URL": system.url,
        "PYTHONPATH": str(ROOT),
    }
