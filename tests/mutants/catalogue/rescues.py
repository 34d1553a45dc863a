"""Rules 2 and 4: rescue tests the state where it writes, and charges only who ran."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

RESCUE = "django_jobqueue/lifecycle/rescue.py"
BURY = "django_jobqueue/lifecycle/bury.py"
PORTABLE = "django_jobqueue/lifecycle/rescue_portable.py"
TESTS = "tests/lifecycle/test_rescue.py"
GOES_BACK = f"{TESTS}::test_rescue_makes_the_job_of_a_silent_worker_pending"
SPARED = f"{TESTS}::test_a_worker_that_beats_after_the_first_look_is_spared"

SILENT = """\
            AND worker.last_seen_at < (SELECT now FROM clock) - %(ttl)s::interval
"""
SECOND_LOOK = "Rescue looks at the heartbeat again in the statement that takes the job."
RAISED_TOKEN = (
    "Rescue raises the token, so that the late write of the owner is refused."
)

RESCUES = [
    Mutant(
        "rescue-without-a-second-look",
        SECOND_LOOK,
        [Edit(RESCUE, SILENT, "")],
        tests=[SPARED],
    ),
    Mutant(
        "burial-without-a-second-look",
        SECOND_LOOK,
        [Edit(BURY, SILENT, "")],
        tests=[SPARED],
    ),
    Mutant(
        "portable-rescue-without-a-second-look",
        SECOND_LOOK,
        [Edit(PORTABLE, "pk__in=silent, last_seen_at__lt=limit", "pk__in=silent")],
        tests=[SPARED],
        database="sqlite",
    ),
    Mutant(
        "rescue-keeps-the-token",
        RAISED_TOKEN,
        [Edit(RESCUE, "            lease_token = job.lease_token + 1,\n", "")],
        tests=[GOES_BACK],
    ),
    Mutant(
        "burial-keeps-the-token",
        RAISED_TOKEN,
        [Edit(BURY, "removed.lease_token + 1,", "removed.lease_token,")],
        tests=[f"{TESTS}::test_the_tenth_loss_is_the_death_of_a_job"],
    ),
    Mutant(
        "portable-rescue-keeps-the-token",
        RAISED_TOKEN,
        [Edit(PORTABLE, '        lease_token=F("lease_token") + 1,\n', "")],
        tests=[GOES_BACK],
        database="sqlite",
    ),
    Mutant(
        "rescue-charges-the-innocent",
        "A job whose worker was not heard of again gets its attempt back.",
        [Edit(RESCUE, "            attempts = job.attempts - 1,\n", "")],
        tests=[GOES_BACK],
    ),
    Mutant(
        "rescue-without-end",
        "A job that is lost again and again dies of it.",
        [
            Edit(RESCUE, "            AND job.lost + 1 < %(max_lost)s::integer\n", ""),
            Edit(BURY, "job.lost + 1 >= %(max_lost)s::integer", "false"),
        ],
        tests=[f"{TESTS}::test_the_tenth_loss_is_the_death_of_a_job"],
    ),
    Mutant(
        "rescue-starts-twice-what-may-start-once",
        "max_attempts=1 promises at most one start: a loss is the end.",
        [
            Edit(
                RESCUE,
                """\
            AND NOT coalesce(
                job.max_attempts = 1,
                job.job_type = ANY(%(run_once)s::text[])
            )
""",
                "",
            ),
            Edit(
                BURY,
                """\
                OR coalesce(
                    job.max_attempts = 1,
                    job.job_type = ANY(%(run_once)s::text[])
                )
""",
                "",
            ),
        ],
        tests=[f"{TESTS}::test_a_job_that_may_start_once_is_dead_after_a_loss"],
    ),
    Mutant(
        "rescue-without-a-limit",
        "Every statement that moves rows is bounded.",
        [Edit(RESCUE, "        LIMIT %(limit)s::integer\n", "")],
        tests=[f"{TESTS}::test_rescue_is_bounded"],
    ),
]
