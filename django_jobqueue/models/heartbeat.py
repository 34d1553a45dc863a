"""WorkerHeartbeat: one row for each worker process, updated every few seconds."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import JSONField
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..states import WorkerState
from .record import get_alias


class WorkerHeartbeatManager(models.Manager["WorkerHeartbeat"]):
    def get_queryset(self) -> models.QuerySet[WorkerHeartbeat]:
        return models.QuerySet(self.model, using=self._db or get_alias())


class WorkerHeartbeat(models.Model):
    """A worker, under a UUID made anew at each start.

    A worker that exits cleanly deletes its row, last. The row of a dead one stays until
    its jobs are rescued and an hour has passed.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    host = models.CharField(_("host"), max_length=255, db_default="")
    pid = models.IntegerField(_("pid"), db_default=0)
    name = models.CharField(_("name"), max_length=200, blank=True, db_default="")
    # {"name": weight}; none with a weight above 0: all queues but those with 0.
    queues = JSONField(
        _("queues"), default=dict, db_default=models.Value({}, JSONField())
    )
    concurrency = models.IntegerField(_("concurrency"), db_default=0)
    version = models.CharField(_("version"), max_length=50, db_default="")
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    last_seen_at = models.DateTimeField(_("last seen at"), db_default=Now())
    # Since when it has not missed a beat: only such a worker may rescue others.
    beating_since = models.DateTimeField(_("beating since"), db_default=Now())
    state = models.CharField(
        _("state"),
        max_length=16,
        choices=WorkerState.choices,
        db_default=WorkerState.RUNNING,
    )
    processed = models.BigIntegerField(_("processed"), db_default=0)
    failed = models.BigIntegerField(_("failed"), db_default=0)
    running = models.IntegerField(_("running"), db_default=0)
    # Resident bytes.
    memory = models.BigIntegerField(_("memory"), db_default=0)

    objects: ClassVar[WorkerHeartbeatManager] = WorkerHeartbeatManager()

    class Meta:
        app_label = "jobqueue"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return self.name or f"{self.host}:{self.pid}"

    def serves(self, queue: str) -> bool:
        """Tell whether this worker takes jobs of that queue."""
        weights = self.queues if isinstance(self.queues, dict) else {}
        if any(weights.values()):
            return bool(weights.get(queue))
        return queue not in weights

    def label_queues(self) -> list[str]:
        """Return its queues as people write them: `high:4`, `low`, `-excluded`."""
        if not isinstance(self.queues, dict):
            return [str(self.queues)]
        return sorted(_label(name, weight) for name, weight in self.queues.items())


def _label(name: str, weight: object) -> str:
    if weight == 0:
        return f"-{name}"
    return name if weight == 1 else f"{name}:{weight}"
