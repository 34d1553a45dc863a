"""Every final SQL statement of the package, as it is joined at import.

`pytest tests/lifecycle/test_statements.py -s -k prepares` prints each statement as a
PREPARE that can be pasted into psql.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
from django.db import connection

from django_jobqueue import lifecycle, storage

SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|COPY)\s")
PARAMETER = re.compile(r"%\((\w+)\)s")


def read_statements() -> Iterator[tuple[str, str]]:
    """Yield `module.NAME` and text of every statement, where it is defined."""
    seen: set[int] = set()
    for package in (storage, lifecycle):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            for name, text in vars(module).items():
                is_statement = isinstance(text, str) and name[0].isupper()
                if is_statement and SQL.match(text) and id(text) not in seen:
                    seen.add(id(text))
                    yield f"{found.name.rpartition('.')[2]}.{name}", text


STATEMENTS = dict(read_statements())
COMPETING = [name for name, text in STATEMENTS.items() if "SKIP LOCKED" in text]
PREPARABLE = [
    name
    for name, text in STATEMENTS.items()
    if not text.lstrip().startswith("COPY") and "{channel}" not in text
]


def find_openings(text: str, position: int) -> list[str]:
    """Return what stands before each parenthesis that is open at a position."""
    openings: list[str] = []
    for index, character in enumerate(text[:position]):
        if character == "(":
            openings.append(text[:index].rstrip())
        elif character == ")":
            openings.pop()
    return openings


def write_prepare(name: str, text: str) -> str:
    """Return a PREPARE of the statement; a comment names the parameters."""
    parameters = list(dict.fromkeys(PARAMETER.findall(text)))
    statement = PARAMETER.sub(lambda m: f"${parameters.index(m[1]) + 1}", text)
    names = ", ".join(f"${n} {name}" for n, name in enumerate(parameters, 1))
    short = name.rpartition(".")[2].lower()
    return f"-- {name}: {names}\nPREPARE {short} AS{statement.rstrip()};"


def test_every_transition_that_competes_for_rows_is_covered() -> None:
    modules = {name.partition(".")[0] for name in COMPETING}
    assert modules >= {
        "claim",
        "finish_died",
        "finish_moved",
        "finish_succeeded",
        "progress",
        "promote",
        "rescue",
    }


@pytest.mark.parametrize("name", COMPETING)
def test_skip_locked_is_inside_a_materialized_cte(name: str) -> None:
    # Elsewhere the planner may run it twice, lock other rows, and exceed its LIMIT.
    text = STATEMENTS[name]
    for found in re.finditer("SKIP LOCKED", text):
        openings = find_openings(text, found.start())
        assert any(opening.endswith("AS MATERIALIZED") for opening in openings)


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_part_is_left_unjoined(name: str) -> None:
    text = STATEMENTS[name].replace("{channel}", "").replace("'{}'", "")
    assert "{" not in text
    assert "%" not in PARAMETER.sub("", text)


@pytest.mark.parametrize("name", PREPARABLE)
@pytest.mark.postgresql
@pytest.mark.django_db
def test_postgresql_prepares_every_statement(name: str) -> None:
    text = write_prepare(name, STATEMENTS[name])
    # Shown by `pytest -s`, ready to be pasted into psql.
    print(text)
    with connection.cursor() as cursor:
        cursor.execute(text)
        cursor.execute("DEALLOCATE ALL")
