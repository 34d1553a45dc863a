"""Compare the jobs that were enqueued with the ledger and the tables.

Three rules for each job: it is not lost, what is promised once did not happen twice,
and its counters agree with its history. Called after every round of faults, in the
tests and in `make faults`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.models import Attempt
from django_jobqueue.registry import get_handler
from django_jobqueue.states import AttemptOutcome, JobStatus
from django_jobqueue.storage.endings import clears_suspicion
from tests.testapp.models import Effect

from .ledger import JobRuns, read_ledger

# Ended by another process, which raises the token; the next claim raises it again.
ALWAYS_TAKEN = {AttemptOutcome.CRASHED, AttemptOutcome.LOST}
# Ended by the worker itself, or by the supervisor after the worker has died.
SOMETIMES_TAKEN = {AttemptOutcome.RELEASED}
COUNTED = {AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED, AttemptOutcome.TIMEOUT}
ALONE = "this job and nothing else"


@dataclass(slots=True)
class Findings:
    """The violations, one line for each job and rule; empty lists are a success."""

    # In no table, not ended, or ended without having done its work.
    lost: list[str] = field(default_factory=list)
    # Done twice where once is promised, or by a claim that was no longer valid.
    doubled: list[str] = field(default_factory=list)
    # Attempts, crashes, losses and attempt rows that do not agree.
    miscounted: list[str] = field(default_factory=list)
    # Complete runs beyond the first: allowed where only at-least-once is promised.
    repeated: int = 0

    def extend(self, other: Findings) -> None:
        self.lost += other.lost
        self.doubled += other.doubled
        self.miscounted += other.miscounted
        self.repeated += other.repeated

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.miscounted)

    def __str__(self) -> str:
        named = {
            "lost": self.lost,
            "doubled": self.doubled,
            "miscounted": self.miscounted,
        }
        return "\n".join(
            f"{name}: {text}" for name, texts in named.items() for text in texts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """How many crashes and losses a job survives, as configured in the workers."""

    crashes: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job, with its rows and its lines of the ledger."""

    id: UUID
    job_type: str
    record: Job | DeadJob | None
    attempts: Sequence[Attempt]
    runs: JobRuns
    # The fences under which effect rows were written.
    effects: Sequence[int]
    budgets: Budgets

    @property
    def is_atomic(self) -> bool:
        return get_handler(self.job_type).atomic

    @property
    def is_once(self) -> bool:
        return get_handler(self.job_type).max_attempts == 1

    @property
    def has_succeeded(self) -> bool:
        return isinstance(self.record, Job) and (
            self.record.status == JobStatus.SUCCEEDED
        )


def check_jobs(specs: Iterable[JobSpec], ledger: Path, *, budgets: Budgets) -> Findings:
    """Check every job that was enqueued."""
    findings = Findings()
    for case in _read_cases(specs, read_ledger(ledger), budgets):
        name = f"{case.job_type} {case.id}"
        findings.lost += [f"{name} {text}" for text in find_losses(case)]
        findings.doubled += [f"{name} {text}" for text in find_doubles(case)]
        findings.miscounted += [f"{name} {text}" for text in find_miscounts(case)]
        findings.repeated += max(0, len(case.runs.ends) - 1)
    return findings


def _read_cases(
    specs: Iterable[JobSpec], runs_by_job: dict[UUID, JobRuns], budgets: Budgets
) -> Iterator[Case]:
    records: dict[UUID, Job | DeadJob] = {job.pk: job for job in Job.objects.all()}
    records |= {dead.pk: dead for dead in DeadJob.objects.all()}
    attempts: dict[UUID, list[Attempt]] = defaultdict(list)
    for attempt in Attempt.objects.order_by("lease_token"):
        attempts[attempt.job_id].append(attempt)
    effects: dict[UUID | None, list[int]] = defaultdict(list)
    for job_id, fence in Effect.objects.values_list("job_id", "name"):
        effects[job_id].append(int(fence))
    for spec in specs:
        yield Case(
            id=spec.id,
            job_type=spec.job_type,
            record=records.get(spec.id),
            attempts=attempts[spec.id],
            runs=runs_by_job.get(spec.id, JobRuns()),
            effects=effects[spec.id],
            budgets=budgets,
        )


def find_losses(case: Case) -> Iterator[str]:
    """Yield why a job counts as lost."""
    record = case.record
    if record is None:
        yield "is in no table"
    elif isinstance(record, DeadJob):
        if not _is_used_up(record, case):
            yield f"is dead ({record.reason}) although its budget was not used up"
    elif record.status != JobStatus.SUCCEEDED:
        yield f"is {record.status}, not succeeded"
    elif record.lease_token not in case.runs.ends:
        yield "has succeeded without a whole run under its last claim"
    elif case.is_atomic and not case.effects:
        yield "has succeeded without its effect"


