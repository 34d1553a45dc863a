"""Targets: ratios within one run, or absolute numbers of our system.

Each bar compares one number with another of the same run, or with a constant.
report.py prints them with the measured values; a bar without numbers is "not
measured".
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.catalog import LIMIT, OURS

# (measure, system, name of the number; "" is the first)
Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """`place`, divided by `other` if given, must be within the limit."""

    text: str
    place: Place
    other: Place | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def wanted(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}"

    def is_reached(self, value: float) -> bool:
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most


def against(
    measure: str,
    theirs: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    number: str = "",
    ours: str = OURS,
) -> Bar:
    """Return a bar for our number divided by theirs."""
    return Bar(
        text=f"{measure}{' ' + number if number else ''}: {ours} / {theirs}",
        place=(measure, ours, number),
        other=(measure, theirs, number),
        at_least=at_least,
        at_most=at_most,
    )


def alone(
    measure: str,
    number: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    ours: str = OURS,
) -> Bar:
    """Return a bar for one number of our system."""
    return Bar(
        text=f"{measure}: {ours}, {number}",
        place=(measure, ours, number),
        at_least=at_least,
        at_most=at_most,
    )


BARS = (
    against("drain", LIMIT, at_least=0.6),
    against("drain", "pgqueuer", at_least=1.5),
    against("drain", "oban", at_least=8),
    against("drain", "celery", at_least=15),
    against("drain", "procrastinate", at_least=30),
    against("drain", "django_tasks_db", at_least=30),
    against("drain", "graphile", at_least=1, ours="jobqueue_unkept"),
    Bar(
        text="two processes / one",
        place=("drain-two", OURS, ""),
        other=("drain", OURS, ""),
        at_least=1,
    ),
    against("drain-two", LIMIT, at_least=0.5),
    against("enqueue", LIMIT, at_least=0.85),
    against("enqueue-together", LIMIT, at_least=0.5),
    against("enqueue-bulk", "copy_rows", at_least=0.3),
    against("enqueue-bulk", "graphile", at_least=1.5),
    against("enqueue-bulk", "pgqueuer", at_least=1.5),
    against("latency", "graphile", at_most=1, number="p50 ms"),
    against("latency", "graphile", at_most=1, number="p99 ms"),
    against("latency", "oban", at_most=1, number="p50 ms"),
    against("latency", "oban", at_most=1, number="p99 ms"),
    # Half of the poll interval, 1 s, and 5 ms.
    alone("sqlite-latency", "p50 ms", at_most=505, ours="jobqueue_sqlite"),
    alone("history", "of empty", at_least=0.9),
    alone("others", "of empty", at_least=0.9),
    alone("backlog", "last of first", at_least=0.9),
    alone("pinned", "last of first", at_least=0.8),
    alone("pinned", "of unpinned", at_least=0.7),
    alone("urgent", "p90 ms", at_most=100),
    alone("sleep", "jobs/s", at_least=4_500),
    alone("coroutines", "jobs/s", at_least=45_000),
    alone("idle", "queries/s", at_most=0.3),
    alone("idle", "CPU %", at_most=0.5),
    alone("start", "of shell", at_most=3),
    alone("import", "added ms", at_most=50),
    alone("memory", "growth MB", at_most=5),
    alone("memory", "beyond Django MB", at_most=80),
    against("sqlite", "huey_sqlite", at_least=1, ours="jobqueue_sqlite"),
)
