"""The handlers that are measured."""

from __future__ import annotations

from django_jobqueue import job


@job
def nothing() -> None:
    """Succeed at once."""
