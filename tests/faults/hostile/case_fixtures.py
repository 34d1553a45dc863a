"""Make one test of each hostile case.

All selected cases of a module run in one worker, before the first test reads its
findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from .case_runner import Case, CaseRunner, run_cases

MARKS = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.timeout(900)]
STOP = "stop after all of them"
# The findings, by the name of the case.
Results = dict[str, list[str]]


def parametrize(cases: Iterable[Case]) -> Callable[[Any], Any]:
    """Make one test of each case, and one of the stop at the end."""
    return pytest.mark.parametrize("name", [*(case.name for case in cases), STOP])


def make_results_fixture(
    cases: Iterable[Case], *, folder_variable: str = "", **variables: str
) -> Any:
    """Return the fixture `results`; `folder_variable` passes its folder to workers."""

    @pytest.fixture(scope="module", name="results")
    def run(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Results:
        folder = tmp_path_factory.mktemp("hostile")
        of_folder = {folder_variable: str(folder)} if folder_variable else {}
        return run_selected(request, cases, folder, **variables, **of_folder)

    return run


def run_selected(
    request: pytest.FixtureRequest,
    cases: Iterable[Case],
    folder: Path,
    **variables: str,
) -> Results:
    """Run the cases whose tests are selected; see parametrize()."""
    env: dict[str, str] = request.getfixturevalue("worker_env")
    blocker: Any = request.getfixturevalue("django_db_blocker")
    names = {
        item.callspec.params.get("name")
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    }
    chosen = [case for case in cases if case.name in names]
    with blocker.unblock(), CaseRunner(env, folder, **variables) as runner:
        results = run_cases(runner, chosen)
        if STOP in names:
            results[STOP] = runner.stop()
    return results


def check(results: Results, name: str) -> None:
    assert not results[name], "\n".join(results[name])
