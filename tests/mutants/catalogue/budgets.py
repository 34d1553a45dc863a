"""Rule 4: attempts count at the claim, some are given back, all budgets are finite."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

FINISH = "tests/lifecycle/test_finish.py"
OUTCOMES = "django_jobqueue/outcomes.py"

BUDGETS = [
    Mutant(
        "claim-does-not-count-the-attempt",
        "An attempt is counted at its claim: a crash has used it up.",
        [
            Edit(
                "django_jobqueue/lifecycle/claim.py",
                "        attempts = job.attempts + 1,\n",
                "",
            )
        ],
        tests=[
            "tests/lifecycle/test_claim.py"
            "::test_claim_makes_the_job_running_under_a_new_token"
        ],
    ),
    Mutant(
        "release-keeps-the-attempt",
        "Shutdown, snooze and database trouble give the attempt back.",
        [
            Edit(
                "django_jobqueue/storage/endings.py",
                "refund=1,\n                trouble",
                "refund=0,\n                trouble",
            )
        ],
        tests=[f"{FINISH}::test_a_snooze_gives_the_attempt_back"],
        database="sqlite",
    ),
    Mutant(
        "trouble-is-not-counted",
        "Database errors are counted, because their number is limited.",
        [
            Edit(
                "django_jobqueue/lifecycle/finish_moved.py",
                "                ELSE job.given_back + ended.trouble\n",
                "                ELSE job.given_back\n",
            )
        ],
        tests=[
            f"{FINISH}::test_database_trouble_gives_the_attempt_back_and_is_counted"
        ],
    ),
    Mutant(
        "trouble-is-forgiven-for-ever",
        "An attempt is given back after a database error at most twenty times.",
        [Edit(OUTCOMES, " and given_back < MAX_GIVEN_BACK:", ":")],
        tests=[
            "tests/test_outcomes.py::test_database_trouble_is_forgiven_twenty_times"
        ],
        database="sqlite",
    ),
    Mutant(
        "one-attempt-too-many",
        "A job whose last attempt fails is dead.",
        [Edit(OUTCOMES, "if attempt < policy.max_", "if attempt <= policy.max_")],
        tests=["tests/test_outcomes.py::test_last_attempt_ends_in_the_dead_letters"],
        database="sqlite",
    ),
    Mutant(
        "unknown-handler-begins-to-wait-anew",
        "The wait for a missing handler counts from the first claim without it.",
        [
            Edit(
                "django_jobqueue/lifecycle/finish_moved.py",
                "THEN coalesce(job.unknown_since, clock.now)",
                "THEN clock.now",
            )
        ],
        tests=[f"{FINISH}::test_an_unknown_handler_is_remembered_since_when"],
    ),
]
