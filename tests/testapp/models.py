"""What the handlers of the tests write, so that effects can be counted."""

from django.db import models


class Effect(models.Model):
    """One visible effect of a job."""

    name = models.CharField(max_length=200)
    job_id = models.UUIDField(null=True)

    def __str__(self) -> str:
        return self.name
