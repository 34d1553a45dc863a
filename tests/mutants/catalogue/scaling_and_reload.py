"""What a worker does by itself: scaling, reloading, stopping, reporting health."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

POOL = "tests/worker/supervision/test_process_pool.py"
REPORTER = "tests/worker/health/test_reporter.py"

SCALING_AND_RELOAD = [
    Mutant(
        "old-and-new-code-run-side-by-side",
        "After a change of code no process starts before the old ones have ended.",
        [
            Edit(
                "django_jobqueue/worker/supervision/process_pool.py",
                "if self.is_held_back or (self._is_changing_over and self._leaving):",
                "if self.is_held_back:",
            )
        ],
        tests=[f"{POOL}::test_change_over_starts_no_child_before_the_last_has_ended"],
        database="sqlite",
    ),
    Mutant(
        "busy-processes-stop-first",
        "Scaling down stops the processes with the fewest running jobs.",
        [
            Edit(
                "django_jobqueue/worker/supervision/process_pool.py",
                "sorted(self._slots, key=ProcessSlot.count_running)",
                "list(self._slots)",
            )
        ],
        tests=[f"{POOL}::test_children_with_the_fewest_running_jobs_retire"],
        database="sqlite",
    ),
    Mutant(
        "idle-processes-stop-at-once",
        "Scaling down stops processes only if fewer have sufficed for a while.",
        [
            Edit(
                "django_jobqueue/worker/supervision/scaling.py",
                "(UP_AFTER_SECONDS if is_up else self._down_after)",
                "UP_AFTER_SECONDS",
            )
        ],
        tests=[
            "tests/worker/supervision/test_scaling.py"
            "::test_idle_processes_go_after_a_while_and_not_before"
        ],
        database="sqlite",
    ),
    Mutant(
        "ready-without-a-database",
        "A worker without a confirmed heartbeat for a TTL is not ready.",
        [
            Edit(
                "django_jobqueue/worker/health/status.py",
                "    elif not status.has_database(now, ttl=ttl):\n",
                "    elif False:\n",
            )
        ],
        tests=[f"{REPORTER}::test_a_beat_older_than_the_ttl_is_not_ready"],
        database="sqlite",
    ),
    Mutant(
        "watchdog-fed-by-a-stuck-worker",
        "The watchdog is not notified while a loop is stuck.",
        [
            Edit(
                "django_jobqueue/worker/health/reporter.py",
                "            if not status.stuck:\n",
                "            if True:\n",
            )
        ],
        tests=[f"{REPORTER}::test_watchdog_is_not_fed_while_a_loop_is_stuck"],
        database="sqlite",
    ),
    Mutant(
        "embedded-worker-outlives-its-web-process",
        "A worker drains when the web process that started it has exited.",
        [
            Edit(
                "django_jobqueue/worker/supervision/supervisor.py",
                "if is_orphan and not self.is_stopping:",
                "if False and is_orphan:",
            )
        ],
        tests=[
            "tests/integration/test_embedded.py"
            "::test_no_job_is_lost_when_a_web_process_is_killed"
        ],
        database="sqlite",
    ),
]
