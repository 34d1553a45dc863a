"""Rules 5, 7 and 11: an end is recorded, once, and with the effects of its job."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

RUN = "django_jobqueue/worker/run.py"
FINISH = "django_jobqueue/lifecycle/finish.py"
TESTS = "tests/lifecycle/test_finish.py"

ENDINGS = [
    Mutant(
        "atomic-end-outside-of-its-transaction",
        "The end of an atomic job is written in its own transaction.",
        [
            Edit(
                RUN,
                "    if handler.atomic:\n        _write_end(",
                "    if False:\n        _write_end(",
            ),
        ],
        tests=[
            "tests/integration/test_lost_lease.py"
            "::test_an_atomic_job_that_lost_its_lease_is_rolled_back"
        ],
    ),
    Mutant(
        "atomic-end-of-a-lost-lease-is-committed",
        "An atomic job that was taken away is rolled back.",
        [
            Edit(
                FINISH,
                "    if not written:\n        raise LeaseLost\n",
                "",
            )
        ],
        tests=[f"{TESTS}::test_finish_in_transaction_refuses_a_lost_lease"],
    ),
    Mutant(
        "end-is-told-twice",
        "An end that was committed, and only its reply lost, counts as written.",
        [
            Edit(
                FINISH,
                "            report.done.append(retell(ending, status))\n",
                "            report.lost.append(ending)\n",
            )
        ],
        tests=[f"{TESTS}::test_an_end_written_twice_counts_once"],
    ),
    Mutant(
        "refused-value-spoils-its-batch",
        "A value that the database refuses spoils one job, and not its batch.",
        [Edit(FINISH, "        if len(endings) > 1:\n", "        if False:\n")],
        tests=[f"{TESTS}::test_one_refused_result_spoils_that_job_only"],
    ),
    Mutant(
        "nul-is-stored",
        "Recording an end cannot fail: NUL is stripped.",
        [
            Edit(
                "django_jobqueue/failures.py",
                'compile("[\\0\\ud800-\\udfff]")',
                'compile("[\\ud800-\\udfff]")',
            )
        ],
        tests=["tests/test_failures.py::test_nul_and_lone_surrogates_are_replaced"],
        database="sqlite",
    ),
    Mutant(
        "error-is-believed-to-be-what-it-says",
        "An error is judged by its real class: its own __class__ may say anything.",
        [
            Edit(
                "django_jobqueue/outcomes.py",
                "return issubclass(type(error), kinds)",
                "return isinstance(error, kinds)",
            )
        ],
        tests=[
            "tests/test_outcomes.py"
            "::test_an_error_is_judged_by_what_it_is_and_not_by_what_it_says"
        ],
        database="sqlite",
    ),
    Mutant(
        "job-ends-the-event-loop",
        "Whatever a handler does ends its attempt and nothing else.",
        [
            Edit(
                "django_jobqueue/worker/coroutines.py",
                "            except BaseException as error:\n",
                "            except Exception as error:\n",
            )
        ],
        tests=[
            "tests/faults/test_exceptions.py"
            "::test_a_job_that_cancels_everybody_leaves_a_worker_that_goes_on"
        ],
        database="sqlite",
    ),
]
