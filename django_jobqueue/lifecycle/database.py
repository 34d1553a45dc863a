"""Database: the handle every arrow takes, over Django's connection or a worker's own.

An arrow asks `is_postgres` which version of itself to run. `now` of the arrows is for
tests: in service, time is the database's (SQLite: the process's, there is no other).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import connections, models, transaction
from django.utils import timezone

from ..options import get_options
from . import seams

if TYPE_CHECKING:
    import psycopg

M = TypeVar("M", bound=models.Model)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# Seconds for which a worker's own connection keeps its plans.
REPLAN = 1.0


@dataclass(slots=True)
class PlanAge:
    """When the plans of a connection were last thrown away (monotonic)."""

    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where the jobs are, and through which connection this caller reaches them."""

    alias: str
    # A worker's own connection, in autocommit; None: Django's of this thread.
    own: psycopg.Connection[Any] | None = None
    # Run the portable version of each arrow, whatever the database is.
    is_portable: bool = False
    plans: PlanAge = field(default_factory=PlanAge, compare=False)

    @property
    def is_postgres(self) -> bool:
        if self.own is not None:
            return True
        return connections[self.alias].vendor == "postgresql" and not self.is_portable

    def execute(
        self,
        statement: str,
        parameters: Mapping[str, Any],
        *,
        is_rare: bool = False,
        is_steady: bool = False,
    ) -> list[Any]:
        """Run one statement and return its rows.

        What is rare is planned each time: the cheaper way for an idle worker, which
        has no plans to keep. What is steady has a plan that stays good as the table
        grows (tests/plans); to plan a claim takes half as long as to run it.
        """
        if self.own is not None:
            if is_rare:
                return self.own.execute(statement, parameters, prepare=False).fetchall()
            if not is_steady:
                self._refresh_plans(self.own)
            return self.own.execute(statement, parameters).fetchall()
        if seams.clock is not None and "now" in parameters:
            parameters = {**parameters, "now": parameters["now"] or seams.clock()}
        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement, parameters)
            rows: list[Any] = cursor.fetchall()
            return rows

    def _refresh_plans(self, own: psycopg.Connection[Any]) -> None:
        """Plan anew now and then.

        A generic plan stays until the table is analysed. One made on an empty table may
        read all of it for each batch, and a queue fills within seconds: finish went
        from 5 ms to beyond its statement timeout on two million rows.
        """
        now = time.monotonic()
        if now - self.plans.since > REPLAN:
            own.execute(DISCARD_PLANS)
            self.plans.since = now

    def atomic(self) -> AbstractContextManager[None]:
        """Open a transaction on Django's connection; the portable versions need it."""
        return transaction.atomic(using=self.alias)

    def shielded(self) -> AbstractContextManager[None]:
        """Keep an error of one statement from aborting a transaction around it."""
        if self.own is None and connections[self.alias].in_atomic_block:
            return transaction.atomic(using=self.alias)
        return nullcontext()

    @contextmanager
    def walking_index(self) -> Iterator[None]:
        """Keep PostgreSQL on an ordered walk of an index, inside a transaction.

        For an ORDER BY … LIMIT through Django's connection: with statistics of an empty
        table the planner collects every row that is due and sorts them.
        """
        if connections[self.alias].vendor != "postgresql":
            yield
            return
        with connections[self.alias].cursor() as cursor:
            cursor.execute(WALK_INDEX)
            yield
            cursor.execute(WALK_FREELY)

    def read_clock(self, now: datetime | None) -> datetime:
        """Return `now`, or the time of the database."""
        if now is not None:
            return now
        if seams.clock is not None:
            return seams.clock()
        if connections[self.alias].vendor != "postgresql":
            return timezone.now()
        [[found]] = self.execute(READ_CLOCK, {})
        assert isinstance(found, datetime)
        return found

    def lock_rows(self, rows: models.QuerySet[M]) -> models.QuerySet[M]:
        """Lock what is read, passing over what others hold, where there are row locks.

        SQLite has none: there the surrounding transaction must be IMMEDIATE, as the
        worker makes it.
        """
        features = connections[self.alias].features
        return rows.select_for_update(
            skip_locked=features.has_select_for_update_skip_locked,
            no_key=features.has_select_for_no_key_update,
        )


WALK_INDEX = """
    SET LOCAL enable_bitmapscan = off;
    SET LOCAL enable_seqscan = off;
    SET LOCAL enable_sort = off
"""

WALK_FREELY = """
    SET LOCAL enable_bitmapscan TO DEFAULT;
    SET LOCAL enable_seqscan TO DEFAULT;
    SET LOCAL enable_sort TO DEFAULT
"""


DISCARD_PLANS = """
    DISCARD PLANS
"""

READ_CLOCK = """
    SELECT clock_timestamp()
"""


def get_database() -> Database:
    """Return the jobs' database through Django's connection of this thread."""
    return Database(alias=get_options().database)


def make_rank(
    run_at: datetime, now: datetime, *, priority: int, aging: timedelta
) -> int:
    """Return the rank a job gets when it becomes pending; lower is claimed first."""
    microsecond = timedelta(microseconds=1)
    waiting_since = (max(run_at, now) - _EPOCH) // microsecond
    return waiting_since - priority * (aging // microsecond)


def count_microseconds(duration: timedelta) -> int:
    """Return a duration as the statements take it."""
    return duration // timedelta(microseconds=1)


def dump_array(values: Iterable[object]) -> str:
    """Return an array as PostgreSQL reads it, of values that need no quotes."""
    return "{" + ",".join(map(str, values)) + "}"
