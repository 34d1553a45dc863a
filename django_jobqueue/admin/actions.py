"""The actions on jobs and dead jobs, each applied to one batch of rows.

records.py checks the permission, asks for confirmation and writes the LogEntry. The
functions here call the transitions of lifecycle/, which test the state of each job in
their own statement, and return what they did as Effects.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Model
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from ..exceptions import JobNotEnded, JobNotWaiting, JobQueueError
from ..lifecycle import cancel
from ..models import Attempt, DeadJob, Job
from ..states import ENDED, LIVE, CancelResult, JobStatus
from ..storage.database import get_database
from .forms import ConfirmForm, MoveForm, RequeueForm, RescheduleForm

# The most jobs and errors that the messages of one action name.
MAX_NAMED = 5


@dataclass(slots=True)
class Effects:
    """What an action did to one batch."""

    # By key of REPORTS.
    counts: Counter[str] = field(default_factory=Counter)
    # By the message of their LogEntry.
    changed: defaultdict[str, list[Model]] = field(
        default_factory=lambda: defaultdict(list)
    )
    deleted: list[Model] = field(default_factory=list)
    # Dead jobs that were not requeued, with the live jobs that hold their keys.
    holders: list[tuple[DeadJob, Job]] = field(default_factory=list)
    # New jobs, and the errors of those that could not be enqueued.
    created: list[Job] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action of the list and of the page of one job."""

    # Part of the URL and of the method has_<name>_permission.
    name: str
    label: str | Promise
    title: str | Promise
    apply: Callable[[list[Any], dict[str, Any]], Effects]
    form: type[forms.Form] = ConfirmForm
    # Always ask for confirmation, even for a single job.
    asks: bool = False
    # The statuses of jobs that it can change; None: all.
    statuses: frozenset[str] | None = None

    @property
    def list_name(self) -> str:
        """The name in the list of actions; our deletion replaces Django's."""
        return "delete_selected" if self.name == "delete" else self.name


# The level and text of the message for each count.
REPORTS: dict[str, tuple[int, Any]] = {
    "cancelled": (
        messages.SUCCESS,
        ngettext_lazy(
            "%(count)d job was cancelled.", "%(count)d jobs were cancelled.", "count"
        ),
    ),
    "requested": (
        messages.WARNING,
        ngettext_lazy(
            "%(count)d job is running and was asked to stop.",
            "%(count)d jobs are running and were asked to stop.",
            "count",
        ),
    ),
    "ended": (
        messages.WARNING,
        ngettext_lazy(
            "%(count)d job had ended already.",
            "%(count)d jobs had ended already.",
            "count",
        ),
    ),
    "due": (
        messages.SUCCESS,
        ngettext_lazy(
            "%(count)d job is due now and runs as soon as a worker is free.",
            "%(count)d jobs are due now and run as soon as a worker is free.",
            "count",
        ),
    ),
    "rescheduled": (
        messages.SUCCESS,
        ngettext_lazy(
            "%(count)d job was rescheduled.",
            "%(count)d jobs were rescheduled.",
            "count",
        ),
    ),
    "moved": (
        messages.SUCCESS,
        ngettext_lazy(
            "%(count)d job was moved.", "%(count)d jobs were moved.", "count"
        ),
    ),
    "not_waiting": (
        messages.WARNING,
        ngettext_lazy(
            "%(count)d job is neither scheduled nor pending and was not changed.",
            "%(count)d jobs are neither scheduled nor pending and were not changed.",
            "count",
        ),
    ),
    "enqueued": (
        messages.SUCCESS,
        ngettext_lazy(
            "%(count)d new job was enqueued.",
            "%(count)d new jobs were enqueued.",
            "count",
        ),
    ),
    "not_ended": (
        messages.WARNING,
        ngettext_lazy(
            "%(count)d job has not ended and was not enqueued again.",
            "%(count)d jobs have not ended and were not enqueued again.",
            "count",
        ),
    ),
    "refused": (
        messages.ERROR,
        ngettext_lazy(
            "%(count)d job could not be enqueued again.",
            "%(count)d jobs could not be enqueued again.",
            "count",
        ),
    ),
    "deleted": (
        messages.SUCCESS,
        ngettext_lazy(
            "%(count)d job was deleted.", "%(count)d jobs were deleted.", "count"
        ),
    ),
    "requeued": (
        messages.SUCCESS,
        ngettext_lazy(
            "%(count)d dead job was requeued.",
            "%(count)d dead jobs were requeued.",
            "count",
        ),
    ),
    "key_in_use": (
        messages.WARNING,
        ngettext_lazy(
            "%(count)d dead job was not requeued: its unique key is in use.",
            "%(count)d dead jobs were not requeued: their unique keys are in use.",
            "count",
        ),
    ),
}


