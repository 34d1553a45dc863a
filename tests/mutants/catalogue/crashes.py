"""Rule 4 and the supervisor: deaths, suspects, and attempts that do not end."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

MOVED = "django_jobqueue/lifecycle/finish_moved.py"
CHILD_ENDINGS = "django_jobqueue/worker/supervision/child_endings.py"
LINK = "django_jobqueue/worker/supervision/supervised_heartbeat.py"
ENDS = "tests/lifecycle/test_finish.py"
CLAIMS = "tests/lifecycle/test_claim.py"
SUPERVISOR = "tests/integration/test_supervisor.py"

CRASHES = [
    Mutant(
        "jobs-that-had-not-started-are-charged",
        "A death charges the jobs whose handlers ran, and no other.",
        [
            Edit(
                CHILD_ENDINGS,
                "if death.cause is not None and (attempt is not None or is_kept):",
                "if death.cause is not None:",
            )
        ],
        tests=[f"{SUPERVISOR}::test_jobs_that_had_not_started_go_back_uncharged"],
    ),
    Mutant(
        "crash-makes-no-suspect",
        "A job that ran when its process died runs alone next time.",
        [Edit(MOVED, "(job.isolate OR ended.crash = 1)", "job.isolate")],
        tests=[
            f"{ENDS}::test_a_crash_beside_others_gives_the_attempt_back_and_makes_a_suspect"
        ],
    ),
    Mutant(
        "suspects-run-beside-others",
        "A suspect is claimed only by the process in which it runs alone.",
        [
            Edit(
                "django_jobqueue/lifecycle/claim.py",
                " " * 20 + "AND (NOT job.isolate OR %(with_suspects)s::boolean)\n",
                "",
            ),
            Edit(
                "django_jobqueue/lifecycle/claim.py",
                '        parameters["with_suspects"] = suspects is Suspects.INCLUDED\n',
                "",
            ),
        ],
        tests=[f"{CLAIMS}::test_a_claim_takes_suspects_too_not_or_only"],
    ),
    Mutant(
        "crashes-have-no-limit",
        "A job is dead after its third crash.",
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
        "end-by-the-supervisor-keeps-the-token",
        "An end that the supervisor writes raises the token.",
        [Edit(MOVED, '"raises": [int(ending.is_taken)', '"raises": [int(False)')],
        tests=[
            f"{ENDS}"
            "::test_an_end_by_the_supervisor_raises_the_token_and_refuses_the_attempts_own"
        ],
    ),
    Mutant(
        "hanging-job-is-not-ended",
        "An attempt that ignores its time-out is ended after its grace.",
        [
            Edit(
                "django_jobqueue/worker/supervision/child.py",
                "if attempt.limit < now and not attempt.is_ended_by_supervisor",
                "if False",
            )
        ],
        tests=[
            "tests/faults/test_timeouts.py"
            "::test_job_that_ignores_its_cancellation_is_cancelled_after_the_grace"
        ],
    ),
    Mutant(
        "children-outlive-their-supervisor",
        "Children exit with their supervisor, also if it is killed.",
        [
            Edit(LINK, "        ctypes.CDLL(None).prctl(", "        id("),
            Edit(LINK, "_PR_SET_PDEATHSIG, signal.SIGKILL)", "_PR_SET_PDEATHSIG)"),
            Edit(LINK, "        if not data:\n", "        if False:\n"),
        ],
        tests=[f"{SUPERVISOR}::test_children_die_with_their_supervisor"],
    ),
    Mutant(
        "fenced-worker-claims",
        "A worker whose heartbeat is not confirmed starts no job.",
        [
            Edit(
                "django_jobqueue/worker/claiming/claimer.py",
                "        if self._is_fenced():\n",
                "        if False:\n",
            )
        ],
        tests=["tests/worker/test_fence.py"],
        database="sqlite",
    ),
    Mutant(
        "commit-without-a-reply-counts-as-lost",
        "A COMMIT whose reply was lost is checked under a lock.",
        [
            Edit(
                "django_jobqueue/storage/commit_check.py",
                "            return _read_state(db, claim, worker_id=worker_id)\n",
                "            return CommitState.ROLLED_BACK\n",
            )
        ],
        tests=[
            "tests/storage/test_commit_check.py"
            "::test_an_end_under_our_token_and_by_us_has_committed"
        ],
        database="sqlite",
    ),
]
