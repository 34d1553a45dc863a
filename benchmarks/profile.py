"""A flame graph of our worker while it drains no-op jobs: `make profile`.

    python -m benchmarks.profile [--seconds 15] [--jobs 400000] [--output FILE]

py-spy starts the worker and samples all its threads and processes 250 times a second.
It counts only the thread that holds the GIL, so width is time that no other Python
thread could use. The start of supervisor and worker is included; its imports show
which part that is.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks import catalog, installs
from benchmarks.__main__ import DOCS, end_cleanly_on_sigterm, start_servers
from benchmarks.driver import System, say
from benchmarks.workers import Workers
from tests.venvs import ROOT

RATE = 250
OUTPUT = DOCS / "profile.svg"
WRITING_SECONDS = 60


def main() -> None:
    parser = argparse.ArgumentParser(prog="profile", description=__doc__)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=400_000)
    parser.add_argument("--handler", default="nothing")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    end_cleanly_on_sigterm()
    peer = catalog.BY_NAME[catalog.OURS]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        start_servers([peer], Path(folder)) as servers,
        System(peer, servers) as system,
    ):
        system.call("enqueue", handler=options.handler, count=options.jobs)
        system.tidy()
        profile(system, options)


def profile(system: System, options: argparse.Namespace) -> None:
    """Run the worker under py-spy for the requested seconds."""
    spy = str(installs.BENCH.parent / "py-spy")
    flags = [
        "--gil",
        "--subprocesses",
        "--rate",
        str(RATE),
        "--duration",
        str(options.seconds),
    ]
    flags += ["--output", str(options.output)]
    options.output.unlink(missing_ok=True)
    with system.workers(wrapped_in=(spy, "record", *flags, "--")) as workers:
        started = workers.wait_for_calls(1, seconds=60).begun[0] / 1e9
        wait_for_file(options.output, workers, options.seconds + WRITING_SECONDS)
        calls = workers.sample().calls
    # Remove paths of this machine from the file.
    drawn = options.output.read_text().replace(f"{ROOT}/", "")
    options.output.write_text(drawn)
    took = min(time.monotonic() - started, options.seconds)
    say(f"{options.output}: {calls:,} jobs in about {took:.0f} s")
    if calls >= options.jobs:
        say("All jobs were done before the end; use a higher --jobs.")


def wait_for_file(path: Path, workers: Workers, seconds: float) -> None:
    """Wait until py-spy has written its file and exited."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text().rstrip().endswith("</svg>")):
        if time.monotonic() > deadline:
            output = (workers.records / "log").read_text(errors="replace")
            raise SystemExit(f"py-spy wrote nothing:\n{output[-2000:]}")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
