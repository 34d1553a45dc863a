"""DeadJob: the dead letter queue. A job stays here until it is requeued."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..states import DeadReason
from .record import JobRecord, get_alias

if TYPE_CHECKING:
    from ..lifecycle.requeue import RequeueCounts
    from .job import Job


class DeadJobQuerySet(models.QuerySet["DeadJob"]):
    def requeue(
        self,
        *,
        reset_attempts: bool = True,
        payload: dict[str, Any] | None = None,
        run_at: datetime | None = None,
        delay: timedelta | float | None = None,
    ) -> RequeueCounts:
        """Make live jobs of these dead ones, in bounded batches.

        A job whose unique key is in use stays dead and is counted in `key_in_use`.
        `reset_attempts=False` gives one more attempt.
        """
        from ..lifecycle.requeue import requeue_jobs

        return requeue_jobs(
            self,
            reset_attempts=reset_attempts,
            payload=payload,
            run_at=run_at,
            delay=delay,
        )

    async def arequeue(self, **options: Any) -> RequeueCounts:
        """See requeue()."""
        return await sync_to_async(self.requeue)(**options)


class DeadJobManager(models.Manager.from_queryset(DeadJobQuerySet)):  # type: ignore[misc]
    """`DeadJob.objects`: always the database of JOBQUEUE["DATABASE"]."""

    def get_queryset(self) -> DeadJobQuerySet:
        return DeadJobQuerySet(self.model, using=self._db or get_alias())


class DeadJob(JobRecord):
    """A job that does not run again unless it is requeued."""

    reason = models.CharField(
        _("reason"),
        max_length=20,
        choices=DeadReason.choices,
        db_default=DeadReason.EXCEPTION,
    )
    died_at = models.DateTimeField(_("died at"), db_default=Now())
    # Of the error: the same bug has the same fingerprint, whatever its message says.
    fingerprint = models.CharField(
        _("fingerprint"), max_length=32, blank=True, db_default=""
    )

    objects = DeadJobManager()

    class Meta:
        app_label = "jobqueue"
        verbose_name = _("dead job")
        verbose_name_plural = _("dead jobs")
        permissions = (("requeue_deadjob", "Can requeue dead job"),)
        indexes = (
            models.Index(fields=["died_at"], name="jobqueue_deadjob_died"),
            models.Index(fields=["fingerprint"], name="jobqueue_deadjob_fingerprint"),
        )
        constraints = (
            models.CheckConstraint(
                name="jobqueue_deadjob_reason",
                condition=models.Q(reason__in=DeadReason.values),
            ),
        )

    def requeue(self, **options: Any) -> Job | None:
        """Make a live job of this one; see DeadJobQuerySet.requeue() for the options.

        Returns None if it is gone already, or if its unique key is in use.
        """
        from ..lifecycle.requeue import requeue_job

        return requeue_job(self, **options)

    async def arequeue(self, **options: Any) -> Job | None:
        """See requeue()."""
        return await sync_to_async(self.requeue)(**options)
