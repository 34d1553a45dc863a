"""Rule 3: database time only. A process with a wrong clock does no harm."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

RULE = "Only database time counts: a process with a wrong clock moves nothing early."
NOW = "now or datetime.now().astimezone()"


def use_own_clock(name: str, file: str, old: str, test: str) -> Mutant:
    """Make one transition use the clock of its process; `old` ends with its time."""
    assert old.endswith("now")
    return Mutant(
        f"{name}-by-the-applications-clock",
        RULE,
        [Edit(f"django_jobqueue/{file}", old, old[: -len("now")] + NOW)],
        tests=[f"tests/lifecycle/test_clock.py::{test}"],
    )


CLOCKS = [
    use_own_clock(
        "enqueue",
        "lifecycle/enqueue.py",
        '        "aging": aging,\n        "now": now',
        "test_a_job_is_enqueued_at_the_databases_time",
    ),
    use_own_clock(
        "promotion",
        "lifecycle/promote.py",
        '        "passed": list(passed),\n        "now": now',
        "test_a_job_is_promoted_when_the_database_says_it_is_due",
    ),
    use_own_clock(
        "claim",
        "lifecycle/claim.py",
        '        "worker_id": worker_id,\n        "now": now',
        "test_a_claim_bears_the_databases_time",
    ),
    use_own_clock(
        "finish",
        "lifecycle/finish.py",
        '        "worker_id": worker_id,\n        "now": now',
        "test_an_end_bears_the_databases_time",
    ),
    use_own_clock(
        "beat",
        "storage/worker_rows.py",
        '        "now": now',
        "test_a_beat_bears_the_databases_time",
    ),
    Mutant(
        "rescue-by-the-applications-clock",
        RULE,
        [
            # Both checks: one alone is corrected by the other.
            Edit(
                "django_jobqueue/lifecycle/rescue.py",
                "    report = RescueReport()\n    for",
                f"    now = {NOW}\n    report = RescueReport()\n    for",
            )
        ],
        tests=[
            "tests/lifecycle/test_clock.py"
            "::test_a_worker_is_silent_when_the_database_says_so"
        ],
    ),
    Mutant(
        "portable-transitions-by-the-applications-clock",
        "The portable versions use the clock of the database if it has one.",
        [
            Edit(
                "django_jobqueue/storage/database.py",
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
