"""The statements as texts: what no run shows unless the planner has a bad day."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import django_jobqueue

LIFECYCLE = Path(django_jobqueue.__file__).parent / "lifecycle"


def read_statements() -> Iterator[tuple[str, str]]:
    """Yield the name and text of every constant that locks rows and skips others'."""
    for path in sorted(LIFECYCLE.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))
                ) if "SKIP LOCKED" in text:
                    yield f"{path.stem}.{name}", text


STATEMENTS = dict(read_statements())


def find_openings(text: str, position: int) -> list[str]:
    """Return what stands before each parenthesis that is open at a position."""
    openings: list[str] = []
    for index, character in enumerate(text[:position]):
        if character == "(":
            openings.append(text[:index].rstrip())
        elif character == ")":
            openings.pop()
    return openings


def test_the_statements_of_every_arrow_that_competes_are_looked_at() -> None:
    modules = {name.partition(".")[0] for name in STATEMENTS}
    assert modules >= {"claim", "promote", "finish", "bury", "rescue", "progress"}


@pytest.mark.parametrize("name", STATEMENTS)
def test_what_is_chosen_by_skip_locked_stands_in_a_materialized_cte(name: str) -> None:
    # Elsewhere the planner may run it twice, lock other rows, and exceed its LIMIT.
    text = STATEMENTS[name]
    for found in re.finditer("SKIP LOCKED", text):
        openings = find_openings(text, found.start())
        assert any(opening.endswith("AS MATERIALIZED") for opening in openings)
