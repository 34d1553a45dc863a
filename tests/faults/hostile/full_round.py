"""A round of `make faults`: every case, and randomly chosen rows and pairs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tests.testapp.receivers import VARIABLE

from ..checker import Findings
from ..fault_round import FaultRound, RoundResult
from . import handlers, notifications, receivers, rows
from .case_runner import Case, CaseRunner, run_cases
from .other_jobs import HEALTHY_JOBS
from .rows import VARIABLES


def run_all_cases(fault_round: FaultRound, *, rows: int, pairs: int) -> RoundResult:
    """Run one round; each case counts as one injection."""
    with CaseRunner(fault_round.env, fault_round.folder, **VARIABLES) as runner:
        results = run_cases(runner, _list_rows(fault_round, count=rows, pairs=pairs))
    with CaseRunner(fault_round.env, fault_round.folder) as runner:
        results |= run_cases(runner, _list_others(fault_round))
        results["stop"] = runner.stop()
    folder = fault_round.folder / "receivers"
    folder.mkdir()
    with CaseRunner(fault_round.env, folder, **{VARIABLE: str(folder)}) as runner:
        results |= run_cases(runner, receivers.list_cases())
    return RoundResult(
        jobs=HEALTHY_JOBS * len(results),
        injected=len(results),
        findings=sort_findings(list(itertools.chain(*results.values()))),
    )


def _list_rows(fault_round: FaultRound, *, count: int, pairs: int) -> list[Case]:
    cases: list[Case] = [
        *rows.list_cases(),
        *rows.list_all_single(fault_round.rng, count=count),
        *rows.list_pairs(fault_round.rng, count=pairs),
    ]
    fault_round.rng.shuffle(cases)
    return cases


def _list_others(fault_round: FaultRound) -> list[Case]:
    """Return the rest; cases that damage their process come last, in fixed order."""
    is_server = fault_round.database == "postgresql"
    junk = notifications.list_cases(fault_round.rng) if is_server else []
    first: list[Case] = [*junk, *handlers.list_costly_exits()]
    fault_round.rng.shuffle(first)
    return [*first, *handlers.list_cases(is_server=is_server)]


def sort_findings(texts: Sequence[str]) -> Findings:
    """Count jobs that did not run as lost, everything else as miscounted."""
    lost = [text for text in texts if "healthy jobs" in text or "in no table" in text]
    return Findings(lost=lost, miscounted=[text for text in texts if text not in lost])
