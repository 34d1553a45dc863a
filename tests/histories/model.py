"""The queue as dicts: a model that every version of the transitions must match.

Written from docs/design/job-lifecycle.md, not from the statements: it has rows, tokens
and budgets, but no SQL, locks or batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

HOUR_MICROSECONDS = 3_600_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RETENTION = {"succeeded": timedelta(days=1), "cancelled": timedelta(days=7)}
STOPPED = "cancelled while running"
LOST = "WorkerLost: The worker that ran this job stopped sending heartbeats."


@dataclass
class ModelJob:
    """One job, live or dead."""

    id: UUID
    queue: str
    priority: int
    max_attempts: int | None
    unique_key: str | None
    run_at: datetime
    rank: int
    status: str
    attempts: int = 0
    lease_token: int = 0
    crashes: int = 0
    lost: int = 0
    given_back: int = 0
    isolate: bool = False
    worker_id: UUID | None = None
    error: str = ""
    is_unknown: bool = False
    # Given back by its worker, or lost: the job keeps its rank.
    keeps_rank: bool = False
    prune_at: datetime | None = None
    is_cancel_requested: bool = False
    reason: str = ""


@dataclass
class ModelQueue:
    """All jobs, dead jobs, attempts and heartbeats."""

    ttl: timedelta
    max_attempts: int
    max_crashes: int
    max_lost: int
    jobs: dict[UUID, ModelJob] = field(default_factory=dict)
    dead: dict[UUID, ModelJob] = field(default_factory=dict)
    # (job, token) → (number, outcome)
    attempts: dict[tuple[UUID, int], tuple[int, str]] = field(default_factory=dict)
    beats: dict[UUID, datetime] = field(default_factory=dict)

    def enqueue(self, id: UUID, now: datetime, delay: timedelta, **values: Any) -> UUID:
        key = values["unique_key"]
        for job in self.jobs.values():
            if key is not None and job.unique_key == key:
                return job.id
        run_at = now + delay
        status = "scheduled" if run_at > now else "pending"
        rank = make_rank(run_at, values["priority"])
        job = ModelJob(id=id, run_at=run_at, rank=rank, status=status, **values)
        self.jobs[id] = job
        return id

    def promote(self, now: datetime) -> None:
        for job in self.jobs.values():
            if job.status == "scheduled" and job.run_at <= now:
                job.status = "pending"
                if not job.keeps_rank:
                    job.rank = make_rank(max(job.run_at, now), job.priority)

    def claim(
        self, quotas: dict[str, int], worker: UUID, suspects: str
    ) -> list[tuple[UUID, int]]:
        wanted = {
            "included": {True, False},
            "excluded": {False},
            "only": {True},
        }[suspects]
        chosen = []
        for queue, quota in quotas.items():
            waiting = [
                job
                for job in self.jobs.values()
                if job.status == "pending"
                and job.queue == queue
                and job.isolate in wanted
            ]
            chosen += sorted(waiting, key=lambda job: (job.rank, job.id))[:quota]
        for job in chosen:
            job.status, job.worker_id = "running", worker
            job.lease_token += 1
            job.attempts += 1
        ordered = sorted(chosen, key=lambda job: (job.rank, job.id))
        return [(job.id, job.lease_token) for job in ordered]

    def finish(
        self,
        id: UUID,
        token: int,
        worker: UUID,
        *,
        now: datetime,
        label: str,
        delay: timedelta,
        error: str,
        is_taken: bool = False,
    ) -> str:
        """Return "done", or "lost" if the claim no longer owns the job.

        `is_taken`: the supervisor writes the end, which raises the token.
        """
        earlier = self._find_earlier_end(id, token, worker, label, is_taken=is_taken)
        if earlier is not None:
            return earlier
        job = self.jobs[id]
        if label != "succeeded" or token > 1:
            self.attempts[id, token] = (job.attempts, label)
        job.worker_id, job.error = None, error
        job.lease_token += is_taken
        if label not in {"released", "unknown_handler"}:
            job.crashes, job.isolate = 0, False
        is_trouble = error == "trouble" and label != "snoozed"
        if label == "snoozed":
            job.lost = job.given_back = 0
        since, job.is_unknown = job.is_unknown, label == "unknown_handler"
        is_over = job.attempts >= self._read_limit(job)
        is_death = label == "discarded" or (label == "timeout" and is_over)
        match label:
            case "succeeded" | "cancelled":
                self._end(job, label, now)
            case _ if job.is_cancel_requested:
                if label not in {"failed", "timeout"} and not is_death:
                    job.attempts -= 1
                    job.given_back += is_trouble
                job.error = STOPPED
                self._end(job, "cancelled", now)
            case "discarded":
                job.is_unknown = since
                self._move_to_dead(job, "discarded")
            case "timeout" if is_over:
                job.is_unknown = since
                self._move_to_dead(job, "timeout")
            case _:
                if label not in {"failed", "timeout"}:
                    job.attempts -= 1
                    job.given_back += is_trouble
                job.run_at = now + delay
                job.status = "scheduled" if delay else "pending"
                job.keeps_rank = label in {"released", "unknown_handler"}
                if not delay and not job.keeps_rank:
                    job.rank = make_rank(now, job.priority)
        return "done"

    def crash(
        self,
        id: UUID,
        token: int,
        worker: UUID,
        *,
        now: datetime,
        is_alone: bool,
        delay: timedelta,
        error: str,
    ) -> str:
        """Record that the worker's process died while this job's handler ran."""
        earlier = self._find_earlier_end(id, token, worker, "crashed", is_taken=True)
        if earlier is not None:
            return earlier
        job = self.jobs[id]
        self.attempts[id, token] = (job.attempts, "crashed")
        job.worker_id, job.error = None, error
        job.lease_token += 1
        job.crashes += 1
        job.isolate = True
        limit = self._read_limit(job)
        is_used_up = is_alone and job.attempts >= limit
        is_death = job.crashes >= self.max_crashes or limit == 1 or is_used_up
        if is_death and not job.is_cancel_requested:
            self._move_to_dead(job, "crashed")
            return "done"
        job.attempts -= not (is_alone or is_death)
        job.is_unknown = False
        if job.is_cancel_requested:
            job.error = STOPPED
            self._end(job, "cancelled", now)
            return "done"
        job.status, job.run_at = "scheduled", now + delay
        job.keeps_rank = False
        return "done"

    def cancel(self, id: UUID, now: datetime) -> str:
        job = self.jobs.get(id)
        if job is None or job.status in RETENTION:
            return "ended"
        if job.status == "running":
            job.is_cancel_requested = True
            return "requested"
        job.lease_token += 1
        job.error = ""
        self._end(job, "cancelled", now)
        return "cancelled"

    def requeue(self, id: UUID, now: datetime, *, reset: bool) -> bool:
        dead = self.dead[id]
        keys = {job.unique_key for job in self.jobs.values()} - {None}
        if dead.unique_key in keys:
            return False
        del self.dead[id]
        if reset:
            dead.attempts = 0
        else:
            dead.max_attempts = dead.attempts + 1
        dead.crashes = dead.lost = dead.given_back = 0
        dead.is_unknown = dead.is_cancel_requested = False
        dead.lease_token += 1
        dead.run_at, dead.rank = now, make_rank(now, dead.priority)
        dead.keeps_rank = False
        dead.status, dead.reason = "pending", ""
        self.jobs[id] = dead
        return True

    def rescue(self, now: datetime) -> int:
        count = 0
        for job in list(self.jobs.values()):
            if job.status != "running" or not self._is_gone(job.worker_id, now):
                continue
            count += 1
            self.attempts[job.id, job.lease_token] = (job.attempts, "lost")
            job.worker_id, job.error = None, LOST
            job.lease_token += 1
            job.lost += 1
            if job.is_cancel_requested:
                job.attempts -= 1
                job.is_unknown = False
                job.error = STOPPED
                self._end(job, "cancelled", now)
                continue
            if job.lost >= self.max_lost or job.max_attempts == 1:
                self._move_to_dead(job, "lost")
                continue
            job.attempts -= 1
            job.is_unknown = False
            is_first = job.lost == 1
            wait = 0 if is_first else min(2 ** (job.lost - 1), 300)
            job.status = "pending" if is_first else "scheduled"
            job.run_at = now + timedelta(seconds=wait)
            job.keeps_rank = True
        return count

    def prune(self, now: datetime) -> int:
        pruned = [
            job.id
            for job in self.jobs.values()
            if job.prune_at is not None and job.prune_at <= now
        ]
        for id in pruned:
            del self.jobs[id]
        self.attempts = {k: v for k, v in self.attempts.items() if k[0] not in pruned}
        return len(pruned)

    def _find_earlier_end(
        self, id: UUID, token: int, worker: UUID, label: str, *, is_taken: bool
    ) -> str | None:
        """Return the result of an end whose claim does not own the job, else None.

        "done": the end was written before and only the reply was lost. For an end by
        the supervisor the recorded attempt decides, since others raise the token too.
        """
        job = self.jobs.get(id) or self.dead.get(id)
        if job is None:
            return "lost"
        if job.status == "running":
            is_owned = (job.lease_token, job.worker_id) == (token, worker)
            return None if is_owned else "lost"
        is_same = job.lease_token == token + is_taken
        if is_taken:
            _, recorded = self.attempts.get((id, token), (0, None))
            is_same = is_same and recorded == label
        return "done" if is_same else "lost"

    def _read_limit(self, job: ModelJob) -> int:
        return job.max_attempts or self.max_attempts

    def _move_to_dead(self, job: ModelJob, reason: str) -> None:
        job.status, job.reason = "dead", reason
        self.dead[job.id] = self.jobs.pop(job.id)

    def _is_gone(self, worker: UUID | None, now: datetime) -> bool:
        assert worker is not None
        return worker not in self.beats or self.beats[worker] < now - self.ttl

    def _end(self, job: ModelJob, status: str, now: datetime) -> None:
        job.status, job.unique_key = status, None
        job.prune_at = now + RETENTION[status]


def make_rank(moment: datetime, priority: int) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1) - priority * HOUR_MICROSECONDS
