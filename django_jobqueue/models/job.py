"""Job: one enqueued call of a handler, from its enqueue to its end.

The querysets only read. The public methods that change a job import their transition
from lifecycle/ inside the body: only transitions change a job.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from asgiref.sync import sync_to_async
from django.db import models
from django.db.models import Count, F, JSONField, Q
from django.utils.translation import gettext_lazy as _

from ..joboptions import GivenOptions
from ..states import ENDED, CancelResult, JobStatus
from .record import JobRecord, get_alias

if TYPE_CHECKING:
    from ..lifecycle.enqueue_many import EnqueueCounts
    from ..storage.new_jobs import JobSpec

# Above every real count, and far enough below the end of the column to add one.
MOST_COUNTED = 1 << 30
MOST_LEASES = 1 << 62
# The times that Python and every driver can load; infinity is not among them.
FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


class JobQuerySet(models.QuerySet["Job"]):
    def waiting(self) -> JobQuerySet:
        """Jobs that have not started: scheduled, pending or blocked."""
        return self.exclude(status__in=[JobStatus.RUNNING, *ENDED])

    def ended(self) -> JobQuerySet:
        """Jobs that succeeded or were cancelled."""
        return self.filter(status__in=ENDED)

    def counts(self) -> dict[str, int]:
        """Return how many jobs there are in each status, zeros included."""
        found = self.order_by().values_list("status").annotate(Count("pk"))
        return dict.fromkeys(JobStatus.values, 0) | dict(found)


class JobManager(models.Manager.from_queryset(JobQuerySet)):  # type: ignore[misc]
    """`Job.objects`: always the database of JOBQUEUE["DATABASE"], no router needed."""

    def get_queryset(self) -> JobQuerySet:
        return JobQuerySet(self.model, using=self._db or get_alias())

    def enqueue(
        self,
        job_type: str,
        payload: dict[str, Any] | None = None,
        **options: Unpack[GivenOptions],
    ) -> Job:
        """Enqueue one job, in the caller's transaction if there is one.

        Returns the Job; `was_created` is False if a live job of that type and
        `unique_key` existed already and is returned instead. Raises a JobQueueError
        before anything is written.
        """
        from ..lifecycle.enqueue import enqueue_job
        from ..storage.new_jobs import JobSpec

        return enqueue_job(JobSpec(job_type, payload, **options))

    async def aenqueue(
        self,
        job_type: str,
        payload: dict[str, Any] | None = None,
        **options: Unpack[GivenOptions],
    ) -> Job:
        """See enqueue()."""
        return await sync_to_async(self.enqueue)(job_type, payload, **options)

    def enqueue_many(
        self, specs: Iterable[JobSpec], *, atomic: bool = False
    ) -> EnqueueCounts:
        """Enqueue any iterable of JobSpec in chunks; see EnqueueCounts.

        Outside a transaction the chunks commit one by one, unless `atomic`. A bad spec
        raises its JobQueueError with `.index` and `.counts` of what was written.
        """
        from ..lifecycle.enqueue_many import enqueue_jobs

        return enqueue_jobs(specs, atomic=atomic)

    async def aenqueue_many(
        self, specs: Iterable[JobSpec], *, atomic: bool = False
    ) -> EnqueueCounts:
        """See enqueue_many()."""
        return await sync_to_async(self.enqueue_many)(specs, atomic=atomic)


class Job(JobRecord):
    """One enqueued call of a handler."""

    status = models.CharField(
        _("status"),
        max_length=16,
        choices=JobStatus.choices,
        # A row inserted with SQL alone is due now: promote gives it its rank.
        db_default=JobStatus.SCHEDULED,
    )
    # Microseconds of the time it became pending, less priority × AGING; lower first.
    rank = models.BigIntegerField(_("rank"), db_default=0)
    worker_id = models.UUIDField(_("worker"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    # NULL: not ended, or kept for good.
    prune_at = models.DateTimeField(_("prune at"), null=True, blank=True)
    cancel_requested_at = models.DateTimeField(
        _("cancel requested at"), null=True, blank=True
    )
    result = JSONField(_("result"), null=True, blank=True)

    # Whether enqueue made this job, or found it under its unique key.
    was_created = False

    objects: ClassVar[JobManager] = JobManager()

    class Meta:
        app_label = "jobqueue"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = (
            ("cancel_job", "Can cancel job"),
            ("run_job", "Can run job now"),
            ("reschedule_job", "Can reschedule job"),
            ("move_job", "Can move job to another queue or priority"),
        )
        indexes = (
            models.Index(
                fields=["queue", "rank", "id"],
                name="jobqueue_job_claim",
                condition=Q(status=JobStatus.PENDING),
            ),
            models.Index(
                fields=["queue", "rank", "id"],
                name="jobqueue_job_suspects",
                condition=Q(status=JobStatus.PENDING, isolate=True),
            ),
            models.Index(
                fields=["run_at"],
                name="jobqueue_job_due",
                condition=Q(status=JobStatus.SCHEDULED),
            ),
            models.Index(
                fields=["worker_id"],
                name="jobqueue_job_owner",
                condition=Q(worker_id__isnull=False),
            ),
            models.Index(
                fields=["status", "prune_at"],
                name="jobqueue_job_prune",
                condition=Q(prune_at__isnull=False),
            ),
        )
        constraints = (
            models.UniqueConstraint(
                fields=["job_type", "unique_key"],
                name="jobqueue_job_unique",
                condition=Q(unique_key__isnull=False),
            ),
            models.CheckConstraint(
                name="jobqueue_job_status", condition=Q(status__in=JobStatus.values)
            ),
            models.CheckConstraint(
                name="jobqueue_job_priority",
                condition=Q(priority__gte=-100, priority__lte=100),
            ),
            models.CheckConstraint(
                name="jobqueue_job_running_has_owner",
                condition=Q(
                    status=JobStatus.RUNNING,
                    worker_id__isnull=False,
                    claimed_at__isnull=False,
                )
                | (~Q(status=JobStatus.RUNNING) & Q(worker_id__isnull=True)),
            ),
            models.CheckConstraint(
                name="jobqueue_job_ended_has_time",
                condition=Q(status__in=sorted(ENDED), finished_at__isnull=False)
                | (
                    ~Q(status__in=sorted(ENDED))
                    & Q(finished_at__isnull=True, prune_at__isnull=True)
                ),
            ),
            models.CheckConstraint(
                name="jobqueue_job_ended_frees_key",
                condition=~Q(status__in=sorted(ENDED)) | Q(unique_key__isnull=True),
            ),
            # A cancel of a waiting job ends it, so claim and promote need no check.
            models.CheckConstraint(
                name="jobqueue_job_waiting_not_cancelled",
                condition=Q(cancel_requested_at__isnull=True)
                | Q(status__in=[JobStatus.RUNNING, *sorted(ENDED)]),
            ),
            models.CheckConstraint(
                name="jobqueue_job_counters",
                condition=Q(
                    attempts__gte=0,
                    attempts__lt=MOST_COUNTED,
                    crashes__gte=0,
                    crashes__lt=MOST_COUNTED,
                    lost__gte=0,
                    lost__lt=MOST_COUNTED,
                    given_back__gte=0,
                    given_back__lt=MOST_COUNTED,
                    lease_token__gte=F("attempts"),
                    lease_token__lt=MOST_LEASES,
                ),
            ),
            models.CheckConstraint(
                name="jobqueue_job_times",
                condition=Q(
                    run_at__gte=FIRST_MOMENT,
                    run_at__lte=LAST_MOMENT,
                    expires_at__gte=FIRST_MOMENT,
                    expires_at__lte=LAST_MOMENT,
                ),
            ),
        )

    def cancel(self) -> CancelResult:
        """Cancel a waiting job at once; ask a running one to stop. Refreshes self."""
        from ..lifecycle.cancel import cancel_job

        return cancel_job(self)

    async def acancel(self) -> CancelResult:
        """See cancel()."""
        return await sync_to_async(self.cancel)()

    def run_now(self) -> None:
        """Make a scheduled job due now. Raises JobNotWaiting. Refreshes self."""
        from ..lifecycle.reschedule import reschedule_job

        reschedule_job(self, delay=0)

    async def arun_now(self) -> None:
        """See run_now()."""
        await sync_to_async(self.run_now)()

    def reschedule(
        self,
        run_at: datetime | None = None,
        *,
        delay: timedelta | float | None = None,
    ) -> None:
        """Give a waiting job another time. Raises JobNotWaiting. Refreshes self."""
        from ..lifecycle.reschedule import reschedule_job

        reschedule_job(self, run_at=run_at, delay=delay)

    async def areschedule(
        self,
        run_at: datetime | None = None,
        *,
        delay: timedelta | float | None = None,
    ) -> None:
        """See reschedule()."""
        await sync_to_async(self.reschedule)(run_at, delay=delay)

    def change(self, *, priority: int | None = None, queue: str | None = None) -> None:
        """Give a waiting job another priority or queue. Raises JobNotWaiting."""
        from ..lifecycle.reschedule import change_job

        change_job(self, priority=priority, queue=queue)

    async def achange(
        self, *, priority: int | None = None, queue: str | None = None
    ) -> None:
        """See change()."""
        await sync_to_async(self.change)(priority=priority, queue=queue)

    def enqueue_again(self) -> Job:
        """Enqueue a copy of this ended job and return it. Raises JobNotEnded.

        Same job type, payload, arguments and options; due now, without unique key.
        """
        from ..lifecycle.enqueue_again import enqueue_again

        return enqueue_again(self)

    async def aenqueue_again(self) -> Job:
        """See enqueue_again()."""
        return await sync_to_async(self.enqueue_again)()

    def wait(self, timeout: timedelta | float | None = None) -> Job:
        """Return this job once it has ended.

        Raises WaitTimeout, JobDead with the error, ResultsNotKept when it was pruned,
        and WaitInTransaction at once inside atomic().
        """
        from ..storage.wait import wait_for_end

        return wait_for_end(self, timeout)

    async def await_end(self, timeout: timedelta | float | None = None) -> Job:
        """See wait()."""
        from ..storage.wait import await_end

        return await await_end(self, timeout)
