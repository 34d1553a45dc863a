"""Seeded bugs in what keeps hostile notifications, rows and receivers harmless."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

PROMOTER = "django_jobqueue/worker/claiming/promoter.py"

HOSTILE = [
    Mutant(
        "any-queue-name-is-accepted",
        "A notification is checked: names, numbers and shapes.",
        [
            Edit(
                "django_jobqueue/storage/notices.py",
                "is_bigint and QUEUE_NAME.fullmatch(queue) is not None",
                "is_bigint",
            )
        ],
        tests=["tests/storage/test_notices.py::test_nonsense_is_passed_over"],
        database="sqlite",
    ),
    Mutant(
        "useless-wake-ups-are-not-counted",
        "Many notifications do not cause one query each.",
        [
            Edit(
                "django_jobqueue/worker/claiming/inbox.py",
                "max(self._paid_until, now) + USELESS_WAKE_SECONDS",
                "self._paid_until",
            )
        ],
        tests=[
            "tests/worker/claiming/test_claimer.py"
            "::test_a_flood_of_notifications_does_not_cause_a_query_each"
        ],
    ),
    Mutant(
        "locked-due-job-is-tried-without-a-pause",
        "A due job that another session has locked does not make a worker busy.",
        [
            Edit(
                PROMOTER,
                "            self._wait_for_lock()\n",
                "            self.next_due = 0.0\n",
            )
        ],
        tests=[
            "tests/worker/claiming/test_claimer.py"
            "::test_a_due_job_with_a_locked_row_does_not_make_the_loop_spin"
        ],
    ),
    Mutant(
        "slow-sweep-is-repeated",
        "After a sweep that took too long, claims use the cursors again.",
        [
            Edit(
                "django_jobqueue/worker/claiming/sweep.py",
                "self.next_at = now + max(MIN_SWEEP_PAUSE_SECONDS, now - began)",
                "self.next_at = now",
            ),
            Edit(
                "django_jobqueue/worker/claiming/sweep.py",
                "self._parts[:1] = [(middle, high), (low, middle)]",
                "pass",
            ),
        ],
        tests=[
            "tests/worker/claiming/test_claimer.py"
            "::test_after_a_sweep_that_timed_out_jobs_are_claimed_by_the_cursors"
        ],
    ),
    Mutant(
        "dead-job-is-overwritten-by-an-unreadable-one",
        "A job that becomes dead never overwrites a dead job of the same id.",
        [
            Edit(
                "django_jobqueue/lifecycle/unreadable.py",
                "        dead.pk = make_id()\n",
                "        pass\n",
            )
        ],
        tests=[
            "tests/worker/claiming/test_unreadable_jobs.py"
            "::test_a_dead_job_of_the_same_id_is_kept"
        ],
        database="sqlite",
    ),
]
