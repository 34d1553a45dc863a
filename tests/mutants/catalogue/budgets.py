"""Rule 4: count at claim, give back what was not the job's fault, and have an end."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

FINISH = "tests/lifecycle/test_finish.py"
OUTCOMES = "django_jobqueue/outcomes.py"

BUDGETS = [
    Mutant(
        "claim-does-not-count-the-attempt",
        "An attempt is counted at its claim, so that one that crashes has used it.",
        [
            Edit(
                "django_jobqueue/lifecycle/claim.py",
                "        attempts = job.attempts + 1,\n",
                "",
                count=2,
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
        [Edit("django_jobqueue/lifecycle/endings.py", "refund=1,", "refund=0,")],
        tests=[f"{FINISH}::test_a_snooze_gives_the_attempt_back"],
        database="sqlite",
    ),
    Mutant(
        "trouble-is-not-counted",
        "Database trouble is counted, since it is not forgiven for ever.",
        [
            Edit(
                "django_jobqueue/lifecycle/finish.py",
                "            given_back = job.given_back + ended.trouble,\n",
                "",
            )
        ],
        tests=[
            f"{FINISH}::test_database_trouble_gives_the_attempt_back_and_is_counted"
        ],
    ),
    Mutant(
        "trouble-is-forgiven-for-ever",
        "Database trouble is forgiven twenty times.",
        [Edit(OUTCOMES, " and given_back < MAX_GIVEN_BACK:", ":")],
        tests=[
            "tests/test_outcomes.py::test_database_trouble_is_forgiven_twenty_times"
        ],
        database="sqlite",
    ),
    Mutant(
        "one-attempt-too-many",
        "The last attempt that is allowed ends in the dead letters.",
        [Edit(OUTCOMES, "if attempt < policy.max_", "if attempt <= policy.max_")],
        tests=["tests/test_outcomes.py::test_last_attempt_ends_in_the_dead_letters"],
        database="sqlite",
    ),
    Mutant(
        "unknown-handler-begins-to-wait-anew",
        "A job waits for its handler since the first claim that did not find it.",
        [
            Edit(
                "django_jobqueue/lifecycle/finish.py",
                "THEN coalesce(job.unknown_since, clock.now)",
                "THEN clock.now",
            )
        ],
        tests=[f"{FINISH}::test_an_unknown_handler_is_remembered_since_when"],
    ),
]
