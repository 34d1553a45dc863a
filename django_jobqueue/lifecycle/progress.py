"""Progress of running attempts, fenced like their end.

Called by the worker's finish loop with the latest word of each attempt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ..models import Job
from ..states import JobStatus
from .claim import Claim
from .database import Database
from .reconcile import read_owned_jobs

WRITE_PROGRESS = """
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
                job.id = given.id
                AND job.lease_token = given.token
                AND job.status = 'running'
                AND job.worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid
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
    """Write the progress of attempts; return those that do not own their job any more.

    A row that somebody else holds at this moment is passed over: progress is not worth
    another try, the next word will come.
    """
    if not progress:
        return []
    if not db.is_postgres:
        written = _write_portable(db, progress, worker_id=worker_id)
    else:
        parameters = {
            "ids": [claim.id for claim in progress],
            "tokens": [claim.lease_token for claim in progress],
            "progresses": [json.dumps(word) for word in progress.values()],
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
        for claim, word in progress.items():
            owned = Job.objects.using(db.alias).filter(
                pk=claim.id,
                lease_token=claim.lease_token,
                status=JobStatus.RUNNING,
                worker_id=worker_id,
            )
            if owned.update(progress=word):
                written.add(claim.id)
    return written
