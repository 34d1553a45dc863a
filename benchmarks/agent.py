"""One system in its own virtual environment, called with lines of JSON.

    python -m benchmarks.agent NAME

Reads {"do": method, "with": {argument: value}} from standard input, calls that method
of the adapter `benchmarks.systems.NAME` and answers with one line: {"value": …},
{"unsupported": why} or {"error": traceback}. Output that the system prints goes to
standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any, TextIO

from benchmarks.system import System, Unsupported


def main() -> None:
    # Standard output carries answers only: whatever the system prints goes elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module = importlib.import_module(f"benchmarks.systems.{sys.argv[1]}")
    system: System = module.make_system()
    serve(system, sys.stdin, answers)
    system.close()


def serve(system: System, questions: TextIO, answers: TextIO) -> None:
    """Answer requests until standard input is closed."""
    for line in questions:
        question = json.loads(line)
        answer = answer_to(system, question["do"], question["with"])
        print(json.dumps(answer), file=answers, flush=True)


def answer_to(system: System, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": getattr(system, method)(**arguments)}
    except Unsupported as reason:
        return {"unsupported": str(reason)}
    except Exception:
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    main()
