"""Lookup: find a live or dead job by its id or the start of it.

One statement reads both tables, so a job that dies or is requeued at that moment is not
missed. A prefix is a range of the primary key, never a scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ..models import DeadJob, Job
from .answers import USAGE, Refusal
from .arguments import IdPrefix

_MAX_SHOWN = 5


def find_id(prefix: IdPrefix) -> UUID | None:
    """Return the id with this prefix, or None. Raises Refusal if there are several."""
    found = set(_find_ids(prefix))
    if len(found) > 1:
        some = "\n".join(f"  {id}" for id in sorted(found)[:_MAX_SHOWN])
        more = "\n  …" if len(found) > _MAX_SHOWN else ""
        raise Refusal(
            f"{prefix.text!r} matches several jobs, give more digits:\n{some}{more}",
            code=USAGE,
        )
    return found.pop() if found else None


def find_ids(prefixes: Sequence[IdPrefix]) -> tuple[list[UUID], list[str]]:
    """Return the ids that exist, each once, and the texts without a job."""
    pairs = [(prefix.text, find_id(prefix)) for prefix in prefixes]
    found = dict.fromkeys(id for _, id in pairs if id is not None)
    return list(found), [text for text, id in pairs if id is None]


def get_job(id: UUID) -> Job | DeadJob | None:
    """Return the live or dead job of this id."""
    for _ in range(2):
        live = Job.objects.filter(pk=id).first()
        dead = None if live else DeadJob.objects.filter(pk=id).first()
        # Neither: requeued between the two queries, or gone.
        if live or dead:
            return live or dead
    return None


def _find_ids(prefix: IdPrefix) -> Sequence[UUID]:
    begins = {"pk__gte": prefix.low, "pk__lte": prefix.high}
    live = Job.objects.filter(**begins).values_list("pk", flat=True)
    dead = DeadJob.objects.filter(**begins).values_list("pk", flat=True)
    return list(live.union(dead, all=True)[: _MAX_SHOWN + 1])
