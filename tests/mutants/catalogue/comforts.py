"""What a worker does by itself: scaling, reloading, its end, its signs of life."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

CREW = "tests/worker/test_crew.py"
SIGNS = "tests/worker/test_signs.py"

COMFORTS = [
    Mutant(
        "old-and-new-code-run-side-by-side",
        "After a change of code nothing is started before the old ones have ended.",
        [
            Edit(
                "django_jobqueue/worker/crew.py",
                "if self.is_held_back or (self._is_changing_over and self._leaving):",
                "if self.is_held_back:",
            )
        ],
        tests=[f"{CREW}::test_change_over_starts_nobody_before_the_last_has_ended"],
        database="sqlite",
    ),
    Mutant(
        "busy-processes-go-first",
        "Those with the least to do are let go.",
        [
            Edit(
                "django_jobqueue/worker/crew.py",
                "sorted(self._seats, key=Seat.count_running)",
                "list(self._seats)",
            )
        ],
        tests=[f"{CREW}::test_those_with_the_least_to_do_go"],
        database="sqlite",
    ),
    Mutant(
        "idle-processes-go-at-once",
        "Processes are let go only if fewer have been enough for a while.",
        [
            Edit(
                "django_jobqueue/worker/scaling.py",
                "(UP_AFTER if is_up else self._down_after)",
                "UP_AFTER",
            )
        ],
        tests=[
            "tests/worker/test_scaling.py"
            "::test_idle_processes_go_after_a_while_and_not_before"
        ],
        database="sqlite",
    ),
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
    Mutant(
        "embedded-worker-outlives-its-web-process",
        "A worker drains when the web process that started it is gone.",
        [
            Edit(
                "django_jobqueue/worker/supervisor.py",
                "if is_orphan and not self.is_stopping:",
                "if False and is_orphan:",
            )
        ],
        tests=[
            "tests/integration/test_comforts.py"
            "::test_no_job_is_lost_when_a_web_process_is_killed"
        ],
        database="sqlite",
    ),
]
