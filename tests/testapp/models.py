"""The rows that handlers of the tests write, to count their effects."""

from django.db import models


class Effect(models.Model):
    """One visible effect of a job."""

    name = models.CharField(max_length=200)
    job_id = models.UUIDField(null=True)

    def __str__(self) -> str:
        return self.name