def cancel_jobs(jobs: list[Job], values: dict[str, Any]) -> Effects:
    """Cancel waiting jobs; ask running ones to stop."""
    ids = [job.pk for job in jobs]
    counts = cancel.cancel_jobs(ids)
    effects = Effects(Counter({str(result): counts[result] for result in counts}))
    found = dict(Job.objects.filter(pk__in=ids).values_list("pk", "status"))
    for job in jobs:
        match found.get(job.pk):
            case JobStatus.CANCELLED if job.status in LIVE:
                effects.changed[_("Cancelled.")].append(job)
            case JobStatus.RUNNING:
                effects.changed[_("Asked to stop.")].append(job)
    return effects


def run_jobs_now(jobs: list[Job], values: dict[str, Any]) -> Effects:
    """Make scheduled jobs due now."""
    return _change_jobs(jobs, Job.run_now, "due", _("Made due now."))


def reschedule_jobs(jobs: list[Job], values: dict[str, Any]) -> Effects:
    """Give waiting jobs another time."""
    when = values["when"]
    if "delay" in when:
        message = _("Rescheduled: after %(delay)s.") % {"delay": when["delay"]}
    else:
        message = _("Rescheduled: %(run_at)s.") % {"run_at": when["run_at"].isoformat()}
    return _change_jobs(
        jobs, lambda job: job.reschedule(**when), "rescheduled", message
    )


def move_jobs(jobs: list[Job], values: dict[str, Any]) -> Effects:
    """Give waiting jobs another queue or priority."""
    target = {"queue": values["queue"], "priority": values["priority"]}
    given = [f"{name} {value}" for name, value in target.items() if value is not None]
    message = _("Moved: %(target)s.") % {"target": ", ".join(given)}
    return _change_jobs(jobs, lambda job: job.change(**target), "moved", message)


def run_jobs_again(jobs: list[Job], values: dict[str, Any]) -> Effects:
    """Enqueue a copy of each job that has ended."""
    effects = Effects()
    for job in jobs:
        try:
            copy = job.enqueue_again()
        except JobNotEnded:
            effects.counts["not_ended"] += 1
        except JobQueueError as error:
            effects.counts["refused"] += 1
            effects.errors.append(str(error))
        else:
            effects.counts["enqueued"] += 1
            effects.created.append(copy)
            effects.changed[_("Run again as %(id)s.") % {"id": copy.pk}] = [job]
            effects.changed[_("Copy of %(id)s, run again.") % {"id": job.pk}] = [copy]
    return effects


def delete_jobs(jobs: list[Job], values: dict[str, Any]) -> Effects:
    """Delete jobs with their attempts; a running one is asked to stop instead."""
    effects = Effects()
    deleted = _delete_records(Job, jobs)
    # Running, or locked by another transaction.
    kept = [job for job in jobs if job.pk not in deleted]
    if kept:
        cancelled = cancel_jobs(kept, values)
        deleted |= _delete_records(Job, kept)
        for message, rows in cancelled.changed.items():
            asked = [job for job in rows if job.pk not in deleted]
            effects.changed[message] = asked
            effects.counts[CancelResult.REQUESTED] += len(asked)
    _report_deleted(effects, jobs, deleted)
    return effects


def requeue_dead_jobs(dead_jobs: list[DeadJob], values: dict[str, Any]) -> Effects:
    """Requeue dead jobs; those whose unique key is in use stay dead."""
    ids = [dead.pk for dead in dead_jobs]
    reset = values["attempts"] == "reset"
    counts = DeadJob.objects.filter(pk__in=ids).requeue(reset_attempts=reset)
    effects = Effects(Counter(requeued=counts.requeued, key_in_use=counts.key_in_use))
    message = (
        _("Requeued, with all attempts.") if reset else _("Requeued, for one attempt.")
    )
    live = set(Job.objects.filter(pk__in=ids).values_list("pk", flat=True))
    # The dead row is gone: the LogEntry belongs to the live job.
    effects.changed[message] = [
        Job(pk=dead.pk, job_type=dead.job_type) for dead in dead_jobs if dead.pk in live
    ]
    if counts.key_in_use:
        effects.holders = list(_find_holders(ids))
    return effects


