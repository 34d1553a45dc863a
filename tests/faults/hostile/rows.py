"""Hostile rows: each column × extreme values × status, inserted with SQL.

A row that a constraint refuses does no harm. Every other row must end, be a dead job,
wait for a time in the future, or be named in the log. No row may be lost.
"""

from __future__ import annotations

import itertools
import random
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models import Field
from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.states import ENDED, JobStatus
from tests.testapp import hostile_jobs

from .case_runner import CONSTANTS, SETTINGS, CaseRunner
from .other_jobs import UNRELATED_QUEUE
from .values import list_values

# Statuses that a worker reads by itself. Running rows are separate: they belong to a
# worker that never existed.
BUSY = (JobStatus.PENDING, JobStatus.SCHEDULED)
QUIET = (JobStatus.BLOCKED, *sorted(ENDED))
# Rows are inserted without a notification, and an idle worker that listens polls every
# 15 seconds only. Not for the other cases: it would hide a listener that has stopped.
VARIABLES = {
    CONSTANTS: f"{SETTINGS[CONSTANTS]} claiming.backlog_poll.IDLE_POLL_SECONDS=0.5"
}
PAST = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its status, and the extreme values by column."""

    label: str
    status: str
    values: Mapping[str, Any]


@dataclass(slots=True)
class RowsCase:
    """Rows that are inserted together."""

    name: str
    rows: Sequence[Row]
    # The rows that the database accepted, by their key in the table.
    accepted: dict[str, Row] = field(default_factory=dict)
    refused: int = 0

    def inject(self, runner: CaseRunner) -> None:
        for row in self.rows:
            key = insert(row)
            if key is None:
                self.refused += 1
            else:
                self.accepted[key] = row

    def find_violations(self, runner: CaseRunner) -> list[str]:
        states = read_states()
        named = _find_named(runner.read_log())
        lost = self._count_gone(states) - count_dead()
        found = [f"{lost} rows are in no table"] if lost > 0 else []
        has_waiting = False
        for key, row in self.accepted.items():
            status, text, is_later = states.get(key, ("gone", "", False))
            is_waiting = status == JobStatus.SCHEDULED and is_later
            has_waiting = has_waiting or is_waiting
            if status not in {"gone", *QUIET} and not is_waiting and text not in named:
                found.append(f"{row.label} is {status}, and the log does not name it")
        if has_waiting and not found:
            # A time that never comes must not make a worker busy.
            found = runner.find_busy_children(2)
        return (
            found if len(found) <= 12 else [*found[:12], f"and {len(found) - 12} more"]
        )

    def _count_gone(self, states: Mapping[str, Any]) -> int:
        """Count missing rows that had not ended: prune cannot have deleted them."""
        return sum(
            key not in states and row.status not in ENDED
            for key, row in self.accepted.items()
        )


def list_cases(statuses: Iterable[str] = (*BUSY, *QUIET)) -> list[RowsCase]:
    """Return one case for each column, and one of running rows for each column type.

    Running rows wait for a rescue, which happens only now and then.
    """
    cases = [
        RowsCase(column.name, list(make_rows(column, statuses)))
        for column in Job._meta.concrete_fields
    ]
    by_type = itertools.groupby(
        sorted(Job._meta.concrete_fields, key=_type_of), key=_type_of
    )
    for kind, columns in by_type:
        rows = [row for each in columns for row in make_rows(each, ["running"])]
        cases.append(RowsCase(f"running, {kind}", rows))
    return cases


def list_all_single(rng: random.Random, *, count: int) -> list[RowsCase]:
    """Return randomly chosen cases of one column, value and status each."""
    every = [
        row
        for column in Job._meta.concrete_fields
        for row in make_rows(column, JobStatus.values)
    ]
    chosen = rng.sample(every, min(count, len(every)))
    return [RowsCase(row.label, [row]) for row in chosen]


def list_pairs(rng: random.Random, *, count: int, size: int = 20) -> list[RowsCase]:
    """Return cases of rows in which two columns are extreme at the same time."""
    return [
        RowsCase(f"pairs {number}", [_make_pair(rng) for _ in range(size)])
        for number in range(count)
    ]


def make_rows(column: Field[Any, Any], statuses: Iterable[str]) -> Iterator[Row]:
    for status, (name, value) in itertools.product(
        statuses, list_values(column).items()
    ):
        yield Row(
            f"{status} row with {column.name} = {name}",
            status,
            {column.name: value, **_accompany(column.name, value)},
        )


def _make_pair(rng: random.Random) -> Row:
    status = rng.choice(JobStatus.values)
    columns = rng.sample(Job._meta.concrete_fields, 2)
    values: dict[str, Any] = {}
    names = []
    for column in columns:
        name, value = rng.choice(list(list_values(column).items()))
        names.append(f"{column.name} = {name}")
        values |= {**_accompany(column.name, value), column.name: value}
    return Row(f"{status} row with {' and '.join(names)}", status, values)


def _accompany(column: str, value: Any) -> dict[str, Any]:
    # Otherwise a constraint refuses the row because of the other column.
    if column == "attempts" and isinstance(value, int):
        return {"lease_token": max(0, value)}
    return {}


def _type_of(column: Field[Any, Any]) -> str:
    return column.get_internal_type()


def insert(row: Row) -> str | None:
    """Insert a row with SQL; return its key, or None if the database refuses it."""
    values = {**_make_base(row.status), **row.values}
    names = ", ".join(connection.ops.quote_name(name) for name in values)
    marks = ", ".join(["%s"] * len(values))
    text = f"INSERT INTO jobqueue_job ({names}) VALUES ({marks}) RETURNING {_key()}"
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(text, list(values.values()))
            return str(cursor.fetchone()[0])
    # A number that does not fit is refused by the driver.
    except (DatabaseError, OverflowError, ValueError):
        return None


def _make_base(status: str) -> dict[str, Any]:
    """Return the columns of a plain row of that status, as the database takes them."""
    values: dict[str, Any] = {
        "id": uuid.uuid4(),
        "job_type": hostile_jobs.succeed.name,
        "queue": "default",
        "payload": {},
        "args": [],
        "status": status,
        "run_at": PAST,
    }
    if status == JobStatus.RUNNING:
        values |= {"worker_id": uuid.uuid4(), "claimed_at": timezone.now()}
        values |= {"attempts": 1, "lease_token": 1}
    elif status in ENDED:
        values |= {"finished_at": timezone.now()}
    return {
        name: Job._meta.get_field(name).get_db_prep_save(value, connection)
        for name, value in values.items()
    }


def _key() -> str:
    return "id" if connection.vendor == "postgresql" else "rowid"


def _id_text() -> str:
    if connection.vendor == "postgresql":
        return "id::text"
    # Bytes that are no UTF-8 could not be read as text.
    return "CASE typeof(id) WHEN 'text' THEN id ELSE hex(id) END"


def read_states() -> dict[str, tuple[str, str, bool]]:
    """Return status, id as text and whether run_at is in the future, by row key."""
    now = Job._meta.get_field("run_at").get_db_prep_value(timezone.now(), connection)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_key()}, CAST(status AS text), {_id_text()}, run_at > %s"
            " FROM jobqueue_job WHERE queue <> %s",
            [now, UNRELATED_QUEUE],
        )
        return {
            str(key): (str(status), _plain(str(id)), bool(is_later))
            for key, status, id, is_later in cursor.fetchall()
        }


def count_dead() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM jobqueue_deadjob WHERE queue <> %s", [UNRELATED_QUEUE]
        )
        return int(cursor.fetchone()[0])


def _find_named(log: str) -> set[str]:
    """Return the ids of jobs that a warning or an error names."""
    lines = re.findall(r"(?:WARNING|ERROR) .*", log)
    ids = re.findall(r"\bjob_id=\"?([^ \"]+)", "\n".join(lines))
    return {_plain(id) for id in ids}


def _plain(id: str) -> str:
    return id.replace("-", "").lower()
