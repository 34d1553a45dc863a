"""Virtual environments and Node folders of the peers, below .venvs/.

    python3 -m benchmarks.installs    # make .venvs/bench, ours, and print its Python

Made on demand with the newest Python found, and kept while the requirements do not
change. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.catalog import Peer
from tests.venvs import ROOT, VENVS, create_venv, find_python, make_venv

BENCH = VENVS / "bench" / "bin" / "python"
NODE = VENVS / "bench-node"
INSTALL_SECONDS = 600
NEWEST_MINOR = 20
OLDEST_MINOR = 11


class NotInstalled(Exception):
    """A peer could not be installed; the text says why, in one line."""


def newest_python() -> str:
    """Return the newest Python found."""
    for minor in range(NEWEST_MINOR, OLDEST_MINOR - 1, -1):
        if python := find_python((3, minor)):
            return python
    raise SystemExit("Python 3.11 or newer is needed.")


def make_own_venv() -> Path:
    """Return the Python of .venvs/bench, which has this project and py-spy."""
    return make_venv("bench", extras="binary,bench", python=newest_python())


def install_peer(peer: Peer) -> None:
    """Install what a peer needs, or raise NotInstalled."""
    if peer.node:
        _install_node(peer)
    elif peer.venv:
        _install_venv(peer)


def python_of(peer: Peer) -> str:
    """Return the Python that runs a peer's adapter."""
    if not peer.venv:
        return str(BENCH) if BENCH.exists() else sys.executable
    return str(_folder(peer) / "bin" / "python")


def version_of(peer: Peer) -> str:
    """Return the installed version of a peer."""
    if peer.node:
        code = (
            f"require({str(NODE / 'node_modules')!r} + '/{peer.node[0]}/package.json')"
        )
        command = ["node", "-p", f"{code}.version"]
    else:
        package = peer.requires[0].partition("[")[0] if peer.requires else ""
        package = package or ("psycopg" if peer.name == "bare" else "django-jobqueue")
        code = f"from importlib.metadata import version; print(version({package!r}))"
        command = [python_of(peer), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip()


def _folder(peer: Peer) -> Path:
    return VENVS / f"bench-{peer.venv}"


def _install_venv(peer: Peer) -> None:
    folder, python = _folder(peer), newest_python()
    wanted = "\n".join([os.path.realpath(python), *peer.requires])
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"Making .venvs/{folder.name} …", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        create_venv(folder, python)
    except SystemExit as error:
        raise NotInstalled(str(error)) from None
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", *peer.requires], cwd=ROOT)
    stamp.write_text(wanted)


def _install_node(peer: Peer) -> None:
    if not shutil.which("node") or not shutil.which("npm"):
        raise NotInstalled("Node is not installed")
    modules = NODE / "node_modules"
    if all((modules / package).exists() for package in peer.node):
        return
    print(f"Installing {', '.join(peer.node)} in .venvs/{NODE.name} …", flush=True)
    NODE.mkdir(parents=True, exist_ok=True)
    quiet = ["--no-audit", "--no-fund", "--silent"]
    _run(["npm", "install", "--prefix", str(NODE), *quiet, *peer.node], cwd=NODE)


def _run(command: list[str], *, cwd: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{command[0]} failed: {error}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise NotInstalled(lines[-1])


if __name__ == "__main__":
    make_own_venv()
