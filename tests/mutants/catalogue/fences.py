"""Rule 1: every write on behalf of an attempt names job, token, status and worker.

None of these drops the status: a CHECK lets only running jobs bear a worker's id, so
that the rest of the fence says it as well.
"""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

TOKEN = """\
                AND job.lease_token = given.token
"""
OWNER = """\
                AND job.worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid
"""
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
    "tests/lifecycle/test_progress.py"
    "::test_progress_of_a_job_that_was_taken_away_is_refused"
)
CLAIM = (
    "tests/lifecycle/test_claim.py::test_claim_makes_the_job_running_under_a_new_token"
)


def drop_fence(
    name: str, file: str, part: str, text: str, test: str, *, count: int, nth: int
) -> Mutant:
    edit = Edit(f"django_jobqueue/lifecycle/{file}", text, "", count=count, nth=nth)
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
        [Edit(f"django_jobqueue/lifecycle/{file}", old, "", count=count, nth=1)],
        tests=[test],
        database="sqlite",
    )


FENCES = [
    drop_fence("success", "finish.py", "token", TOKEN, SAME_WORKER, count=3, nth=1),
    drop_fence("success", "finish.py", "worker", OWNER, SAME_TOKEN, count=3, nth=1),
    drop_fence("deletion", "finish.py", "token", TOKEN, DELETION, count=3, nth=2),
    drop_fence("deletion", "finish.py", "worker", OWNER, DELETION, count=3, nth=2),
    drop_fence("move", "finish.py", "token", TOKEN, SAME_WORKER, count=3, nth=3),
    drop_fence("move", "finish.py", "worker", OWNER, SAME_TOKEN, count=3, nth=3),
    drop_fence("death", "bury.py", "token", TOKEN, SAME_WORKER, count=1, nth=1),
    drop_fence("death", "bury.py", "worker", OWNER, SAME_TOKEN, count=1, nth=1),
    drop_fence("progress", "progress.py", "token", TOKEN, PROGRESS, count=1, nth=1),
    drop_fence("progress", "progress.py", "worker", OWNER, PROGRESS, count=1, nth=1),
    drop_portable_fence(
        "finish",
        "finish_portable.py",
        "token",
        "        lease_token=ending.claim.lease_token,\n",
        SAME_WORKER,
        count=2,
    ),
    drop_portable_fence(
        "finish",
        "finish_portable.py",
        "worker",
        "        status=JobStatus.RUNNING,\n        worker_id=worker_id,\n",
        SAME_TOKEN,
    ),
    drop_portable_fence(
        "success",
        "finish_portable.py",
        "token",
        " lease_token=1,",
        SAME_WORKER,
    ),
    drop_portable_fence(
        "progress",
        "progress.py",
        "token",
        "                lease_token=claim.lease_token,\n",
        PROGRESS,
    ),
    drop_portable_fence(
        "progress",
        "progress.py",
        "worker",
        "                worker_id=worker_id,\n",
        PROGRESS,
    ),
    Mutant(
        "claim-keeps-the-token",
        "Each claim adds 1 to the lease token.",
        [
            Edit(
                "django_jobqueue/lifecycle/claim.py",
                "        lease_token = job.lease_token + 1,\n",
                "",
                count=2,
            )
        ],
        tests=[CLAIM],
    ),
    Mutant(
        "requeue-keeps-the-token",
        "The token survives the dead letters, and a new life begins with a higher one.",
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
        "reconcile-forgets-lost-claims",
        "What a worker owns but does not hold, since a reply was lost, is given back.",
        [
            Edit(
                "django_jobqueue/worker/claimer.py",
                "self.release(make_claim(job) for job in owned.values())",
                "pass",
            )
        ],
        tests=[
            "tests/worker/test_reconcile.py"
            "::test_what_is_owned_but_not_held_is_given_back_with_its_attempt"
        ],
        database="sqlite",
    ),
]