def _is_used_up(dead: DeadJob, case: Case) -> bool:
    match dead.reason:
        case "crashed":
            return case.is_once or dead.crashes == case.budgets.crashes
        case "lost":
            return case.is_once or dead.lost == case.budgets.lost
        case _:
            return False


def find_doubles(case: Case) -> Iterator[str]:
    """Yield what happened twice or too late, where that is not allowed."""
    record, runs = case.record, case.runs
    if case.is_once and len(runs.starts) > 1:
        yield f"has one attempt and started {len(runs.starts)} times"
    if len(case.effects) > (1 if case.has_succeeded else 0):
        yield f"has {len(case.effects)} effects"
    if record is None or not case.has_succeeded:
        return
    assert isinstance(record, Job)
    token = record.lease_token
    if record.result != token:
        yield f"was ended by the claim {record.result}, and the last one is {token}"
    if max(runs.starts, default=0) > token:
        yield f"was started by the claim {max(runs.starts)} after its end by {token}"
    if any(fence != token for fence in case.effects):
        yield f"has the effect of the claim {case.effects}, and the last one is {token}"
    progress = record.progress
    if progress is not None and progress["note"] != str(token):
        yield f"has the progress of the claim {progress['note']}, not of {token}"


def find_miscounts(case: Case) -> Iterator[str]:
    """Yield where counters and history do not agree."""
    if case.record is None:
        return
    yield from _check_tokens(case, case.record)
    yield from _check_starts(case, case.record)
    yield from _check_numbers(case, case.record)
    yield from _check_budgets(case, case.record)


def _check_tokens(case: Case, record: Job | DeadJob) -> Iterator[str]:
    """Check that each claim left a row, and that no token is unaccounted for."""
    token = 1
    for attempt in case.attempts:
        if attempt.lease_token != token:
            yield f"has an attempt under the claim {attempt.lease_token}, not {token}"
            return
        token = _find_next_token(attempt, case.attempts)
    # The last row is of the last claim; a job that succeeds at once has no rows.
    last = token - 1 if case.attempts else 1
    if _is_ended(record) and record.lease_token != last:
        yield f"has the token {record.lease_token}, and its attempts say {last}"


def _find_next_token(attempt: Attempt, attempts: Sequence[Attempt]) -> int:
    step = 2 if attempt.outcome in ALWAYS_TAKEN else 1
    if attempt.outcome in SOMETIMES_TAKEN:
        later = {other.lease_token for other in attempts}
        step = 1 if attempt.lease_token + 1 in later else 2
    return attempt.lease_token + step


def _is_ended(record: Job | DeadJob) -> bool:
    return isinstance(record, DeadJob) or record.status == JobStatus.SUCCEEDED


def _check_starts(case: Case, record: Job | DeadJob) -> Iterator[str]:
    known = {attempt.lease_token for attempt in case.attempts} or {record.lease_token}
    for fence in sorted(set(case.runs.starts) - known):
        yield f"started under the claim {fence}, which has no row"
    ran = {
        attempt.lease_token
        for attempt in case.attempts
        if attempt.outcome in {AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED}
    }
    for fence in sorted(ran - set(case.runs.starts)):
        yield f"has an attempt under the claim {fence}, and never started"


def _check_numbers(case: Case, record: Job | DeadJob) -> Iterator[str]:
    counted = 0
    for attempt in case.attempts:
        if attempt.number != counted + 1:
            yield f"has an attempt number {attempt.number}, which is {counted + 1}"
        counted += _counts(attempt)
    if isinstance(record, DeadJob):
        # The attempt that ended the job is not given back, whatever its outcome.
        counted = case.attempts[-1].number if case.attempts else 0
    elif not case.attempts:
        counted = 1
    if _is_ended(record) and record.attempts != counted:
        yield f"has {record.attempts} attempts, and {counted} count"


def _counts(attempt: Attempt) -> bool:
    if attempt.outcome == AttemptOutcome.CRASHED:
        return ALONE in attempt.message
    return attempt.outcome in COUNTED


def _check_budgets(case: Case, record: Job | DeadJob) -> Iterator[str]:
    outcomes = [attempt.outcome for attempt in case.attempts]
    lost = outcomes.count(AttemptOutcome.LOST)
    if record.lost != lost:
        yield f"says lost {record.lost} times, and was {lost} times"
    crashes = 0
    for outcome in outcomes:
        if outcome == AttemptOutcome.CRASHED:
            crashes += 1
        elif outcome != AttemptOutcome.LOST and clears_suspicion(outcome):
            crashes = 0
    if (record.crashes, record.isolate) != (crashes, crashes > 0):
        yield f"says {record.crashes} crashes, isolate {record.isolate}: {crashes}"
