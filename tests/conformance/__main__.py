"""Run the conformance tests and write the table for the documentation.

python3 -m tests.conformance
"""

from __future__ import annotations

import subprocess
import sys

from tests.matrix import DJANGO
from tests.venvs import ROOT, find_python, make_venv

TABLE = ROOT / "docs" / "reference" / "conformance.txt"


def main() -> int:
    version = max(DJANGO)
    python = find_python(version)
    if python is None:
        print("conformance: not run, no Python {}.{} found".format(*version))
        return 1
    venv_python = make_venv(
        "conformance", extras="test", python=python, django=DJANGO[version]
    )
    command = [str(venv_python), "-m", "pip", "install", "-q", "django-tasks-db>=0.13"]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [str(venv_python), "-W", "error", "-m", "tests.conformance.run"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode == 0:
        TABLE.write_text(done.stdout)
        print(done.stdout)
        print(f"written to {TABLE.relative_to(ROOT)}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
