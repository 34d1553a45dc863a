"""Rule 4 and the supervisor: deaths, suspects, and attempts that will not end."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

FINISH = "django_jobqueue/lifecycle/finish.py"
HEART = "django_jobqueue/worker/heart.py"
LINK = "django_jobqueue/worker/link.py"
ENDS = "tests/lifecycle/test_finish.py"
CLAIMS = "tests/lifecycle/test_claim.py"
SUPERVISOR = "tests/integration/test_supervisor.py"

CRASHES = [
    Mutant(
        "innocents-are-charged",
        "A death charges the jobs inside handlers, and no other.",
        [
            Edit(
                HEART,
                "if errand.cause is not None and (inside is not None or is_kept):",
                "if errand.cause is not None:",
            )
        ],
        tests=[f"{SUPERVISOR}::test_jobs_that_had_not_started_go_back_uncharged"],
    ),
    Mutant(
        "crash-makes-no-suspect",
        "A job that was inside when its process died runs alone next time.",
        [Edit(FINISH, "(job.isolate OR ended.crash = 1)", "job.isolate")],
        tests=[
            f"{ENDS}::test_a_crash_beside_others_gives_the_attempt_back_and_makes_a_suspect"
        ],
    ),
    Mutant(
        "suspects-run-among-others",
        "A suspect is claimed only by the process in which it runs alone.",
        [
            Edit(
                "django_jobqueue/lifecycle/claim.py",
                " " * 20 + "AND (NOT job.isolate OR %(with_suspects)s::boolean)\n",
                "",
            ),
            Edit(
                "django_jobqueue/lifecycle/claim.py",
                '        parameters["with_suspects"] = suspects is Suspects.TOO\n',
                "",
            ),
        ],
        tests=[f"{CLAIMS}::test_a_claim_takes_suspects_too_not_or_only"],
    ),
    Mutant(
        "crashes-have-no-end",
        "The third crash is the last.",
        [
            Edit(
                "django_jobqueue/outcomes.py",
                "if crashes + 1 >= max_crashes or max_attempts == 1",
                "if max_attempts == 1",
            )
        ],
        tests=["tests/test_outcomes.py::test_the_third_crash_is_the_last"],
        database="sqlite",
    ),
    Mutant(
        "taken-end-keeps-the-token",
        "An end that the supervisor writes raises the token.",
        [Edit(FINISH, '"raises": [int(ending.is_taken)', '"raises": [int(False)')],
        tests=[
            f"{ENDS}"
            "::test_an_end_by_the_supervisor_raises_the_token_and_refuses_the_attempts_own"
        ],
    ),
    Mutant(
        "hanging-job-is-left-alone",
        "An attempt that ignores its time-out is ended after its grace.",
        [
            Edit(
                "django_jobqueue/worker/children.py",
                "if inside.limit < now and not inside.is_expelled",
                "if False",
            )
        ],
        tests=[
            "tests/faults/test_overruns.py"
            "::test_cancelled_job_that_does_not_listen_is_cancelled_after_the_grace"
        ],
    ),
    Mutant(
        "children-outlive-their-supervisor",
        "Children end with their supervisor, also when it is killed.",
        [
            Edit(LINK, "        ctypes.CDLL(None).prctl(", "        id("),
            Edit(LINK, "_PR_SET_PDEATHSIG, signal.SIGKILL)", "_PR_SET_PDEATHSIG)"),
            Edit(LINK, "        if not words:\n", "        if False:\n"),
        ],
        tests=[f"{SUPERVISOR}::test_children_die_with_their_supervisor"],
    ),
    Mutant(
        "fenced-worker-claims",
        "A worker whose beat is not confirmed begins nothing.",
        [
            Edit(
                "django_jobqueue/worker/claimer.py",
                "        if self._is_fenced():\n",
                "        if False:\n",
            )
        ],
        tests=["tests/worker/test_fence.py"],
        database="sqlite",
    ),
    Mutant(
        "commit-in-doubt-is-taken-for-lost",
        "A COMMIT whose reply was lost is looked up, under a lock.",
        [
            Edit(
                "django_jobqueue/lifecycle/settle.py",
                "            return _look(db, claim, worker_id=worker_id)\n",
                "            return Fate.ROLLED_BACK\n",
            )
        ],
        tests=[
            "tests/lifecycle/test_settle.py"
            "::test_an_end_under_our_token_and_by_us_has_committed"
        ],
        database="sqlite",
    ),
]
