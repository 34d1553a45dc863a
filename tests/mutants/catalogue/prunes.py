"""Prune deletes jobs that have ended and are due, and nothing else."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

PRUNE = "django_jobqueue/lifecycle/prune.py"
TESTS = "tests/lifecycle/test_prune.py"

PRUNES = [
    Mutant(
        "prune-of-live-jobs",
        "Prune deletes jobs that have ended, and no live ones.",
        [
            Edit(
                PRUNE,
                "Q(status__in=_STATUSES, finished_at__lt=before)",
                "Q(created_at__lt=before)",
            )
        ],
        tests=[f"{TESTS}::test_prune_older_ignores_retention_but_not_the_status"],
        database="sqlite",
    ),
    Mutant(
        "prune-of-jobs-without-prune-at",
        "A job without prune_at is kept.",
        [
            Edit(
                PRUNE,
                "due[status] = ended.filter(_IS_PROMISED | counted)",
                "due[status] = Job.objects.using(db.alias).filter("
                "Q(status=status, prune_at=None)"
                " | Q(pk__in=ended.filter(_IS_PROMISED | counted)))",
            )
        ],
        tests=[f"{TESTS}::test_live_jobs_and_held_ones_are_never_pruned"],
        database="sqlite",
    ),
    Mutant(
        "prune-of-dead-jobs",
        "Dead jobs are never pruned, and neither are their attempts.",
        [
            Edit(
                PRUNE,
                ".filter(job_id__in=statuses).delete()",
                ".exclude(job_id__in=Job.objects.exclude(pk__in=statuses)).delete()",
            )
        ],
        tests=[f"{TESTS}::test_dead_jobs_and_their_attempts_are_never_pruned"],
        database="sqlite",
    ),
    Mutant(
        "prune-before-its-time",
        "A job is kept for as long as was promised at its end.",
        [
            Edit(
                PRUNE,
                "filter(status=status, prune_at__lte=now)",
                "filter(status=status, prune_at__isnull=False)",
            )
        ],
        tests=[
            f"{TESTS}::test_a_job_is_pruned_when_the_age_promised_at_its_end_has_come"
        ],
        database="sqlite",
    ),
]
