"""`jobqueue enqueue TYPE`: enqueue one job, with the same checks as in code."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from ..models import Job
from .answers import Answer
from .arguments import read_count, read_duration, read_moment, read_payload
from .documents import FULL, describe_job
from .tables import format_moment
from .terminal import Terminal

HELP = "Enqueue one job."
KEYS = (
    "the keys of `show` without attempts_made; was_created: false if the key is in use"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("type", help="The job type, the name given by @job.")
    parser.add_argument(
        "--payload",
        type=read_payload,
        default={},
        metavar="JSON",
        help="A JSON object with the handler's arguments; - reads standard input.",
    )
    parser.add_argument("--queue", metavar="NAME")
    parser.add_argument(
        "--priority", type=read_count(-100, 100), metavar="N", help="Higher runs first."
    )
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--delay",
        type=read_duration,
        metavar="TIME",
        help="Start after this time: 90, 5m, 1h30m, 7d.",
    )
    when.add_argument(
        "--at",
        type=read_moment,
        metavar="TIME",
        help="Start at this time: ISO 8601; in TIME_ZONE without an offset.",
    )
    parser.add_argument("--unique-key", metavar="KEY")
    parser.add_argument("--max-attempts", type=read_count(1, 32_000), metavar="N")


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """Enqueue the job, or return the live job that holds its unique key."""
    job = Job.objects.enqueue(
        flags["type"],
        flags["payload"],
        queue=flags["queue"],
        priority=flags["priority"],
        delay=flags["delay"],
        run_at=flags["at"],
        unique_key=flags["unique_key"],
        max_attempts=flags["max_attempts"],
    )
    document = describe_job(job, FULL) | {"was_created": job.was_created}
    verb = "Enqueued" if job.was_created else "The unique key is in use by"
    when = f" for {format_moment(job.run_at)}" if job.status == "scheduled" else ""
    text = f"{verb} {job.pk}: {job.job_type} in {job.queue}, {job.status}{when}"
    return Answer(document=document, text=text)
