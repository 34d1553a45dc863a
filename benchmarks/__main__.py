"""Measure our system and its peers in one run: `make bench` and `make bench-quick`.

    python -m benchmarks [--quick] [--only drain,latency] [--systems jobqueue,celery]
                         [--rounds 3] [--jobs 20000] [--output FOLDER] [--keep]

Installs missing packages and starts PostgreSQL and redis. Each round of a measure calls
every system once, one after the other. A system that cannot be installed or started
appears in the table as "not run", with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

import psycopg

from benchmarks import catalog, installs, measures, report, servers
from benchmarks.catalog import Peer
from benchmarks.driver import Servers, System, say
from benchmarks.measures.measure import Measure, Scale
from benchmarks.system import Unsupported
from benchmarks.workers import Failed
from tests.venvs import ROOT

T = TypeVar("T")

# A full run updates the documentation; any other run writes to a scratch folder.
DOCS = ROOT / "docs" / "design" / "benchmarks"
SCRATCH = ROOT / ".venvs" / "bench-results"
QUICK = Scale(seconds=10, rounds=3, latencies=20, budget=110)


def main() -> int:
    options = parse_arguments()
    end_cleanly_on_sigterm()
    scale = choose_scale(options)
    chosen = choose_measures(options)
    peers = choose_peers(options, chosen)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = stack.enter_context(start_servers(peers, folder))
        results = report.new_results(scale, database=describe(found.postgres))
        systems = start_systems(stack, peers, found, results)
        # Results are written even if the run is interrupted.
        stack.callback(write, results, options)
        run(chosen, systems, scale, results)
    say(f"{as_minutes(time.monotonic() - started)} in all")
    return 0


def write(results: report.Results, options: argparse.Namespace) -> None:
    """Write the files and print the page."""
    is_whole = not (options.quick or options.only or options.systems)
    folder = options.output or (DOCS if is_whole else SCRATCH)
    if options.keep and (earlier := report.read_results(folder)):
        results.keep_rest(earlier)
    written = report.write(results, folder)
    say("\n" + report.as_page(results))
    say(f"{len(written)} files in {folder}")


def end_cleanly_on_sigterm() -> None:
    """Exit through all `with` blocks on SIGTERM: servers and workers stop too."""

    def leave(*args: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ours and the bare loop")
    parser.add_argument("--only", default="", help="measures, separated by commas")
    parser.add_argument("--systems", default="", help="systems, separated by commas")
    parser.add_argument("--rounds", type=int, help="rounds of each measure")
    parser.add_argument("--jobs", type=int, help="jobs of a drain, at most")
    parser.add_argument("--seconds", type=float, help="longest duration of a drain")
    parser.add_argument("--history", type=int, help="finished jobs, future jobs")
    parser.add_argument("--backlog", type=int, help="jobs of the long backlog")
    parser.add_argument("--pinned", type=int, help="jobs under a pinned xmin")
    parser.add_argument("--memory", type=int, help="jobs of the memory measure")
    parser.add_argument("--latencies", type=int, help="single jobs to an idle worker")
    parser.add_argument("--output", type=Path, help="folder for files")
    parser.add_argument(
        "--keep", action="store_true", help="keep what the folder has of other measures"
    )
    parser.add_argument("--list", action=ListAction, nargs=0, help="what there is")
    return parser.parse_args()


class ListAction(argparse.Action):
    """Print all measures and systems, then exit."""

    def __call__(self, *args: object, **kwargs: object) -> None:
        for measure in measures.MEASURES:
            print(f"{measure.name:18} {measure.title}")
        print()
        for peer in catalog.PEERS:
            print(f"{peer.name:18} {peer.label}: {peer.settings}")
        raise SystemExit(0)


def choose_scale(options: argparse.Namespace) -> Scale:
    base = QUICK if options.quick else Scale()
    given = {name.name: getattr(options, name.name, None) for name in fields(Scale)}
    return replace(base, **{name: value for name, value in given.items() if value})


def choose_measures(options: argparse.Namespace) -> list[Measure]:
    names = options.only.split(",") if options.only else None
    if names is None:
        names = list(measures.QUICK if options.quick else measures.BY_NAME)
    return [pick(measures.BY_NAME, name, "measure") for name in names]


def choose_peers(options: argparse.Namespace, chosen: list[Measure]) -> list[Peer]:
    """Return the systems that take part in at least one of the measures."""
    names = options.systems.split(",") if options.systems else None
    if names is None:
        names = list(measures.QUICK_SYSTEMS if options.quick else catalog.BY_NAME)
    peers = [pick(catalog.BY_NAME, name, "system") for name in names]
    return [peer for peer in peers if any(m.systems(peer) for m in chosen)]


def pick(table: dict[str, T], name: str, kind: str) -> T:
    """Return the measure or system of that name."""
    try:
        return table[name]
    except KeyError:
        raise SystemExit(f"No {kind} {name!r}; there are {', '.join(table)}.") from None


@contextlib.contextmanager
def start_servers(peers: list[Peer], folder: Path) -> Iterator[Servers]:
    """Run PostgreSQL; run redis too if a peer needs it and it is available."""
    with contextlib.ExitStack() as stack:
        address, reason = "", ""
        if any(peer.store == "redis" for peer in peers):
            try:
                address = stack.enter_context(servers.redis())
            except servers.NoServer as error:
                reason = str(error)
        url = stack.enter_context(servers.postgres())
        yield Servers(url, address, reason, folder)


def describe(url: str) -> str:
    with psycopg.connect(url) as connection:
        [[version]] = connection.execute("SHOW server_version").fetchall()
        [[fsync]] = connection.execute("SHOW fsync").fetchall()
        [[commit]] = connection.execute("SHOW synchronous_commit").fetchall()
    return f"PostgreSQL {version}, fsync {fsync}, synchronous_commit {commit}"


def start_systems(
    stack: contextlib.ExitStack,
    peers: list[Peer],
    found: Servers,
    results: report.Results,
) -> dict[str, System]:
    """Install and prepare the systems; record the reason if one cannot take part."""
    systems = {}
    for peer in peers:
        try:
            installs.install_peer(peer)
            systems[peer.name] = stack.enter_context(System(peer, found))
        except (installs.NotInstalled, Failed, Unsupported) as error:
            results.not_run[peer.name] = str(error)
            say(f"{peer.label}: not run: {error}")
        else:
            results.versions[peer.name] = installs.version_of(peer)
    return systems


@dataclass
class Clock:
    """Progress of the run, and an estimate of the time left."""

    waiting: list[tuple[Measure, Peer]]
    took: dict[tuple[str, str], float] = field(default_factory=dict)

    def left(self) -> float:
        """Return the estimated seconds left.

        Uses the earlier duration of each call if known, else the measure's estimate
        corrected by the error so far.
        """
        hints = sum(measures.BY_NAME[name].seconds for name, _ in self.took) or 1
        factor = sum(self.took.values()) / hints if self.took else 1
        return sum(
            self.took.get((measure.name, peer.name), factor * measure.seconds)
            for measure, peer in self.waiting
        )


def run(
    chosen: list[Measure],
    systems: dict[str, System],
    scale: Scale,
    results: report.Results,
) -> None:
    """Run measure after measure, round after round, system after system."""
    clock = Clock(plan(chosen, systems, scale))
    end = time.monotonic() + scale.budget
    while clock.waiting:
        measure, peer = clock.waiting.pop(0)
        if peer.name in results.missing.get(measure.name, {}):
            continue
        if time.monotonic() > end and (measure.name, peer.name) in clock.took:
            say(f"{measure.name}: {peer.label}: no further round, time is up")
            continue
        started = time.monotonic()
        line = run_one(measure, systems[peer.name], scale, results)
        clock.took[measure.name, peer.name] = time.monotonic() - started
        say(f"{measure.name}: {peer.label}: {line}; {as_minutes(clock.left())} left")


def plan(
    chosen: list[Measure], systems: dict[str, System], scale: Scale
) -> list[tuple[Measure, Peer]]:
    return [
        (measure, system.peer)
        for measure in chosen
        for _ in range(scale.rounds)
        for system in systems.values()
        if measure.systems(system.peer)
    ]


def run_one(
    measure: Measure, system: System, scale: Scale, results: report.Results
) -> str:
    """Measure one system once; return the line to print."""
    try:
        numbers = measure.run(system, scale)
    except (Unsupported, Failed) as reason:
        results.leave_out(measure.name, system.peer.name, str(reason))
        return f"not run: {reason}"
    results.add(measure.name, system.peer.name, numbers)
    return ", ".join(
        f"{report.as_text(value)} {name}" for name, value in numbers.items()
    )


def as_minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"


if __name__ == "__main__":
    sys.exit(main())
