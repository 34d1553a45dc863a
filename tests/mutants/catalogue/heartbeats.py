"""Rule 8: the heartbeat stops last, and only a steady worker rescues from others."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

BEAT = "django_jobqueue/storage/worker_rows.py"
HEART = "django_jobqueue/worker/supervision/supervisor_db.py"
WORKER = "django_jobqueue/worker/worker.py"

HEARTBEATS = [
    Mutant(
        "heartbeat-stops-first",
        "The heartbeat stops last: no job is rescued from a draining worker.",
        [
            Edit(
                HEART,
                "(child.identity, child.read_beat_values()) for child in children]",
                "(child.identity, child.read_beat_values()) for child in children"
                " if not child.is_leaving]",
            )
        ],
        tests=[
            "tests/integration/test_lost_lease.py"
            "::test_a_worker_that_drains_keeps_its_jobs_until_they_have_ended"
        ],
    ),
    Mutant(
        "heartbeat-row-is-deleted-before-the-jobs",
        "The row of a worker is never deleted while a job has its id.",
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
            "tests/storage/test_worker_rows.py::test_the_row_stays_while_a_job_bears_its_id"
        ],
    ),
    Mutant(
        "beat-after-a-gap-counts-as-steady",
        "A heartbeat after a gap longer than the TTL resets beating_since.",
        [Edit(BEAT, "THEN EXCLUDED.last_seen_at", "THEN worker.beating_since")],
        tests=[
            "tests/storage/test_worker_rows.py"
            "::test_a_gap_longer_than_the_ttl_begins_a_new_count"
        ],
    ),
    Mutant(
        "rescue-by-a-worker-that-is-not-steady",
        "Only a worker that has beaten for a TTL rescues jobs from others.",
        [
            Edit(
                "django_jobqueue/worker/maintenance.py",
                "is_rescue_due = reply.is_steady and (",
                "is_rescue_due = (",
            )
        ],
        tests=[
            "tests/worker/test_maintenance.py"
            "::test_a_worker_rescues_only_while_its_own_heartbeat_is_steady"
        ],
        database="sqlite",
    ),
    Mutant(
        "claim-with-an-overdue-heartbeat",
        "A worker that others may rescue from starts no job.",
        [
            Edit(
                "django_jobqueue/worker/claiming/claimer.py",
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
