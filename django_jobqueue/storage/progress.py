"""Progress of running attempts, fenced like their end.

Called by the worker's finish loop with the latest progress of each attempt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from .claims import Claim
from .database import Database
from .ownership import find_owned, read_owned_jobs
from .sql_parts import IS_OWNED

WRITE_PROGRESS = f"""
    WITH owned AS MATERIALIZED (
        SELECT given.id, given.progress
        FROM unnest(
            %(ids)s::uuid[],
            %(tokens)s::bigint[],
            %(progresses)s::text[]
        ) AS given (id, token, progress)
        CROSS JOIN LATERAL (
            SELECT job.id
            FROM jobqueue_job AS job
            WHERE
                {IS_OWNED}
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS locked
    )
    UPDATE jobqueue_job AS job
    SET progress = owned.progress::jsonb
    FROM owned
    WHERE job.id = owned.id
    RETURNING job.id
"""


def write_progress(
    db: Database, progress: Mapping[Claim, dict[str, Any]], *, worker_id: UUID
) -> list[Claim]:
    """Write the progress of attempts; return those that no longer own their job.

    Skips rows that other sessions hold, without a retry: the next progress follows.
    """
    if not progress:
        return []
    if not db.is_postgres:
        written = _write_portable(db, progress, worker_id=worker_id)
    else:
        parameters = {
            "ids": [claim.id for claim in progress],
            "tokens": [claim.lease_token for claim in progress],
            "progresses": [json.dumps(report) for report in progress.values()],
            "worker_id": worker_id,
        }
        written = {id for (id,) in db.execute(WRITE_PROGRESS, parameters)}
    missing = [claim for claim in progress if claim.id not in written]
    if not missing:
        return []
    owned = {(job.id, job.lease_token) for job in read_owned_jobs(db, worker_id)}
    return [claim for claim in missing if (claim.id, claim.lease_token) not in owned]


def _write_portable(
    db: Database, progress: Mapping[Claim, dict[str, Any]], *, worker_id: UUID
) -> set[UUID]:
    written = set()
    with db.atomic():
        for claim, report in progress.items():
            owned = find_owned(db, claim, worker_id=worker_id)
            if owned.update(progress=report):
                written.add(claim.id)
    return written
