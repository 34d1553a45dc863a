"""Code of a project around its jobs: middleware and signals may fail, jobs may not."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MIDDLEWARE = "django_jobqueue/middleware.py"
REPORT = "django_jobqueue/lifecycle/report.py"
TESTS = "tests/test_middleware.py"
REPORTS = "tests/lifecycle/test_report.py"

PASSAGES = [
    Mutant(
        "middleware-swallows-a-failure",
        "A handler that raised has failed, whatever a middleware makes of it.",
        [
            Edit(
                MIDDLEWARE,
                "        if self.error is not None:\n            raise self.error\n",
                "",
            )
        ],
        tests=[
            f"{TESTS}::test_one_that_swallows_what_the_handler_raised_does_not_make_it"
            f"_a_success"
        ],
        database="sqlite",
    ),
    Mutant(
        "middleware-skips-the-handler",
        "A job whose handler was not called has not succeeded.",
        [Edit(MIDDLEWARE, "        if not self.has_arrived:\n", "        if False:\n")],
        tests=[f"{TESTS}::test_one_that_does_not_call_the_handler_is_a_failed_attempt"],
        database="sqlite",
    ),
    Mutant(
        "middleware-inside-the-transaction",
        "Middleware that raises after the commit of an atomic job cannot undo it.",
        [
            Edit(
                "django_jobqueue/worker/run.py",
                "    call_through(bench.options.middleware, context, args, payload, "
                "call=call)\n",
                "    with transaction.atomic(using=bench.options.database):\n"
                "        call_through(\n"
                "            bench.options.middleware, context, args, payload, "
                "call=call\n"
                "        )\n",
            )
        ],
        tests=[
            f"{TESTS}::test_one_that_raises_after_the_commit_of_an_atomic_job_changes"
            f"_nothing"
        ],
        database="sqlite",
    ),
    Mutant(
        "signal-before-the-commit",
        "What was rolled back is never told of.",
        [
            Edit(
                REPORT,
                "    transaction.on_commit(send_all, using=alias, robust=True)\n",
                "    send_all()\n",
            )
        ],
        tests=[f"{REPORTS}::test_what_was_rolled_back_is_not_told_of"],
        database="sqlite",
    ),
    Mutant(
        "signal-of-a-job-that-was-there",
        "A bulk tells only of the jobs that it made.",
        [
            Edit(
                "django_jobqueue/lifecycle/enqueue_many.py",
                "            if new.options.unique_key is None or new.id in created\n",
                "",
            )
        ],
        tests=[f"{REPORTS}::test_of_a_bulk_each_new_job_is_told_of"],
    ),
]
