"""SIGKILL for random processes, children and supervisors, while jobs run."""

from __future__ import annotations

import random
from pathlib import Path

from django_jobqueue import JobSpec
from tests.testapp import ledgered
from tests.waiting import wait_until

from .audit import audit
from .crew import DRAINED, Crew
from .ledger import measure_ledger
from .scene import Scene, Tally, check, drain, enqueue, wait_reviving

# One kill of four is for a supervisor, with all its children.
SUPERVISORS = 0.25
# Bytes that a job leaves in the ledger at least, nearly.
BYTES = 80


def kill_at_random(scene: Scene, *, kills: int, jobs: int) -> Tally:
    """Kill so many processes over so many jobs, spread evenly over their work."""
    ledger = scene.make_ledger()
    specs: list[JobSpec] = []
    with audit() as accepted, scene.gather() as crew:
        for number in range(kills):
            count = jobs * (number + 1) // kills - len(specs)
            specs += enqueue([make_job(scene.rng, ledger) for _ in range(count)])
            moment = int(BYTES * jobs * (number + scene.rng.random()) / kills)
            _wait_for_work(crew, ledger, moment)
            _strike(crew, scene.rng)
        drain(crew, timeout=DRAINED)
        findings = check(specs, ledger, crew)
    findings.doubled += accepted
    return Tally(jobs=len(specs), injected=kills, findings=findings)


def make_job(rng: random.Random, ledger: Path) -> JobSpec:
    """Return a job of any kind, mostly short."""
    seconds = rng.choice([0.0, 0.0, 0.0, 0.01, 0.01, 0.05, 0.05, 0.2])
    work = {"ledger": str(ledger), "seconds": seconds}
    handlers = [
        ledgered.toil,
        ledgered.toil_async,
        ledgered.toil_atomically,
        ledgered.toil_aloud,
    ]
    [handler] = rng.choices(handlers, weights=[8, 6, 6, 1])
    if rng.random() < 0.05:
        handler = ledgered.toil_once
    elif handler is not ledgered.toil_aloud and rng.random() < 0.05:
        work["fails"] = 1
    return handler.spec(**work)


def _wait_for_work(crew: Crew, ledger: Path, moment: int) -> None:
    """Wait until the jobs have written so much that it is time for the next kill."""
    wait_reviving(crew, lambda: measure_ledger(ledger) >= moment)


def _strike(crew: Crew, rng: random.Random) -> None:
    if rng.random() < SUPERVISORS:
        crew.kill_supervisor(rng)
    else:
        wait_until(lambda: crew.kill_child(rng))
