"""What the admin and the command line show, to whom, and what they refuse."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

CRAFTED = "tests/admin/test_crafted_requests.py"

ADMIN_AND_COMMANDS = [
    Mutant(
        "redirect-reveals-dead-jobs",
        "Only users who may view the other table are redirected to it.",
        [
            Edit(
                "django_jobqueue/admin/records.py",
                "if id is None or not self._may_view_other(request):",
                "if id is None:",
            )
        ],
        tests=[
            f"{CRAFTED}::test_staff_without_permission_cannot_learn_which_ids_exist"
        ],
        database="sqlite",
    ),
    Mutant(
        "lists-accept-every-lookup",
        "A list accepts the parameters of its own filters and no others.",
        [
            Edit(
                "django_jobqueue/admin/paging.py",
                "if name not in accepted or any(",
                "if any(",
            )
        ],
        tests=[f"{CRAFTED}::test_filter_that_the_page_does_not_offer_is_not_applied"],
        database="sqlite",
    ),
    Mutant(
        "live-jobs-run-again",
        "Only a job that has ended is enqueued again.",
        [
            Edit(
                "django_jobqueue/lifecycle/enqueue_again.py",
                "if ended is None or ended.status not in ENDED:",
                "if ended is None:",
            )
        ],
        tests=[
            "tests/lifecycle/test_enqueue_again.py::"
            "test_job_that_has_not_ended_is_refused"
        ],
        database="sqlite",
    ),
    Mutant(
        "wrong-flags-are-wrong-settings",
        "A wrong flag is a usage error, also where the options are read.",
        [
            Edit(
                "django_jobqueue/management/commands/runworker.py",
                "is_flag = not read_options({})[1]",
                "is_flag = False",
            )
        ],
        tests=["tests/commands/test_worker_flags.py::test_wrong_flag_is_a_usage_error"],
        database="sqlite",
    ),
]
