"""Rules 5, 7 and 11: an end is recorded once, with the effects of its job."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

RUN = "django_jobqueue/worker/running/call.py"
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
        "end-is-reported-as-lost",
        "An end that was committed but whose reply was lost counts as written.",
        [
            Edit(
                FINISH,
                "            report.done.append(as_written(ending, state.status))\n",
                "            report.lost.append(ending)\n",
            )
        ],
        tests=[f"{TESTS}::test_an_end_written_twice_counts_once"],
    ),
    Mutant(
        "refused-value-fails-its-batch",
        "A value that the database refuses fails one job, not its batch.",
        [Edit(FINISH, "        elif len(endings) > 1:\n", "        elif False:\n")],
        tests=[f"{TESTS}::test_one_refused_result_spoils_that_job_only"],
    ),
    Mutant(
        "refused-end-is-dropped",
        "An ending that cannot be written is kept and retried.",
        [
            Edit(
                "django_jobqueue/worker/finisher.py",
                "            self._parked.park(report.unwritten)\n",
                "",
            )
        ],
        tests=[
            "tests/worker/test_finisher.py"
            "::test_an_end_that_a_trigger_refuses_does_not_stop_the_others"
        ],
    ),
    Mutant(
        "end-ignores-a-cancel-request",
        "A job with a cancel request is cancelled, however its attempt ends.",
        [
            Edit(
                "django_jobqueue/lifecycle/finish_moved.py",
                "                ELSE 'cancelled'\n",
                "                ELSE given.wanted\n",
            )
        ],
        tests=[
            "tests/lifecycle/test_cancel_promise.py"
            "::test_whatever_ends_an_attempt_that_was_asked_to_stop_cancels_its_job"
        ],
    ),
    Mutant(
        "ownership-check-releases-what-has-just-ended",
        "The ownership check lists the jobs in flight before it reads the rows.",
        [
            Edit(
                "django_jobqueue/worker/claiming/ownership_check.py",
                "        for job in jobs:\n",
                "        for job in self._in_flight.list():\n",
            )
        ],
        tests=[
            "tests/worker/claiming/test_ownership_check.py"
            "::test_a_job_that_ends_during_the_check_is_neither_released_nor_lost"
        ],
        database="sqlite",
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
        "error-is-judged-by-its-class-attribute",
        "An error is judged by its real type, not by its __class__ attribute.",
        [
            Edit(
                "django_jobqueue/failures.py",
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
        "Any exception of a handler ends its attempt and nothing else.",
        [
            Edit(
                "django_jobqueue/worker/running/event_loop.py",
                "            except BaseException as error:\n",
                "            except Exception as error:\n",
            )
        ],
        tests=[
            "tests/faults/test_exceptions.py"
            "::test_worker_runs_on_after_a_job_that_cancels_all_tasks"
        ],
        database="sqlite",
    ),
]
