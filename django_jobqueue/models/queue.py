"""Queue: the names of queues that workers have found. A queue exists once used."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from .record import get_alias


class QueueManager(models.Manager["Queue"]):
    def get_queryset(self) -> models.QuerySet[Queue]:
        return models.QuerySet(self.model, using=self._db or get_alias())


class Queue(models.Model):
    """A known queue."""

    name = models.CharField(_("name"), max_length=64, primary_key=True)
    first_seen_at = models.DateTimeField(_("first seen at"), db_default=Now())

    objects: ClassVar[QueueManager] = QueueManager()

    class Meta:
        app_label = "jobqueue"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")

    def __str__(self) -> str:
        return self.name
