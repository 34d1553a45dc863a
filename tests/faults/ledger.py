"""The ledger that jobs write, read back: which claims of a job began, which ended.

Written by tests/testapp/ledgered.py, one line in one write, so that a line is whole or
not there however its process ended.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID


@dataclass(slots=True)
class Story:
    """What one job did, by the fences of its claims, in the order it happened."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


def read_ledger(ledger: Path) -> dict[UUID, Story]:
    """Return the story of each job that ever began."""
    stories: dict[UUID, Story] = defaultdict(Story)
    for line in _read_lines(ledger):
        word, id, fence = line.split()
        story = stories[UUID(id)]
        (story.starts if word == "start" else story.ends).append(int(fence))
    return stories


def measure_ledger(ledger: Path) -> int:
    """Return the bytes written so far: they grow as jobs begin and end."""
    return ledger.stat().st_size if ledger.exists() else 0


def _read_lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []
