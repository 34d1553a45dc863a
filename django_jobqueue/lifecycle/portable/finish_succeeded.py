"""Finish, running → succeeded, with the ORM: one UPDATE for up to 150 jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connections
from django.db.models import Field
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast

from ...database_errors import is_database_trouble
from ...models import Job
from ...options import Options
from ...outcomes import Succeeded
from ...states import JobStatus
from ...storage.database import Database
from ...storage.endings import Ending


def write_succeeded(
    db: Database,
    endings: Sequence[Ending],
    *,
    worker_id: UUID,
    options: Options,
    now: datetime,
) -> tuple[list[Ending], list[Ending]]:
    """Write quick successes; return those written, and those to write one by one."""
    ids = [ending.claim.id for ending in endings]
    # A quick success has the first token; see Ending.is_quick.
    rows = Job.objects.using(db.alias).filter(
        pk__in=ids, lease_token=1, status=JobStatus.RUNNING, worker_id=worker_id
    )
    found = set(db.lock_rows(rows).values_list("pk", flat=True))
    owned = [ending for ending in endings if ending.claim.id in found]
    others = [ending for ending in endings if ending.claim.id not in found]
    try:
        with db.atomic():
            if options.retention["succeeded"].age == timedelta():
                rows.filter(pk__in=found).delete()
            elif owned:
                columns = _plan_columns(db, owned, options, now)
                rows.filter(pk__in=found).update(finished_by=worker_id, **columns)
    except DatabaseError as error:
        # A result that the database refuses affects only its own job.
        if is_database_trouble(error):
            raise
        return [], list(endings)
    return owned, others


def _plan_columns(
    db: Database, endings: Sequence[Ending], options: Options, now: datetime
) -> dict[str, Any]:
    """Return the columns of many successes, which differ in start and result."""
    delay = options.retention["succeeded"].delay
    starts = {ending.claim.id: find_start(ending, now) for ending in endings}
    results = {
        ending.claim.id: json.loads(ending.outcome.result)
        for ending in endings
        if isinstance(ending.outcome, Succeeded) and ending.outcome.result is not None
    }
    return {
        "status": JobStatus.SUCCEEDED,
        "worker_id": None,
        "unique_key": None,
        "unknown_since": None,
        "error": "",
        "result": _choose_by_id(db, "result", results),
        "started_at": _choose_by_id(db, "started_at", starts),
        "finished_at": now,
        "prune_at": None if delay is None else now + delay,
    }


def _choose_by_id(db: Database, column: str, values: dict[UUID, Any]) -> Any:
    """Return the expression that gives each job its own value, else NULL.

    Written as text: compiling a When for each job was most of the work of a finish.
    """
    connection = connections[db.alias]
    pk, field = Job._meta.pk, Job._meta.get_field(column)
    assert isinstance(field, Field)
    parameters: list[Any] = []
    for id, value in values.items():
        if value is not None:
            parameters.append(pk.get_db_prep_value(id, connection))
            parameters.append(field.get_db_prep_save(value, connection))
    if not parameters:
        return None
    whens = " WHEN %s THEN %s" * (len(parameters) // 2)
    case = RawSQL(f"CASE id{whens} END", parameters, output_field=field)
    if connection.features.requires_casted_case_in_updates:
        return Cast(case, output_field=field)
    return case


def find_start(ending: Ending, now: datetime) -> datetime | None:
    """Return when the handler was called, by the database's clock."""
    age = ending.age
    if age is None:
        return None
    # `now` is older than the age by the time we waited for the write lock.
    return max(now - timedelta(seconds=age), ending.claim.claimed_at)
