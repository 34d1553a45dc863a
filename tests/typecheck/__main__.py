"""Compare the errors of mypy and pyright in calls.py with its comments.

    python -m tests.typecheck

Part of `make lint`: both take seconds, and neither needs the database.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CALLS = Path(__file__).with_name("calls.py")
ROOT = CALLS.parent.parent.parent
WRONG = re.compile(r"# wrong$")


def find_expected(text: str) -> set[int]:
    """Return the numbers of the lines that must have an error."""
    lines = enumerate(text.splitlines(), start=1)
    return {number for number, line in lines if WRONG.search(line)}


def run_mypy() -> Iterator[tuple[int, str]]:
    """Yield (line, message) of each error that mypy finds."""
    output = _run("mypy", "--output", "json", str(CALLS))
    for line in output.splitlines():
        found = json.loads(line)
        if found["severity"] == "error":
            yield _place(found["file"], found["line"]), found["message"]


def run_pyright() -> Iterator[tuple[int, str]]:
    """Yield (line, message) of each error that pyright finds."""
    # Without it, pyright reads the packages of the first `python` on the PATH.
    output = _run("pyright", "--outputjson", "--pythonpath", sys.executable, str(CALLS))
    for found in json.loads(output)["generalDiagnostics"]:
        if found["severity"] == "error":
            line = found["range"]["start"]["line"] + 1
            yield _place(found["file"], line), found["message"]


def compare(
    name: str, found: Iterable[tuple[int, str]], expected: set[int]
) -> list[str]:
    """Return a line of text for each missing or unexpected error."""
    messages: dict[int, str] = {}
    for line, message in found:
        messages.setdefault(line, message.splitlines()[0])
    unexpected = [
        f"{name}: line {line} is right, but: {messages[line]}"
        for line in sorted(messages.keys() - expected)
    ]
    missing = sorted(expected - messages.keys())
    return unexpected + [
        f"{name}: line {line} is wrong, but has no error" for line in missing
    ]


def _run(tool: str, *arguments: str) -> str:
    program = Path(sys.executable).with_name(tool)
    done = subprocess.run(
        [str(program), *arguments], cwd=ROOT, capture_output=True, text=True
    )
    # 1 means that it found errors. Any other code is a failure of the tool.
    if done.returncode not in (0, 1):
        raise SystemExit(f"{tool} did not run:\n{done.stdout}{done.stderr}")
    return done.stdout


def _place(file: str, line: int) -> int:
    if (ROOT / file).resolve() != CALLS:
        raise SystemExit(f"An error in {file}:{line}, not in calls.py.")
    return line


def main() -> None:
    expected = find_expected(CALLS.read_text())
    problems = compare("mypy", run_mypy(), expected)
    problems += compare("pyright", run_pyright(), expected)
    if problems:
        raise SystemExit("\n".join([f"{CALLS.relative_to(ROOT)}:", *problems]))
    print(f"mypy and pyright find the {len(expected)} wrong calls and no others.")


if __name__ == "__main__":
    main()
