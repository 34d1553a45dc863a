"""Uniqueness: the index decides, an end frees the key, requeue loses nothing."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

ENQUEUE = "django_jobqueue/lifecycle/enqueue.py"
SUCCEEDED = "django_jobqueue/lifecycle/finish_succeeded.py"
MOVED = "django_jobqueue/lifecycle/finish_moved.py"
TESTS = "tests/lifecycle/test_finish.py"
KEPT_KEY = """\
            unique_key = CASE
                WHEN ended.status IN ('pending', 'scheduled') THEN job.unique_key
            END,
"""

KEYS = [
    Mutant(
        "enqueue-selects-before-it-inserts",
        "The index decides about a unique key, not a SELECT before the INSERT.",
        [
            Edit(
                ENQUEUE,
                "        try:\n            job = insert(db, new, options, now)\n",
                "        job = _find_existing(db, new)\n"
                "        if job is not None:\n"
                "            return job\n"
                "        try:\n            job = insert(db, new, options, now)\n",
            ),
            Edit(ENQUEUE, "    ON CONFLICT DO NOTHING\n", "", count=2, nth=2),
        ],
        tests=[
            "tests/lifecycle/test_enqueue.py"
            "::test_loser_of_a_race_finds_what_the_winner_committed"
        ],
    ),
    Mutant(
        "success-keeps-its-key",
        "The transition that ends a job frees its unique key.",
        [Edit(SUCCEEDED, "        unique_key = NULL,\n", "")],
        tests=[f"{TESTS}::test_a_success_keeps_the_result_and_frees_the_key"],
    ),
    Mutant(
        "portable-success-keeps-its-key",
        "The portable finish frees the unique key too.",
        [
            Edit(
                "django_jobqueue/lifecycle/portable/finish_succeeded.py",
                '        "unique_key": None,\n',
                "",
            ),
            # One alone is corrected by the other: a CHECK refuses the first.
            Edit(
                "django_jobqueue/lifecycle/portable/finish_moved.py",
                '{"unique_key": None, "finished_at": now',
                '{"finished_at": now',
            ),
        ],
        tests=[f"{TESTS}::test_a_success_keeps_the_result_and_frees_the_key"],
        database="sqlite",
    ),
    Mutant(
        "cancelled-attempt-keeps-its-key",
        "The transition that ends a job frees its unique key.",
        [Edit(MOVED, KEPT_KEY, "")],
        tests=[f"{TESTS}::test_a_cancelled_attempt_ends_the_job"],
    ),
    Mutant(
        "retry-loses-its-key",
        "A job that has not ended keeps its unique key.",
        [Edit(MOVED, KEPT_KEY, "            unique_key = NULL,\n")],
        tests=[f"{TESTS}::test_a_retry_waits_for_its_time_and_keeps_the_key"],
    ),
    Mutant(
        "requeue-deletes-what-stays-dead",
        "Requeue deletes exactly the dead jobs that it requeued.",
        [
            Edit(
                "django_jobqueue/lifecycle/requeue.py",
                "rows.filter(pk__in=inserted).delete()",
                "rows.filter(pk__in=ids).delete()",
            )
        ],
        tests=[
            "tests/lifecycle/test_requeue.py"
            "::test_a_job_whose_key_is_in_use_stays_dead_and_is_reported"
        ],
        database="sqlite",
    ),
]
