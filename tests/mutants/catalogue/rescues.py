"""Rules 2 and 4: rescue checks the state when it writes, and charges no attempt."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

RESCUE = "django_jobqueue/lifecycle/rescue.py"
JUDGE = "django_jobqueue/outcomes.py"
ENDINGS = "django_jobqueue/storage/endings.py"
TESTS = "tests/lifecycle/test_rescue.py"
GOES_BACK = f"{TESTS}::test_rescue_makes_the_job_of_a_silent_worker_pending"
SPARED = f"{TESTS}::test_a_worker_that_beats_after_the_first_look_is_spared"

SECOND_CHECK = "Rescue checks the heartbeat again, under a lock, before it takes jobs."

RESCUES = [
    Mutant(
        "rescue-without-a-second-check",
        SECOND_CHECK,
        [
            Edit(
                RESCUE,
                """\
            AND worker.last_seen_at < (
                SELECT coalesce(%(now)s::timestamptz, clock_timestamp())
            ) - %(ttl)s::interval
""",
                "",
            )
        ],
        tests=[SPARED],
    ),
    Mutant(
        "portable-rescue-without-a-second-check",
        SECOND_CHECK,
        [
            Edit(
                "django_jobqueue/lifecycle/portable/rescue.py",
                "rows.filter(last_seen_at__lt=db.read_clock(now) - ttl)",
                "rows.all()",
            )
        ],
        tests=[SPARED],
        database="sqlite",
    ),
    Mutant(
        "rescue-without-a-lock",
        "Rescue holds the heartbeat row until the jobs are written.",
        [Edit(RESCUE, "    with db.transaction():\n", "    if True:\n")],
        tests=["tests/races/test_rescue.py"],
    ),
    Mutant(
        "rescue-keeps-the-token",
        "Rescue raises the token, so the late write of the owner is refused.",
        [Edit(RESCUE, "        is_taken=True,\n", "")],
        tests=[GOES_BACK],
    ),
    Mutant(
        "rescue-charges-the-attempt",
        "A job whose worker went silent gets its attempt back.",
        [
            Edit(
                ENDINGS,
                "                refund=1,\n                loss=1,\n",
                "                loss=1,\n",
            )
        ],
        tests=[GOES_BACK],
    ),
    Mutant(
        "losses-have-no-limit",
        "A job that is lost too often is dead.",
        [Edit(JUDGE, "if lost + 1 >= max_lost or max_attempts == 1:", "if False:")],
        tests=[f"{TESTS}::test_the_tenth_loss_is_the_death_of_a_job"],
    ),
    Mutant(
        "rescue-starts-twice-what-may-start-once",
        "max_attempts=1 promises at most one start: the job is dead after a loss.",
        [
            Edit(
                JUDGE,
                "if lost + 1 >= max_lost or max_attempts == 1:",
                "if lost + 1 >= max_lost:",
            )
        ],
        tests=[f"{TESTS}::test_a_job_that_may_start_once_is_dead_after_a_loss"],
    ),
    Mutant(
        "rescue-without-a-limit",
        "Every statement that moves rows is bounded.",
        [Edit(RESCUE, "worker_id, limit=limit)", "worker_id)")],
        tests=[f"{TESTS}::test_rescue_is_bounded"],
    ),
]
