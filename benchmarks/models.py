"""The table that the `write` job writes to."""

from django.db import models


class Written(models.Model):
    """One row for each run."""

    text = models.TextField()

    class Meta:
        app_label = "benchmarks"

    def __str__(self) -> str:
        return self.text
