"""Finish, running → scheduled, pending, cancelled or succeeded, with the ORM."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ...models import Job
from ...options import Options
from ...outcomes import CANCELLED_ERROR, Succeeded
from ...states import ENDED, JobStatus
from ...storage.database import make_rank
from ...storage.endings import NO_RANK, Ending, plan_move


def is_to_cancel(job: Job, ending: Ending) -> bool:
    """Tell whether the job was asked to stop and so ends as cancelled."""
    is_asked = job.cancel_requested_at is not None
    return is_asked and not isinstance(ending.outcome, Succeeded)


def plan_columns(
    job: Job, ending: Ending, *, options: Options, now: datetime
) -> dict[str, Any]:
    """Return the columns that the end of an attempt changes in a live job."""
    move = plan_move(ending.outcome)
    if is_to_cancel(job, ending) and move.status != JobStatus.CANCELLED:
        move = replace(move, status=JobStatus.CANCELLED, error=CANCELLED_ERROR)
    columns: dict[str, Any] = {
        "status": move.status,
        "worker_id": None,
        "attempts": max(0, job.attempts - move.refund),
        "given_back": 0 if move.is_progress else job.given_back + move.trouble,
        "unknown_since": (job.unknown_since or now) if move.is_unknown else None,
        "error": move.error,
        "result": None if move.result is None else json.loads(move.result),
    }
    if move.status in ENDED:
        delay = options.retention[move.status].delay
        prune_at = None if delay is None else now + delay
        return columns | {"unique_key": None, "finished_at": now, "prune_at": prune_at}
    run_at = now + (move.delay or timedelta())
    rank = NO_RANK
    if move.keeps_rank:
        rank = job.rank
    elif move.status == JobStatus.PENDING:
        rank = make_rank(now, now, priority=job.priority, aging=options.aging)
    return columns | {"run_at": run_at, "rank": rank}
