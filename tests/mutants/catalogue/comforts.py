"""What a worker does by itself: its signs of life."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

SIGNS = "tests/worker/test_signs.py"

COMFORTS = [
    Mutant(
        "ready-without-a-database",
        "A worker that the database has not heard for a TTL is not ready.",
        [
            Edit(
                "django_jobqueue/worker/vitals.py",
                "    elif not vitals.has_database(now, ttl=ttl):\n",
                "    elif False:\n",
            )
        ],
        tests=[f"{SIGNS}::test_a_beat_older_than_the_ttl_is_not_ready"],
        database="sqlite",
    ),
    Mutant(
        "watchdog-fed-by-a-stuck-worker",
        "The watchdog hears nothing while a loop is stuck.",
        [
            Edit(
                "django_jobqueue/worker/signs.py",
                "            if not vitals.stuck:\n",
                "            if True:\n",
            )
        ],
        tests=[f"{SIGNS}::test_watchdog_hears_nothing_while_a_loop_is_stuck"],
        database="sqlite",
    ),
]
