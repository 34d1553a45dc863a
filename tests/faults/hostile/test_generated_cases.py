"""The generated cases cover every column and status, and follow their seed."""

from __future__ import annotations

import random

import pytest

from django_jobqueue import Job
from django_jobqueue.states import JobStatus

from .full_round import sort_findings
from .notifications import MAX_PAYLOAD_BYTES, generate
from .rows import insert, list_all_single, list_cases, list_pairs, make_rows


def test_every_column_is_tried_in_every_status() -> None:
    rows = [row for case in list_cases() for row in case.rows]
    for column in Job._meta.concrete_fields:
        statuses = {row.status for row in rows if column.name in row.values}
        assert statuses == set(JobStatus.values)


@pytest.mark.django_db
def test_plain_row_is_accepted_in_every_status() -> None:
    """Otherwise a refusal would not be caused by the hostile column."""
    plain = Job._meta.get_field("job_type")
    for row in make_rows(plain, JobStatus.values):
        if row.values["job_type"] == "":
            assert insert(row) is not None


def test_seed_decides_which_cases_run() -> None:
    def draw(seed: int) -> list[str]:
        rng = random.Random(seed)
        cases = [*list_all_single(rng, count=20), *list_pairs(rng, count=2)]
        return [row.label for case in cases for row in case.rows] + [
            generate(rng) for _ in range(50)
        ]

    assert draw(1) == draw(1) != draw(2)


def test_generated_notification_fits_into_a_notification() -> None:
    rng = random.Random(3)
    assert all(
        len(generate(rng).encode()) < MAX_PAYLOAD_BYTES + 100 for _ in range(500)
    )


def test_jobs_that_did_not_run_count_as_lost() -> None:
    texts = ["of 20 healthy jobs: 3", "2 rows are in no table", "another thing"]
    findings = sort_findings(texts)
    assert (len(findings.lost), len(findings.miscounted)) == (2, 1)
