"""Lookup: from what a person typed to the job, live or dead.

Both tables are asked in one statement, so that a job which dies or is requeued at that
moment is not missed. A prefix is a range of the primary key, never a scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ..models import DeadJob, Job
from .answers import USAGE, Refusal
from .arguments import IdPrefix

_SHOWN = 5


def find_id(prefix: IdPrefix) -> UUID | None:
    """Return the one id that begins so, or None; of several, none: Refusal."""
    found = set(_find_ids(prefix))
    if len(found) > 1:
        some = "\n".join(f"  {id}" for id in sorted(found)[:_SHOWN])
        more = "\n  …" if len(found) > _SHOWN else ""
        raise Refusal(
            f"{prefix.text!r} begins the id of several jobs, give more of it:\n"
            f"{some}{more}",
            code=USAGE,
        )
    return found.pop() if found else None


def find_ids(prefixes: Sequence[IdPrefix]) -> tuple[list[UUID], list[str]]:
    """Return the ids that exist, each once, and the texts of those that do not."""
    pairs = [(prefix.text, find_id(prefix)) for prefix in prefixes]
    found = dict.fromkeys(id for _, id in pairs if id is not None)
    return list(found), [text for text, id in pairs if id is None]


def get_job(id: UUID) -> Job | DeadJob | None:
    """Return the job wherever it lies."""
    for _ in range(2):
        live = Job.objects.filter(pk=id).first()
        dead = None if live else DeadJob.objects.filter(pk=id).first()
        # Neither: it was requeued between the two looks, or is gone.
        if live or dead:
            return live or dead
    return None


def _find_ids(prefix: IdPrefix) -> Sequence[UUID]:
    begins = {"pk__gte": prefix.low, "pk__lte": prefix.high}
    live = Job.objects.filter(**begins).values_list("pk", flat=True)
    dead = DeadJob.objects.filter(**begins).values_list("pk", flat=True)
    return list(live.union(dead, all=True)[: _SHOWN + 1])
