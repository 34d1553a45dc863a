"""Database: the handle every transition takes, over Django's connection or a worker's.

`is_postgres` decides which version of a transition runs. Transitions take `now` for
tests only: in service the database's clock counts (on SQLite the process's).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from django.db import connections, models, transaction
from django.utils import timezone

from ..options import get_options
from . import test_hooks

if TYPE_CHECKING:
    import psycopg

M = TypeVar("M", bound=models.Model)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# IsolationLevel.READ_COMMITTED of psycopg; the higher ones keep a snapshot.
READ_COMMITTED = 2
# How long a worker's own connection keeps its plans.
REPLAN_SECONDS = 1.0


@dataclass(slots=True)
class PlanAge:
    """When the plans of a connection were last discarded (monotonic)."""

    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where the jobs are, and through which connection this caller reaches them."""

    alias: str
    # A worker's own connection, in autocommit; None: Django's of this thread.
    own: psycopg.Connection[Any] | None = None
    # Statements that begin each transaction of that connection, because its session
    # does not last (poolers.py); empty: the session has these settings.
    local: str = ""
    # Run the portable version of each transition on any database.
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

        Rare statements are planned each time: this is cheaper for an idle worker, which
        then keeps no plans. Steady ones have a plan that stays good as the table grows
        (tests/plans); planning a claim takes half as long as running it.
        """
        if self.own is not None:
            if self.local:
                return self._execute_alone(self.own, statement, parameters)
            if is_rare:
                return self.own.execute(statement, parameters, prepare=False).fetchall()
            if not is_steady:
                self._refresh_plans(self.own)
            return self.own.execute(statement, parameters).fetchall()
        if test_hooks.clock is not None and "now" in parameters:
            parameters = {**parameters, "now": parameters["now"] or test_hooks.clock()}
        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement, parameters)
            rows: list[Any] = cursor.fetchall()
            return rows

    def _execute_alone(
        self,
        own: psycopg.Connection[Any],
        statement: str,
        parameters: Mapping[str, Any],
    ) -> list[Any]:
        """Run a statement with its settings in one message and one transaction.

        The next statement may run in another session.
        """
        if not own.info.transaction_status:
            local = self.local.replace("%", "%%")
            statement = f"{BEGIN_COMMITTED};{local};{statement}"
        cursor = own.execute(statement, parameters)
        while cursor.nextset():
            pass
        return cursor.fetchall()

    def _refresh_plans(self, own: psycopg.Connection[Any]) -> None:
        """Discard the plans now and then.

        PostgreSQL keeps a generic plan until the table is analysed. A plan made on an
        empty table may read all of it for each batch, and a queue fills within seconds:
        finish went from 5 ms to beyond its statement timeout on two million rows.
        """
        now = time.monotonic()
        if now - self.plans.since > REPLAN_SECONDS:
            own.execute(DISCARD_PLANS)
            self.plans.since = now

    def atomic(self) -> AbstractContextManager[None]:
        """Open a transaction on Django's connection; the portable versions need it."""
        return transaction.atomic(using=self.alias)

    def transaction(self) -> AbstractContextManager[Any]:
        """Open a transaction on the connection that execute() uses."""
        if self.own is not None:
            return self._begin_local(self.own) if self.local else self.own.transaction()
        return self.atomic()

    @contextmanager
    def _begin_local(self, own: psycopg.Connection[Any]) -> Iterator[None]:
        with own.transaction():
            own.execute(self.local.encode())
            yield

    def shielded(self) -> AbstractContextManager[Any]:
        """Keep an error of one statement from aborting a transaction around it."""
        if self.own is not None and self.own.info.transaction_status:
            return self.own.transaction()
        if self.own is None and connections[self.alias].in_atomic_block:
            return transaction.atomic(using=self.alias)
        return nullcontext()

    def keeps_snapshot(self) -> bool:
        """Tell whether the open transaction of Django's connection keeps its snapshot.

        Then rows that others commit meanwhile conflict with its writes.
        """
        wrapper: Any = connections[self.alias]
        if wrapper.vendor != "postgresql":
            return False
        if wrapper.isolation_level > READ_COMMITTED:
            return True
        raw, keeps = getattr(wrapper, "_jobqueue_snapshot", (None, False))
        if raw is not wrapper.connection:
            # The role or the database may set it. Read once for each connection.
            with wrapper.cursor() as cursor:
                cursor.execute(READ_ISOLATION)
                [level] = cursor.fetchone()
            keeps = level in ("repeatable read", "serializable")
            wrapper._jobqueue_snapshot = (wrapper.connection, keeps)
        return bool(keeps)

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
        if test_hooks.clock is not None:
            return test_hooks.clock()
        if connections[self.alias].vendor != "postgresql":
            return timezone.now()
        [[found]] = self.execute(READ_CLOCK, {})
        assert isinstance(found, datetime)
        return found

    def lock_rows(self, rows: models.QuerySet[M]) -> models.QuerySet[M]:
        """Lock the rows that are read and skip locked ones, if there are row locks.

        SQLite has none: there the transaction must be IMMEDIATE, as the worker opens
        it.
        """
        features = connections[self.alias].features
        return rows.select_for_update(
            skip_locked=features.has_select_for_update_skip_locked,
            no_key=features.has_select_for_no_key_update,
        )


# For a message of several statements, which is one transaction: read committed,
# whatever the default of the role is.
BEGIN_COMMITTED = """
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED
"""

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


READ_ISOLATION = """
    SHOW default_transaction_isolation
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
    """Return a duration in microseconds, as the statements take it."""
    return duration // timedelta(microseconds=1)


def leave_out(rows: models.QuerySet[M], ids: Sequence[UUID]) -> models.QuerySet[M]:
    """Exclude up to 500 ids: some SQLite builds take no more than 999 parameters."""
    return rows.exclude(pk__in=ids[-500:]) if ids else rows


def dump_array(values: Iterable[object]) -> str:
    """Return an array as PostgreSQL reads it, of values that need no quotes."""
    return "{" + ",".join(map(str, values)) + "}"
