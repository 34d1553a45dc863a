"""`jobqueue run-again ID`: enqueue copies of jobs that succeeded or were cancelled."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from ..exceptions import JobNotEnded, JobQueueError
from ..models import DeadJob, Job
from .answers import Answer
from .arguments import read_id
from .lookup import find_ids
from .terminal import Terminal

HELP = "Enqueue copies of jobs that succeeded or were cancelled."
KEYS = """\
enqueued: [{id: of the new job, copy_of}]; refused: [{id, error}]; not_found: [ids as
they were given]"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", type=read_id, metavar="ID")


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """Enqueue a copy of each named job."""
    ids, not_found = find_ids(flags["ids"])
    enqueued: list[dict[str, UUID]] = []
    refused: list[dict[str, Any]] = []
    for id in ids:
        try:
            copy = Job(pk=id).enqueue_again()
        except JobQueueError as error:
            refused.append({"id": id, "error": _describe_refusal(id, error)})
        else:
            enqueued.append({"id": copy.pk, "copy_of": id})
    return Answer(
        document={"enqueued": enqueued, "refused": refused, "not_found": not_found},
        text="\n".join(
            f"Enqueued {e['id']}, a copy of {e['copy_of']}" for e in enqueued
        ),
        problem="\n".join(
            [
                *(f"There is no job {text}, live or dead." for text in not_found),
                *(each["error"] for each in refused),
            ]
        ),
    )


def _describe_refusal(id: UUID, error: JobQueueError) -> str:
    is_dead = isinstance(error, JobNotEnded) and DeadJob.objects.filter(pk=id).exists()
    return (
        f"The job {id} is dead. Run: jobqueue requeue {id}" if is_dead else str(error)
    )
