"""Health means progress; one attempt is one start, however its process ends."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

HEALTH = "tests/worker/health/test_progress.py"

PROGRESS = [
    Mutant(
        "exit-code-zero-counts-as-an-end",
        "An exit that the child has not announced is a crash, whatever its code.",
        [
            Edit(
                "django_jobqueue/worker/supervision/deaths.py",
                "cause = None if has_ended else describe_exit(code)",
                "cause = None if code == 0 else describe_exit(code)",
            )
        ],
        tests=[
            "tests/faults/test_early_exits.py"
            "::test_exit_with_code_zero_inside_a_handler_is_a_crash"
        ],
    ),
    Mutant(
        "outage-looks-like-a-stuck-loop",
        "While the database is down no loop counts as stuck.",
        [
            Edit(
                "django_jobqueue/worker/health/progress.py",
                "max(loop.stalled_since, self._counted_from)",
                "loop.stalled_since",
            )
        ],
        tests=[f"{HEALTH}::test_an_outage_of_the_database_is_no_reason"],
        database="sqlite",
    ),
    Mutant(
        "blocked-log-is-not-seen",
        "A worker that cannot log is unhealthy.",
        [
            Edit(
                "django_jobqueue/worker/health/progress.py",
                "            if not _can_acquire(lock):\n",
                "            if False:\n",
            )
        ],
        tests=[
            f"{HEALTH}::test_a_log_handler_whose_lock_cannot_be_acquired_is_a_stall"
        ],
        database="sqlite",
    ),
    Mutant(
        "one-attempt-starts-again-after-a-kill",
        "A job of one attempt that has started does not start again.",
        [
            Edit(
                "django_jobqueue/worker/supervision/child_endings.py",
                "if is_kept or (is_last and not death.is_shutdown):",
                "if False:",
            )
        ],
        tests=[
            "tests/worker/supervision/test_supervisor_db.py"
            "::test_a_job_of_one_attempt_that_has_started_does_not_start_again"
        ],
        database="sqlite",
    ),
    Mutant(
        "jobs-begin-without-room-to-keep-them",
        "No job starts while shared memory has no room for a job of one attempt.",
        [
            Edit(
                "django_jobqueue/worker/worker.py",
                "is_full = self.shared_memory is not None "
                "and self.shared_memory.is_full",
                "is_full = False",
            )
        ],
        tests=["tests/worker/test_fence.py"],
        database="sqlite",
    ),
    Mutant(
        "sessions-of-another-server-are-ended",
        "Only sessions of the jobs' database are ended.",
        [
            Edit(
                "django_jobqueue/worker/running/query_cancel.py",
                "ours.get(key) == theirs.get(key)",
                "key in ours and key in theirs",
            )
        ],
        tests=["tests/worker/running/test_query_cancel.py"],
    ),
]
