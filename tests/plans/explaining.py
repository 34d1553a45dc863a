"""EXPLAIN of the hot statements, planned by a worker's own connection."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import psycopg.sql

_PARAMETER = re.compile(r"%\((\w+)\)s(?:::([a-z0-9]+(?:\[\])?))?")


@dataclass(frozen=True)
class Plan:
    """The indexes, scans, rows and pages of one execution."""

    nodes: list[dict[str, Any]]
    pages: int
    rows: int

    @property
    def indexes(self) -> set[str]:
        """Return the indexes of the job table that were read."""
        names = {node["Index Name"] for node in self.nodes if "Index Name" in node}
        return {name for name in names if name.startswith("jobqueue_job_")}

    @property
    def scans_the_table(self) -> bool:
        return any(
            node["Node Type"] == "Seq Scan"
            and node.get("Relation Name") == "jobqueue_job"
            for node in self.nodes
        )


def explain(
    session: psycopg.Connection[Any],
    statement: str,
    parameters: dict[str, Any],
    *,
    plan: str,
) -> Plan:
    """Execute a statement and roll it back; `plan` is "generic" or "custom"."""
    with session.transaction(force_rollback=True):
        session.execute(f"SET LOCAL plan_cache_mode = force_{plan}_plan")
        text, names = _number_parameters(statement)
        session.execute(f"PREPARE measured AS {text}")
        found = _run(session, "measured", [parameters[name] for name in names])
        session.execute("DEALLOCATE measured")
    return found


class EarlyPlan:
    """A statement planned now and executed when the table has grown.

    PostgreSQL keeps a generic plan until the table is analysed or altered.
    """

    def __init__(self, session: psycopg.Connection[Any], statement: str) -> None:
        self.session = session
        text, self.names = _number_parameters(statement)
        self.id = f"early_{id(self)}"
        # Once psycopg prepares statements itself, a rollback deallocates all of them.
        session.prepare_threshold = None
        session.execute("SET plan_cache_mode = force_generic_plan")
        session.execute(f"PREPARE {self.id} AS {text}")
        session.execute(f"EXPLAIN {_call(session, self.id, [None] * len(self.names))}")

    def explain(self, parameters: dict[str, Any]) -> Plan:
        """Execute the statement with its early plan and roll it back."""
        values = [parameters[name] for name in self.names]
        with self.session.transaction(force_rollback=True):
            return _run(self.session, self.id, values)


def _run(session: psycopg.Connection[Any], name: str, values: list[Any]) -> Plan:
    call = _call(session, name, values)
    cursor = session.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}")
    [[found]] = cursor.fetchall()
    return read_plan(json.loads(found) if isinstance(found, str) else found)


def _call(session: psycopg.Connection[Any], name: str, values: list[Any]) -> str:
    texts = [psycopg.sql.Literal(value).as_string(session) for value in values]
    return f"EXECUTE {name}({', '.join(texts)})" if texts else f"EXECUTE {name}"


def read_plan(found: list[dict[str, Any]]) -> Plan:
    """Read the output of EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)."""
    root = found[0]["Plan"]
    pages = root["Shared Hit Blocks"] + root["Shared Read Blocks"]
    return Plan(list(_walk(root)), pages, root["Actual Rows"])


def _number_parameters(statement: str) -> tuple[str, list[str]]:
    """Turn %(name)s::type into $1::type, in the order of first use."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name, cast = match.groups()
        if name not in names:
            names.append(name)
        place = f"${names.index(name) + 1}"
        return f"{place}::{cast}" if cast else place

    return _PARAMETER.sub(number, statement), names


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)
