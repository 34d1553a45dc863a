"""Code of a project around its jobs: failing middleware and signals harm no job."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MIDDLEWARE = "django_jobqueue/middleware.py"
REPORT = "django_jobqueue/storage/commit_signals.py"
TESTS = "tests/test_middleware.py"
REPORTS = "tests/storage/test_commit_signals.py"

MIDDLEWARE_AND_SIGNALS = [
    Mutant(
        "middleware-swallows-a-failure",
        "A handler that raised has failed, even if a middleware swallows the error.",
        [
            Edit(
                MIDDLEWARE,
                "        if self.error is not None:\n            raise self.error\n",
                "",
            )
        ],
        tests=[f"{TESTS}::test_a_swallowed_exception_still_fails_the_attempt"],
        database="sqlite",
    ),
    Mutant(
        "middleware-skips-the-handler",
        "A job whose handler was not called has not succeeded.",
        [
            Edit(
                MIDDLEWARE,
                "        if not self.has_entered_handler:\n",
                "        if False:\n",
            )
        ],
        tests=[f"{TESTS}::test_not_calling_the_handler_fails_the_attempt"],
        database="sqlite",
    ),
    Mutant(
        "middleware-inside-the-transaction",
        "Middleware that raises after the commit of an atomic job cannot undo it.",
        [
            Edit(
                "django_jobqueue/worker/running/call.py",
                "    call_through(env.options.middleware, context, args, payload, "
                "call=call)\n",
                "    with transaction.atomic(using=env.options.database):\n"
                "        call_through(\n"
                "            env.options.middleware, context, args, payload, "
                "call=call\n"
                "        )\n",
            )
        ],
        tests=[
            f"{TESTS}::test_an_exception_after_the_commit_of_an_atomic_job_is_only"
            f"_logged"
        ],
        database="sqlite",
    ),
    Mutant(
        "signal-before-the-commit",
        "No signal is sent for a change that was rolled back.",
        [
            Edit(
                REPORT,
                "    transaction.on_commit(send_all, using=alias, robust=True)\n",
                "    send_all()\n",
            )
        ],
        tests=[f"{REPORTS}::test_what_was_rolled_back_is_not_reported"],
        database="sqlite",
    ),
    Mutant(
        "signal-of-a-job-that-existed",
        "A bulk sends signals only for the jobs that it created.",
        [
            Edit(
                "django_jobqueue/lifecycle/enqueue_many.py",
                "            if new.options.unique_key is None or new.id in created\n",
                "",
            )
        ],
        tests=[f"{REPORTS}::test_of_a_bulk_each_new_job_is_reported"],
    ),
    Mutant(
        "task-finished-without-its-exception",
        "task_finished of a failure is sent while the exception is active.",
        [
            Edit(
                "django_jobqueue/backend/relay.py",
                "    _send_while_active(signals.task_finished, result, exception)\n",
                "    _send(signals.task_finished, result)\n",
            )
        ],
        tests=[
            "tests/backend/test_relay.py"
            "::test_an_end_without_an_exception_gets_one_named_for_its_reason"
        ],
        database="sqlite",
    ),
    Mutant(
        "jitter-does-not-follow-the-seed",
        "faults(seed=…) repeats the delays of retries, and thereby their order.",
        [
            Edit(
                "django_jobqueue/testing/fault_kit.py",
                'random.Random(f"jitter {seed}")',
                "random.Random()",
            )
        ],
        tests=[
            "tests/testing/test_fault_kit.py"
            "::test_a_seed_repeats_the_same_order_and_delays"
        ],
        database="sqlite",
    ),
]