def delete_dead_jobs(dead_jobs: list[DeadJob], values: dict[str, Any]) -> Effects:
    """Delete dead jobs with their attempts."""
    effects = Effects()
    _report_deleted(effects, dead_jobs, _delete_records(DeadJob, dead_jobs))
    return effects


CANCEL = Action(
    name="cancel",
    label=gettext_lazy("Cancel"),
    title=gettext_lazy("Cancel jobs"),
    apply=cancel_jobs,
    statuses=frozenset(LIVE),
)
RUN = Action(
    name="run",
    label=gettext_lazy("Run now"),
    title=gettext_lazy("Run jobs now"),
    apply=run_jobs_now,
    statuses=frozenset({JobStatus.SCHEDULED}),
)
RESCHEDULE = Action(
    name="reschedule",
    label=gettext_lazy("Reschedule"),
    title=gettext_lazy("Reschedule jobs"),
    apply=reschedule_jobs,
    form=RescheduleForm,
    asks=True,
    statuses=frozenset({JobStatus.SCHEDULED, JobStatus.PENDING}),
)
MOVE = Action(
    name="move",
    label=gettext_lazy("Move"),
    title=gettext_lazy("Move jobs"),
    apply=move_jobs,
    form=MoveForm,
    asks=True,
    statuses=frozenset({JobStatus.SCHEDULED, JobStatus.PENDING}),
)
RUN_AGAIN = Action(
    name="run_again",
    label=gettext_lazy("Run again"),
    title=gettext_lazy("Run jobs again, as new jobs"),
    apply=run_jobs_again,
    asks=True,
    statuses=frozenset(ENDED),
)
DELETE = Action(
    name="delete",
    label=gettext_lazy("Delete"),
    title=gettext_lazy("Delete jobs and their attempts"),
    apply=delete_jobs,
    asks=True,
)
REQUEUE = Action(
    name="requeue",
    label=gettext_lazy("Requeue"),
    title=gettext_lazy("Requeue dead jobs"),
    apply=requeue_dead_jobs,
    form=RequeueForm,
    asks=True,
)
DELETE_DEAD = Action(
    name="delete",
    label=gettext_lazy("Delete"),
    title=gettext_lazy("Delete dead jobs and their attempts"),
    apply=delete_dead_jobs,
    asks=True,
)


def _change_jobs(
    jobs: list[Job], change: Callable[[Job], None], count: str, message: str
) -> Effects:
    effects = Effects()
    for job in jobs:
        try:
            change(job)
        except JobNotWaiting:
            effects.counts["not_waiting"] += 1
        else:
            effects.counts[count] += 1
            effects.changed[message].append(job)
    return effects


def _delete_records(model: Any, records: list[Any]) -> set[Any]:
    """Delete rows that are neither locked nor running; return their ids."""
    db = get_database()
    rows = model.objects.using(db.alias)
    found = rows.filter(pk__in=[record.pk for record in records]).order_by("pk")
    if model is Job:
        found = found.exclude(status=JobStatus.RUNNING)
    with db.atomic():
        ids = set(db.lock_rows(found).values_list("pk", flat=True))
        Attempt.objects.using(db.alias).filter(job_id__in=ids).delete()
        rows.filter(pk__in=ids).delete()
    return ids


def _report_deleted(effects: Effects, records: list[Any], deleted: set[Any]) -> None:
    effects.deleted = [record for record in records if record.pk in deleted]
    effects.counts["deleted"] = len(deleted)


def _find_holders(ids: list[Any]) -> Iterable[tuple[DeadJob, Job]]:
    staying = DeadJob.objects.filter(pk__in=ids, unique_key__isnull=False)
    for dead in staying.only("job_type", "unique_key")[:MAX_NAMED]:
        holder = Job.objects.filter(
            job_type=dead.job_type, unique_key=dead.unique_key
        ).first()
        if holder is not None:
            yield dead, holder
