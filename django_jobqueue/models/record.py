"""JobRecord: the columns that Job and DeadJob share."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID, SafeUUID

from django.db import models
from django.db.models import JSONField
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..options import get_options
from ..registry import find_max_attempts

_lock = threading.Lock()
_last_tick = 0
# Read in bulk, since each read is a system call; used from the end.
_randomness = b""


def make_id() -> UUID:
    """Return a UUIDv7; those of one process sort in the order they were made."""
    global _last_tick, _randomness
    with _lock:
        # Milliseconds and 12 bits of their fraction (RFC 9562, 6.2 method 3).
        _last_tick = tick = max(_last_tick + 1, time.time_ns() * 4096 // 1_000_000)
        if not _randomness:
            _randomness = os.urandom(1024)
        chance, _randomness = _randomness[-8:], _randomness[:-8]
    high = (tick >> 12) << 16 | 0x7000 | (tick & 0xFFF)
    low = 0b10 << 62 | int.from_bytes(chance) >> 2
    # Past its constructor, which takes longer than all of the above.
    id = object.__new__(UUID)
    object.__setattr__(id, "int", high << 64 | low)
    object.__setattr__(id, "is_safe", SafeUUID.unknown)
    return id


def _forget_randomness() -> None:
    global _lock, _randomness
    # A thread that the child does not have may hold the old lock.
    _lock = threading.Lock()
    _randomness = b""


# Two processes must not go on with the same bytes.
os.register_at_fork(after_in_child=_forget_randomness)


def get_alias() -> str:
    """Return the alias of the database that holds the jobs."""
    return get_options().database


class JobRecord(models.Model):
    """The columns a job keeps from its enqueue to its death and its requeue.

    Every NOT NULL column has a db_default, since rows also come by COPY, from SQL, and
    from the previous release. The id is the exception: the INSERT must give it.
    """

    id = models.UUIDField(primary_key=True, default=make_id, editable=False)
    job_type = models.CharField(_("job type"), max_length=200, db_default="")
    queue = models.CharField(_("queue"), max_length=64, db_default="default")
    payload = JSONField(
        _("payload"), default=dict, db_default=models.Value({}, JSONField())
    )
    # Positional arguments; only jobs of django.tasks have them.
    args = JSONField(
        _("arguments"), default=list, db_default=models.Value([], JSONField())
    )
    # From -100 to 100, higher first.
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    run_at = models.DateTimeField(_("run at"), db_default=Now())
    # Attempts that count; the budgets beside it are of crashes, losses and returns.
    attempts = models.IntegerField(_("attempts"), db_default=0)
    # NULL here, in timeout and in backoff: the handler decides when the job runs.
    max_attempts = models.IntegerField(_("max attempts"), null=True, blank=True)
    crashes = models.IntegerField(_("crashes"), db_default=0)
    lost = models.IntegerField(_("lost"), db_default=0)
    given_back = models.IntegerField(_("given back"), db_default=0)
    # +1 at each claim and whenever a job is taken away; never goes down.
    lease_token = models.BigIntegerField(_("lease token"), db_default=0)
    finished_by = models.UUIDField(_("finished by"), null=True, blank=True)
    timeout = models.DurationField(_("timeout"), null=True, blank=True)
    backoff = JSONField(_("backoff"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    claimed_at = models.DateTimeField(_("claimed at"), null=True, blank=True)
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    unknown_since = models.DateTimeField(_("unknown since"), null=True, blank=True)
    # Suspected of killing its process: runs alone in one next time.
    isolate = models.BooleanField(_("isolate"), db_default=False)
    # The last one, in short; Attempt has them all.
    error = models.TextField(_("error"), blank=True, db_default="")
    unique_key = models.CharField(  # noqa: DJ001
        _("unique key"), max_length=255, null=True, blank=True
    )
    concurrency_key = models.CharField(  # noqa: DJ001
        _("concurrency key"), max_length=255, null=True, blank=True
    )
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    progress = JSONField(_("progress"), null=True, blank=True)
    tags = JSONField(
        _("tags"), default=list, blank=True, db_default=models.Value([], JSONField())
    )
    meta = JSONField(
        _("meta"), default=dict, blank=True, db_default=models.Value({}, JSONField())
    )

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.job_type} {self.pk}"

    @property
    def most_attempts(self) -> int:
        """How many attempts it has: as the job, its handler or the setting says."""
        return find_max_attempts(self.job_type, self.max_attempts, get_options())


# The one list of a job's columns: those that Job and DeadJob share.
COLUMNS = [field.attname for field in JobRecord._meta.fields]
