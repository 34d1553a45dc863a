"""Rule 6: no statement waits while it holds rows; every statement is bounded."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

HELD = "tests/races/test_locked_rows.py"
END = f"{HELD}::test_a_held_row_keeps_no_other_end_from_being_written"
RESCUED = "tests/races/test_rescue.py::test_a_worker_whose_row_is_held_keeps_its_jobs"

UPDATES = "FOR NO KEY UPDATE SKIP LOCKED"
DELETES = "FOR UPDATE SKIP LOCKED"


def wait_for_rows(
    name: str, file: str, clause: str, test: str, *, count: int = 1, nth: int = 1
) -> Mutant:
    new = clause.replace(" SKIP LOCKED", "")
    edit = Edit(f"django_jobqueue/{file}", clause, new, count=count, nth=nth)
    return Mutant(
        f"{name}-waits-for-locked-rows",
        "A row that another session has locked does not delay the batch.",
        [edit],
        tests=[test],
    )


LOCKS = [
    wait_for_rows(
        "claim",
        "lifecycle/claim.py",
        UPDATES,
        f"{HELD}::test_claim_skips_jobs_locked_by_another_worker",
        count=3,
    ),
    wait_for_rows(
        "promotion",
        "lifecycle/promote.py",
        UPDATES,
        f"{HELD}::test_promote_passes_over_a_held_row",
    ),
    wait_for_rows(
        "success",
        "lifecycle/finish_succeeded.py",
        UPDATES,
        f"{HELD}::test_one_held_row_of_200_is_finished_with_the_next_batch",
    ),
    wait_for_rows("move", "lifecycle/finish_moved.py", UPDATES, END),
    wait_for_rows("deletion", "lifecycle/finish_succeeded.py", DELETES, END),
    wait_for_rows("death", "lifecycle/finish_died.py", DELETES, END),
    wait_for_rows("rescue", "lifecycle/rescue.py", UPDATES, RESCUED),
    wait_for_rows(
        "progress",
        "storage/progress.py",
        UPDATES,
        f"{HELD}::test_progress_passes_over_a_held_row",
    ),
    Mutant(
        "atomic-end-skips-its-locked-row",
        "An atomic job waits for its row: to skip it would roll back its work.",
        [
            Edit(
                "django_jobqueue/lifecycle/finish.py",
                "    FOR NO KEY UPDATE\n",
                "    FOR NO KEY UPDATE SKIP LOCKED\n",
            )
        ],
        tests=[
            f"{HELD}::test_the_end_of_an_atomic_job_waits_for_whoever_holds_its_row"
        ],
    ),
    Mutant(
        "promotion-limits-in-a-subquery",
        "A LIMIT on locked rows is in a MATERIALIZED CTE, else it may be exceeded.",
        [
            Edit(
                "django_jobqueue/lifecycle/promote.py",
                """\
    WITH due AS MATERIALIZED (
        SELECT id
        FROM jobqueue_job
        WHERE
            status = 'scheduled'
            AND run_at <= (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))
            AND id <> ALL(%(passed)s::uuid[])
        ORDER BY run_at
        LIMIT %(limit)s::integer
        FOR NO KEY UPDATE SKIP LOCKED
    )
""",
                "",
            ),
            Edit(
                "django_jobqueue/lifecycle/promote.py",
                "        job.id = ANY(ARRAY(SELECT id FROM due))\n",
                """\
        job.id IN (
            SELECT id
            FROM jobqueue_job
            WHERE
                status = 'scheduled'
                AND run_at <= (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))
            ORDER BY run_at
            LIMIT %(limit)s::integer
            FOR NO KEY UPDATE SKIP LOCKED
        )
""",
            ),
        ],
        tests=["tests/lifecycle/test_statements.py"],
        database="sqlite",
    ),
    Mutant(
        "promotion-without-a-limit",
        "Every statement that moves rows is bounded.",
        [
            Edit(
                "django_jobqueue/lifecycle/promote.py",
                "        LIMIT %(limit)s::integer\n",
                "",
            )
        ],
        tests=[
            "tests/lifecycle/test_promote.py"
            "::test_promote_takes_the_longest_due_first_and_no_more_than_its_limit"
        ],
    ),
    Mutant(
        "notify-inside-the-transaction",
        "NOTIFY is sent after the commit: inside, commits would wait for each other.",
        [
            Edit(
                "django_jobqueue/storage/notify.py",
                "transaction.on_commit(notice, using=alias, robust=True)",
                "notice()",
            )
        ],
        tests=[
            "tests/storage/test_notify.py"
            "::test_notification_is_no_part_of_the_callers_transaction"
        ],
    ),
    Mutant(
        "sqlite-without-immediate-transactions",
        "On SQLite a worker's transactions are IMMEDIATE, to avoid lock errors.",
        [
            Edit(
                "django_jobqueue/worker/worker.py",
                "use_immediate_transactions(self.options.database)",
                "pass",
            )
        ],
        tests=[
            "tests/integration/test_many_workers.py"
            "::test_four_workers_share_a_sqlite_file_and_never_find_it_locked"
        ],
        database="sqlite",
    ),
]
