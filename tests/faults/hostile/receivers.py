"""Cases of hostile signal receivers.

They raise, exit, hang, and break their connection.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.testapp.receivers import WAYS

from .case_runner import PROCESSES, CaseRunner

# Each process breaks its connection once: that call fails, and the next one.
MAX_FAILURES = 2 * (PROCESSES + 1)


@dataclass(slots=True)
class ReceiversCase:
    """What all receivers do from now on."""

    name: str

    def inject(self, runner: CaseRunner) -> None:
        calls = runner.folder / "calls"
        calls.unlink(missing_ok=True)
        (runner.folder / "way").write_text(self.name)

    def find_violations(self, runner: CaseRunner) -> list[str]:
        file = runner.folder / "calls"
        # Signals are sent after the ends are written: some may still be missing.
        lines = file.read_text().splitlines() if file.exists() else []
        calls = [line.split() for line in lines]
        counts = Counter(id for name, id, _ in calls if name == "job_succeeded")
        found = sorted(
            {
                f"job_succeeded was sent {counts[str(spec.id)]} times for one job"
                for spec in runner.healthy
                if counts[str(spec.id)] != 1
            }
        )
        if self.name in {"query", "hang", "lose the connection", "leave a transaction"}:
            found += _find_failures(calls)
        return found


def _find_failures(calls: list[list[str]]) -> list[str]:
    """Return failures beyond those that a lost connection may cost."""
    failed = [error for _, _, error in calls if error != "done"]
    if len(failed) <= MAX_FAILURES:
        return []
    return [f"{len(failed)} of {len(calls)} receivers failed: {Counter(failed)}"]


def list_cases() -> list[ReceiversCase]:
    return [ReceiversCase(way) for way in WAYS]
