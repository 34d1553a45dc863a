"""Attempt: one run of a job. Append-only, one row for each claim that left a trace."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..states import AttemptOutcome
from .record import get_alias


class AttemptManager(models.Manager["Attempt"]):
    def get_queryset(self) -> models.QuerySet[Attempt]:
        return models.QuerySet(self.model, using=self._db or get_alias())


class Attempt(models.Model):
    """How one attempt ended.

    There is a row for each attempt that did not succeed, and for the success of a job
    that has such rows; a job that succeeds at once leaves none. No foreign key: the job
    may be a Job or a DeadJob. Prune deletes the rows with their job.
    """

    job_id = models.UUIDField(_("job"))
    lease_token = models.BigIntegerField(_("lease token"), db_default=0)
    # The attempt's number, from 1; the same again after one that was given back.
    number = models.IntegerField(_("number"), db_default=1)
    worker_id = models.UUIDField(_("worker"), null=True, blank=True)
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), db_default=Now())
    outcome = models.CharField(
        _("outcome"),
        max_length=20,
        choices=AttemptOutcome.choices,
        db_default=AttemptOutcome.FAILED,
    )
    exception_class = models.CharField(
        _("exception"), max_length=200, blank=True, db_default=""
    )
    message = models.TextField(_("message"), blank=True, db_default="")
    traceback = models.TextField(_("traceback"), blank=True, db_default="")

    objects: ClassVar[AttemptManager] = AttemptManager()

    class Meta:
        app_label = "jobqueue"
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        constraints = (
            models.UniqueConstraint(
                fields=["job_id", "lease_token"], name="jobqueue_attempt_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.number} {self.outcome}"
