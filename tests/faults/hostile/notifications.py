"""Malformed and forged NOTIFY messages. PostgreSQL only.

Anyone with access to the database may send them. A notification may wake a worker. It
must not change what the worker does, and not cost a statement each.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from django_jobqueue import Job
from django_jobqueue.models import WorkerHeartbeat
from tests.testapp import jobs
from tests.waiting import wait_until

from ..fault_round import find_errors
from .case_runner import CaseRunner
from .measurements import count_transactions

BURST_MESSAGES = 3000
# PostgreSQL accepts no more than 8000.
MAX_PAYLOAD_BYTES = 7900
# Far below one for each notification, far above what the healthy jobs need.
MAX_TRANSACTIONS = 1000
MAX_GROWTH_BYTES = 32 << 20

NUMBERS = [
    0,
    -1,
    2**63,
    -(2**63) - 1,
    10**400,
    1.5,
    True,
    None,
    "1",
    [],
    {},
    float("nan"),
    float("inf"),
    float("-inf"),
    -1e308,
    1e308,
]
NAMES = [
    "a\0b",
    "\ud800",
    "",
    "'; --",
    "%s",
    "\u202e",
    "\U0001f9e8",
    "n" * 65,
    "n" * 5000,
    "default",
    "no-such-queue",
]
MALFORMED = [
    "",
    "{",
    "null",
    "[]",
    "0",
    "NaN",
    '"pending"',
    "\x01\x7f",
    "[" * MAX_PAYLOAD_BYTES,
    '{"a":' * 1300,
    "1" * 6000,
    '{"pending": []}',
    '{"pending": {"default": ' + "1" * 5000 + "}}",
    '{"due": "soon"}',
    '{"cancel": 1, "worker": 1}',
]


@dataclass(slots=True)
class NotificationsCase:
    """A burst of payloads, and the bounds of what it may cost."""

    name: str
    make: Callable[[], Sequence[str]]
    _transactions: int = 0
    _memory: int = 0
    sent: int = 0

    def inject(self, runner: CaseRunner) -> None:
        self._transactions, self._memory = count_transactions(), runner.read_memory()
        payloads = self.make()
        self.sent = len(payloads)
        send(payloads)

    def find_violations(self, runner: CaseRunner) -> list[str]:
        found = []
        transactions = count_transactions() - self._transactions
        if transactions > MAX_TRANSACTIONS:
            found.append(f"{transactions} transactions for {self.sent} notifications")
        grown = runner.read_memory() - self._memory
        if grown > MAX_GROWTH_BYTES:
            found.append(f"the children have grown by {grown >> 20} MB")
        # Malformed messages are dropped: no error is logged, no connection is lost.
        errors = find_errors(runner.read_log())
        if errors:
            found.append(f"{len(errors)} errors of a loop, the first: {errors[0]}")
        return found or runner.find_busy_children(2)


@dataclass(slots=True)
class ForgedCancelCase:
    """A cancellation of a running job that was requested in no row."""

    name: str = "forged cancellation"
    _job: Job | None = None
    _until: Any = field(default=None)

    def inject(self, runner: CaseRunner) -> None:
        started, self._until = runner.folder / "started", runner.folder / "until"
        for path in (started, self._until):
            path.unlink(missing_ok=True)
        self._job = jobs.ignore_everything.enqueue(
            touch=str(started), until=str(self._until)
        )
        wait_until(started.exists)
        workers = WorkerHeartbeat.objects.values_list("pk", flat=True)
        send(
            [
                json.dumps({"cancel": str(self._job.pk), "worker": str(id)})
                for id in workers
            ]
        )

    def find_violations(self, runner: CaseRunner) -> list[str]:
        # Only now: the healthy jobs, which were notified later, have ended.
        self._until.touch()
        assert self._job is not None
        row = Job.objects.filter(pk=self._job.pk).values_list("status", flat=True)
        status = row.first()
        return [] if status == "succeeded" else [f"the job is {status}, not succeeded"]


def list_cases(rng: random.Random) -> list[NotificationsCase | ForgedCancelCase]:
    return [
        NotificationsCase("no JSON and no object", lambda: MALFORMED),
        NotificationsCase(
            "strange numbers of pending jobs",
            lambda: [json.dumps({"pending": {"default": n}}) for n in NUMBERS],
        ),
        NotificationsCase(
            "strange names of queues",
            lambda: [json.dumps({"pending": {name: 1}}) for name in NAMES],
        ),
        NotificationsCase(
            "strange times", lambda: [json.dumps({"due": number}) for number in NUMBERS]
        ),
        NotificationsCase("strange cancellations", list_cancellations),
        NotificationsCase(
            "names without end", lambda: [_name_queues() for _ in range(BURST_MESSAGES)]
        ),
        NotificationsCase(
            "generated", lambda: [generate(rng) for _ in range(BURST_MESSAGES)]
        ),
        ForgedCancelCase(),
    ]


def list_cancellations() -> list[str]:
    """Return cancellations of jobs that do not exist, for all running workers."""
    workers = [str(id) for id in WorkerHeartbeat.objects.values_list("pk", flat=True)]
    ids = ["", "no uuid", "0" * 5000, str(uuid.uuid4()), "\0", "{" + "0" * 32 + "}"]
    return [json.dumps({"cancel": id, "worker": w}) for id in ids for w in workers]


def generate(rng: random.Random) -> str:
    """Return a message that resembles one of ours, or not at all."""
    match rng.randrange(6):
        case 0:
            payload = rng.choice(MALFORMED)
        case 1:
            names = rng.sample(NAMES, rng.randrange(4))
            payload = json.dumps({"pending": {n: rng.choice(NUMBERS) for n in names}})
        case 2:
            payload = json.dumps({"due": _choose(rng)})
        case 3:
            payload = json.dumps({"cancel": _choose(rng), "worker": _choose(rng)})
        case 4:
            payload = json.dumps({"pending": _choose(rng), "due": _choose(rng)})
        case _:
            payload = json.dumps(_choose(rng, depth=3))
    # Make each unique: PostgreSQL drops duplicates within a transaction.
    return payload[:MAX_PAYLOAD_BYTES] + " " * rng.randrange(50)


def _choose(rng: random.Random, depth: int = 1) -> Any:
    kind = rng.randrange(4) if depth else rng.randrange(2)
    match kind:
        case 0:
            return rng.choice(NUMBERS)
        case 1:
            return rng.choice(NAMES)
        case 2:
            return [_choose(rng, depth - 1) for _ in range(rng.randrange(4))]
        case _:
            keys = rng.sample([*NAMES, "pending", "due", "cancel"], rng.randrange(4))
            return {key: _choose(rng, depth - 1) for key in keys}


def _name_queues() -> str:
    """Return a notification of 50 unknown queues with valid names."""
    return json.dumps({"pending": {f"q-{uuid.uuid4().hex}": 1 for _ in range(50)}})


def send(payloads: Sequence[str], *, size: int = 100) -> None:
    with connection.cursor() as cursor:
        for start in range(0, len(payloads), size):
            cursor.execute(
                "SELECT pg_notify('jobqueue', payload)"
                " FROM unnest(%s::text[]) AS payload",
                [list(payloads[start : start + size])],
            )
