"""Rule 6: no waiting while holding rows; what is bounded stays bounded."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

HELD = "tests/races/test_held_rows.py"
END = f"{HELD}::test_a_held_row_keeps_no_other_end_from_being_written"
RESCUE = f"{HELD}::test_rescue_passes_over_a_held_row"

UPDATES = "FOR NO KEY UPDATE SKIP LOCKED"
DELETES = "FOR UPDATE SKIP LOCKED"


def wait_for_rows(
    name: str, file: str, clause: str, test: str, *, count: int = 1, nth: int = 1
) -> Mutant:
    new = clause.replace(" SKIP LOCKED", "")
    edit = Edit(f"django_jobqueue/lifecycle/{file}", clause, new, count=count, nth=nth)
    return Mutant(
        f"{name}-waits-for-held-rows",
        "A row that somebody holds delays itself, and not the batch.",
        [edit],
        tests=[test],
    )


LOCKS = [
    wait_for_rows(
        "claim",
        "claim.py",
        UPDATES,
        f"{HELD}::test_claim_skips_jobs_locked_by_another_worker",
        count=2,
    ),
    wait_for_rows(
        "promotion",
        "promote.py",
        UPDATES,
        f"{HELD}::test_promote_passes_over_a_held_row",
    ),
    wait_for_rows(
        "success",
        "finish.py",
        UPDATES,
        f"{HELD}::test_one_held_row_of_200_is_finished_with_the_next_batch",
        count=2,
        nth=1,
    ),
    wait_for_rows("move", "finish.py", UPDATES, END, count=2, nth=2),
    wait_for_rows("deletion", "finish.py", DELETES, END),
    wait_for_rows("death", "bury.py", DELETES, END, count=2, nth=1),
    wait_for_rows("burial", "bury.py", DELETES, RESCUE, count=2, nth=2),
    wait_for_rows("rescue", "rescue.py", UPDATES, RESCUE, count=2, nth=2),
    wait_for_rows(
        "progress",
        "progress.py",
        UPDATES,
        f"{HELD}::test_progress_passes_over_a_held_row",
    ),
    Mutant(
        "atomic-end-skips-its-held-row",
        "An atomic job waits for its row: to pass it over would undo its work.",
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
        "A LIMIT on locked rows stands in a MATERIALIZED CTE, or may be exceeded.",
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
        "NOTIFY is sent after the commit: inside, commits wait for each other.",
        [
            Edit(
                "django_jobqueue/lifecycle/notify.py",
                "transaction.on_commit(notice, using=alias, robust=True)",
                "notice()",
            )
        ],
        tests=[
            "tests/lifecycle/test_notify.py"
            "::test_notification_is_no_part_of_the_callers_transaction"
        ],
    ),
    Mutant(
        "sqlite-without-immediate-transactions",
        "On SQLite a worker's transactions are IMMEDIATE, so that it is never locked.",
        [
            Edit(
                "django_jobqueue/worker/worker.py",
                "use_immediate_transactions(self.options.database)",
                "pass",
            )
        ],
        tests=[
            "tests/integration/test_crowds.py"
            "::test_four_workers_share_a_sqlite_file_and_never_find_it_locked"
        ],
        database="sqlite",
    ),
]
