"""What people may do to jobs and dead jobs: the actions, each for one batch of rows.

records.py asks, checks the permission and writes the LogEntry; here the arrows of
lifecycle/ are called, which test the state of each job in their own statement. Each
action says in an Effects value what it did.
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

from ..exceptions import JobNotWaiting
from ..lifecycle import cancel
from ..lifecycle.database import get_database
from ..models import Attempt, DeadJob, Job
from ..states import LIVE, CancelResult, JobStatus
from .forms import ConfirmForm, MoveForm, RequeueForm, RescheduleForm

# Keys in use that are named one by one, with the job that has each.
NAMED = 5


@dataclass(slots=True)
class Effects:
    """What one batch came to."""

    # How many of each key of REPORTS.
    counts: Counter[str] = field(default_factory=Counter)
    # By the message for their LogEntry.
    changed: defaultdict[str, list[Model]] = field(
        default_factory=lambda: defaultdict(list)
    )
    deleted: list[Model] = field(default_factory=list)
    # Dead jobs that stay, and the live jobs that have their keys.
    holders: list[tuple[DeadJob, Job]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do, from the list or from the page of one job."""

    # In the URL, and in has_…_permission.
    name: str
    label: str | Promise
    title: str | Promise
    apply: Callable[[list[Any], dict[str, Any]], Effects]
    form: type[forms.Form] = ConfirmForm
    # Show a page first, even for a single job.
    asks: bool = False
    # The jobs for which it does something; None: all.
    statuses: frozenset[str] | None = None

    @property
    def list_name(self) -> str:
        """Its name among the actions of the list; Django's own deletion is replaced."""
        return "delete_selected" if self.name == "delete" else self.name


# Of each count: the level of its message, and its text.
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
            "%(count)d job runs as soon as a worker is free.",
            "%(count)d jobs run as soon as workers are free.",
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
            "%(count)d job is neither scheduled nor pending and stays as it is.",
            "%(count)d jobs are neither scheduled nor pending and stay as they are.",
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
            "%(count)d dead job stays, because its unique key is in use.",
            "%(count)d dead jobs stay, because their unique keys are in use.",
            "count",
        ),
    ),
}


def cancel_jobs(jobs: list[Job], wishes: dict[str, Any]) -> Effects:
    """Cancel those that wait; ask those that run to stop."""
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


def run_jobs_now(jobs: list[Job], wishes: dict[str, Any]) -> Effects:
    """Make scheduled jobs due."""
    return _change_jobs(jobs, Job.run_now, "due", _("Made due now."))


def reschedule_jobs(jobs: list[Job], wishes: dict[str, Any]) -> Effects:
    """Give waiting jobs another time."""
    when = wishes["when"]
    if "delay" in when:
        message = _("Rescheduled: after %(delay)s.") % {"delay": when["delay"]}
    else:
        message = _("Rescheduled: %(run_at)s.") % {"run_at": when["run_at"].isoformat()}
    return _change_jobs(
        jobs, lambda job: job.reschedule(**when), "rescheduled", message
    )


def move_jobs(jobs: list[Job], wishes: dict[str, Any]) -> Effects:
    """Give waiting jobs another queue or priority."""
    place = {"queue": wishes["queue"], "priority": wishes["priority"]}
    given = [f"{name} {value}" for name, value in place.items() if value is not None]
    message = _("Moved: %(place)s.") % {"place": ", ".join(given)}
    return _change_jobs(jobs, lambda job: job.change(**place), "moved", message)


def delete_jobs(jobs: list[Job], wishes: dict[str, Any]) -> Effects:
    """Delete jobs with their attempts; a running one is asked to stop instead."""
    effects = Effects()
    deleted = _delete_records(Job, jobs)
    # Running, or held by somebody at this moment.
    kept = [job for job in jobs if job.pk not in deleted]
    if kept:
        cancelled = cancel_jobs(kept, wishes)
        deleted |= _delete_records(Job, kept)
        for message, rows in cancelled.changed.items():
            asked = [job for job in rows if job.pk not in deleted]
            effects.changed[message] = asked
            effects.counts[CancelResult.REQUESTED] += len(asked)
    _report_deleted(effects, jobs, deleted)
    return effects


def requeue_dead_jobs(dead_jobs: list[DeadJob], wishes: dict[str, Any]) -> Effects:
    """Make live jobs of dead ones; those whose unique key is in use stay."""
    ids = [dead.pk for dead in dead_jobs]
    reset = wishes["attempts"] == "reset"
    counts = DeadJob.objects.filter(pk__in=ids).requeue(reset_attempts=reset)
    effects = Effects(Counter(requeued=counts.requeued, key_in_use=counts.key_in_use))
    message = (
        _("Requeued, with all attempts.") if reset else _("Requeued, for one attempt.")
    )
    live = set(Job.objects.filter(pk__in=ids).values_list("pk", flat=True))
    # The dead row is gone: the entry belongs to the job that lives.
    effects.changed[message] = [
        Job(pk=dead.pk, job_type=dead.job_type) for dead in dead_jobs if dead.pk in live
    ]
    if counts.key_in_use:
        effects.holders = list(_find_holders(ids))
    return effects


def delete_dead_jobs(dead_jobs: list[DeadJob], wishes: dict[str, Any]) -> Effects:
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
    """Delete the rows nobody holds and no worker runs; return their ids."""
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
    for dead in staying.only("job_type", "unique_key")[:NAMED]:
        holder = Job.objects.filter(
            job_type=dead.job_type, unique_key=dead.unique_key
        ).first()
        if holder is not None:
            yield dead, holder
