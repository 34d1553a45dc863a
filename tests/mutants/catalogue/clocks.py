"""Rule 3: database time only. A process whose clock is wrong does no harm."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

RULE = "Time is the database's: a process whose clock is wrong moves nothing early."
NOW = "now or datetime.now().astimezone()"


def use_own_clock(name: str, file: str, old: str, test: str) -> Mutant:
    """Let one arrow take the time of its process; `old` ends with the time it takes."""
    assert old.endswith("now")
    return Mutant(
        f"{name}-by-the-applications-clock",
        RULE,
        [Edit(f"django_jobqueue/lifecycle/{file}", old, old[: -len("now")] + NOW)],
        tests=[f"tests/lifecycle/test_clock.py::{test}"],
    )


CLOCKS = [
    use_own_clock(
        "enqueue",
        "enqueue.py",
        '        "aging": aging,\n        "now": now',
        "test_a_job_is_enqueued_at_the_databases_time",
    ),
    use_own_clock(
        "promotion",
        "promote.py",
        '"aging": count_microseconds(aging), "now": now',
        "test_a_job_is_promoted_when_the_database_says_it_is_due",
    ),
    use_own_clock(
        "claim",
        "claim.py",
        '        "worker_id": worker_id,\n        "now": now',
        "test_a_claim_bears_the_databases_time",
    ),
    use_own_clock(
        "finish",
        "finish.py",
        '    shared = {"worker_id": worker_id, "now": now',
        "test_an_end_bears_the_databases_time",
    ),
    use_own_clock(
        "beat",
        "beat.py",
        '        "now": now',
        "test_a_beat_bears_the_databases_time",
    ),
    Mutant(
        "rescue-by-the-applications-clock",
        RULE,
        [
            # For both looks: one alone is made good by the other.
            Edit(
                "django_jobqueue/lifecycle/rescue.py",
                "    silent = find_silent_workers(",
                f"    now = {NOW}\n    silent = find_silent_workers(",
            )
        ],
        tests=[
            "tests/lifecycle/test_clock.py"
            "::test_a_worker_is_silent_when_the_database_says_so"
        ],
    ),
    Mutant(
        "portable-arrows-by-the-applications-clock",
        "The portable versions ask the database for the time where it has one.",
        [
            Edit(
                "django_jobqueue/lifecycle/database.py",
                '        if connections[self.alias].vendor != "postgresql":\n'
                "            return timezone.now()\n",
                "        if True:\n            return timezone.now()\n",
            )
        ],
        tests=[
            "tests/lifecycle/test_clock.py"
            "::test_a_job_is_pruned_when_the_database_says_so"
        ],
    ),
]
