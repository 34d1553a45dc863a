"""Rule 8: the heartbeat stops last, and only a steady heart judges others."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

BEAT = "django_jobqueue/lifecycle/beat.py"
HEART = "django_jobqueue/worker/heart.py"
WORKER = "django_jobqueue/worker/worker.py"

HEARTS = [
    Mutant(
        "heartbeat-stops-first",
        "The heartbeat stops last: a worker that drains is never rescued.",
        [
            Edit(
                HEART,
                "(child.identity, child.read_pulse()) for child in children]",
                "(child.identity, child.read_pulse()) for child in children"
                " if not child.is_leaving]",
            )
        ],
        tests=[
            "tests/integration/test_lost_lease.py"
            "::test_a_worker_that_drains_keeps_its_jobs_until_they_have_ended"
        ],
    ),
    Mutant(
        "heartbeat-row-goes-before-the-jobs",
        "The row of a worker is never deleted while a job bears its id.",
        [
            Edit(
                BEAT,
                """\
        AND NOT EXISTS (
            SELECT 1
            FROM jobqueue_job AS job
            WHERE job.worker_id = worker.id
        )
""",
                "",
            )
        ],
        tests=[
            "tests/lifecycle/test_beat.py::test_the_row_stays_while_a_job_bears_its_id"
        ],
    ),
    Mutant(
        "beat-after-a-gap-counts-as-steady",
        "A beat after a gap longer than the TTL begins a new count.",
        [Edit(BEAT, "THEN EXCLUDED.last_seen_at", "THEN worker.beating_since")],
        tests=[
            "tests/lifecycle/test_beat.py"
            "::test_a_gap_longer_than_the_ttl_begins_a_new_count"
        ],
    ),
    Mutant(
        "rescue-by-a-worker-that-is-not-steady",
        "Only one whose own heart has beaten for a TTL takes jobs from others.",
        [
            Edit(
                "django_jobqueue/worker/maintenance.py",
                "is_called_for = reply.is_steady and (",
                "is_called_for = (",
            )
        ],
        tests=[
            "tests/worker/test_maintenance.py"
            "::test_a_worker_rescues_only_while_its_own_heart_is_steady"
        ],
        database="sqlite",
    ),
    Mutant(
        "claim-with-an-overdue-heartbeat",
        "A worker that others may take for dead begins nothing.",
        [
            Edit(
                "django_jobqueue/worker/claimer.py",
                "        if self._is_fenced():\n",
                "        if False:\n",
            )
        ],
        tests=[
            "tests/worker/test_fence.py::test_no_claim_while_the_heartbeat_is_overdue"
        ],
        database="sqlite",
    ),
]
