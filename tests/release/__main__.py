"""Build dist/, check its content, and follow the quickstart with the wheel.

    python -m tests.release [--no-quickstart]

`make release` calls it with a Python that has hatchling. The wheel is built from the
sdist, as an installer would if there were no wheel. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.quickstart.follow_readme import PAGES, follow_pages
from tests.release.contents import find_faults_of_sdist, find_faults_of_wheel

ROOT = Path(__file__).resolve().parent.parent.parent
DIST = ROOT / "dist"


def read_version() -> str:
    source = (ROOT / "django_jobqueue" / "__init__.py").read_text()
    [version] = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    return str(version)


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and from it the wheel; return (wheel, sdist)."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    hatchling = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run([*hatchling, "--target", "sdist"], cwd=ROOT, check=True)
    [sdist] = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
    subprocess.run(
        [*pip, "--quiet", "--no-deps", "--wheel-dir", str(folder), str(sdist)],
        check=True,
    )
    [wheel] = folder.glob("*.whl")
    return wheel, sdist


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-quickstart", action="store_true")
    flags = parser.parse_args()
    version = read_version()
    wheel, sdist = build(DIST)
    faults = [
        *find_faults_of_wheel(wheel, root=ROOT, version=version),
        *find_faults_of_sdist(sdist, root=ROOT, version=version),
    ]
    for fault in faults:
        print(f"release: {fault}", file=sys.stderr)
    if faults:
        return 1
    print(f"{wheel.name}, {sdist.name}: content as expected", flush=True)
    if flags.no_quickstart:
        return 0
    return follow_pages(PAGES, wheel=wheel, url=os.environ.get("DATABASE_URL", ""))


if __name__ == "__main__":
    sys.exit(main())
