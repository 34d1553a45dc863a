"""Rule 1: every write on behalf of an attempt names job, token, status and worker.

None of these drops the status: a CHECK allows a worker id only on running jobs, so the
rest of the fence implies it.
"""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

TOKEN = "AND job.lease_token = given.token"
OWNER = "AND job.worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid"
FINISH = "tests/lifecycle/test_finish.py"
SAME_WORKER = (
    f"{FINISH}::test_the_late_write_of_an_attempt_that_its_worker_claimed_again"
    "_is_refused"
)
SAME_TOKEN = (
    f"{FINISH}::test_a_token_shared_after_a_failover_is_refused_by_the_worker_id"
)
DELETION = f"{FINISH}::test_retention_0_deletes_nothing_that_was_taken_away"
PROGRESS = (
    "tests/storage/test_progress.py"
    "::test_progress_of_a_job_that_was_taken_away_is_refused"
)
HISTORIES = (
    "tests/histories/test_histories.py"
    "::test_a_late_write_is_refused_after_the_worker_claimed_the_job_again"
)
CLAIM = (
    "tests/lifecycle/test_claim.py::test_claim_makes_the_job_running_under_a_new_token"
)


def drop_fence(
    name: str, file: str, part: str, text: str, test: str, *, count: int, nth: int
) -> Mutant:
    new = f'{{IS_OWNED.replace("{text}", "")}}'
    edit = Edit(f"django_jobqueue/{file}", "{IS_OWNED}", new, count=count, nth=nth)
    return Mutant(
        f"{name}-without-{part}",
        f"Every write of an attempt names its {part}.",
        [edit],
        tests=[test],
    )


def drop_portable_fence(
    name: str, file: str, part: str, old: str, test: str, *, count: int = 1
) -> Mutant:
    return Mutant(
        f"portable-{name}-without-{part}",
        f"The portable version of a write names its {part} too.",
        [Edit(f"django_jobqueue/{file}", old, "", count=count, nth=1)],
        tests=[test],
        database="sqlite",
    )


FENCES = [
    drop_fence(
        "success",
        "lifecycle/finish_succeeded.py",
        "token",
        TOKEN,
        SAME_WORKER,
        count=2,
        nth=1,
    ),
    drop_fence(
        "success",
        "lifecycle/finish_succeeded.py",
        "worker",
        OWNER,
        SAME_TOKEN,
        count=2,
        nth=1,
    ),
    drop_fence(
        "deletion",
        "lifecycle/finish_succeeded.py",
        "token",
        TOKEN,
        DELETION,
        count=2,
        nth=2,
    ),
    drop_fence(
        "deletion",
        "lifecycle/finish_succeeded.py",
        "worker",
        OWNER,
        DELETION,
        count=2,
        nth=2,
    ),
    drop_fence(
        "move", "lifecycle/finish_moved.py", "token", TOKEN, SAME_WORKER, count=1, nth=1
    ),
    drop_fence(
        "move", "lifecycle/finish_moved.py", "worker", OWNER, SAME_TOKEN, count=1, nth=1
    ),
    drop_fence(
        "death", "lifecycle/finish_died.py", "token", TOKEN, SAME_WORKER, count=1, nth=1
    ),
    drop_fence(
        "death", "lifecycle/finish_died.py", "worker", OWNER, SAME_TOKEN, count=1, nth=1
    ),
    drop_fence(
        "progress", "storage/progress.py", "token", TOKEN, PROGRESS, count=1, nth=1
    ),
    drop_fence(
        "progress", "storage/progress.py", "worker", OWNER, PROGRESS, count=1, nth=1
    ),
    drop_portable_fence(
        "finish",
        "storage/ownership.py",
        "token",
        "        lease_token=claim.lease_token,\n",
        SAME_WORKER,
    ),
    drop_portable_fence(
        "finish",
        "storage/ownership.py",
        "worker",
        "        status=JobStatus.RUNNING,\n        worker_id=worker_id,\n",
        SAME_TOKEN,
    ),
    drop_portable_fence(
        "success",
        "lifecycle/portable/finish_succeeded.py",
        "token",
        " lease_token=1,",
        SAME_WORKER,
    ),
    drop_portable_fence(
        "progress",
        "storage/ownership.py",
        "token",
        "        lease_token=claim.lease_token,\n",
        PROGRESS,
    ),
    drop_portable_fence(
        "progress",
        "storage/ownership.py",
        "worker",
        "        status=JobStatus.RUNNING,\n        worker_id=worker_id,\n",
        PROGRESS,
    ),
    drop_fence(
        "history-move",
        "lifecycle/finish_moved.py",
        "token",
        TOKEN,
        HISTORIES,
        count=1,
        nth=1,
    ),
    Mutant(
        "claim-keeps-the-token",
        "Each claim adds 1 to the lease token.",
        [
            Edit(
                "django_jobqueue/lifecycle/claim.py",
                "        lease_token = job.lease_token + 1,\n",
                "",
            )
        ],
        tests=[CLAIM],
    ),
    Mutant(
        "requeue-keeps-the-token",
        "A dead job keeps its token, and requeue raises it.",
        [
            Edit(
                "django_jobqueue/lifecycle/requeue.py",
                '    values["lease_token"] = dead.lease_token + 1\n',
                "",
            )
        ],
        tests=[
            "tests/lifecycle/test_requeue.py"
            "::test_requeue_makes_the_same_job_live_again_with_new_budgets"
        ],
        database="sqlite",
    ),
    Mutant(
        "cancel-keeps-the-token",
        "Cancel raises the token of the job that it ends.",
        [
            Edit(
                "django_jobqueue/lifecycle/cancel.py",
                '        "lease_token": F("lease_token") + 1,\n',
                "",
            )
        ],
        tests=[
            "tests/lifecycle/test_cancel.py::test_cancel_ends_a_waiting_job_at_once"
        ],
        database="sqlite",
    ),
    Mutant(
        "ownership-check-ignores-lost-claims",
        "A job that a worker owns but never received, after a lost reply, is released.",
        [
            Edit(
                "django_jobqueue/worker/claiming/ownership_check.py",
                "self._finisher.release(unknown)",
                "pass",
            )
        ],
        tests=[
            "tests/worker/claiming/test_ownership_check.py"
            "::test_a_job_owned_but_not_in_flight_is_released_with_its_attempt"
        ],
        database="sqlite",
    ),
]
