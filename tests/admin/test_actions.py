"""What the actions do to jobs and dead jobs, what they report, and what they log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.test import Client
from django.utils import timezone

from django_jobqueue.admin import records
from django_jobqueue.models import Attempt, DeadJob, Job
from tests.admin.pages import act, confirm, list_url, page_url, read_messages, read_text
from tests.admin.rows import Rows, make_attempt
from tests.factories import make_dead_job, make_job


def read_log() -> list[tuple[int, str, str | None, str]]:
    return [
        (
            entry.action_flag,
            str(entry.content_type and entry.content_type.model),
            entry.object_id,
            entry.change_message,
        )
        for entry in LogEntry.objects.order_by("pk")
    ]


def test_cancel_reports_waiting_running_and_ended_jobs_separately(
    client: Client, rows: Rows
) -> None:
    ids = [rows.pending.pk, rows.running.pk, rows.succeeded.pk]
    response = act(client, "job", "cancel", *ids)
    assert read_messages(response) == [
        "1 job was cancelled.",
        "1 job is running and was asked to stop.",
        "1 job had ended already.",
    ]
    assert Job.objects.get(pk=rows.pending.pk).status == "cancelled"
    running = Job.objects.get(pk=rows.running.pk)
    assert running.status == "running"
    assert running.cancel_requested_at is not None
    assert read_log() == [
        (CHANGE, "job", str(rows.pending.pk), "Cancelled."),
        (CHANGE, "job", str(rows.running.pk), "Asked to stop."),
    ]


def test_run_now_makes_scheduled_jobs_pending(client: Client, rows: Rows) -> None:
    response = act(client, "job", "run", rows.scheduled.pk, rows.succeeded.pk)
    assert read_messages(response) == [
        "1 job is due now and runs as soon as a worker is free.",
        "1 job is neither scheduled nor pending and was not changed.",
    ]
    assert Job.objects.get(pk=rows.scheduled.pk).status == "pending"
    assert read_log() == [(CHANGE, "job", str(rows.scheduled.pk), "Made due now.")]


def test_reschedule_takes_a_delay(client: Client, rows: Rows) -> None:
    asked = act(client, "job", "reschedule", rows.pending.pk)
    assert 'name="delay"' in asked.content.decode()
    assert Job.objects.get(pk=rows.pending.pk).status == "pending"
    response = confirm(
        client, "job", "reschedule", rows.pending.pk, delay="2", unit="hours"
    )
    assert read_messages(response) == ["1 job was rescheduled."]
    job = Job.objects.get(pk=rows.pending.pk)
    assert job.status == "scheduled"
    assert abs(job.run_at - timezone.now() - timedelta(hours=2)) < timedelta(minutes=1)
    [entry] = read_log()
    assert entry[3] == "Rescheduled: after 2:00:00."


def test_reschedule_takes_a_time(client: Client, rows: Rows) -> None:
    moment = datetime(2090, 1, 2, 3, 4, tzinfo=UTC)
    client.post(
        page_url(rows.pending, "reschedule"),
        {"confirmed": 1, "run_at": "2090-01-02T03:04", "unit": "minutes"},
    )
    assert Job.objects.get(pk=rows.pending.pk).run_at == moment


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({}, "either a time or a delay"),
        ({"delay": "1", "run_at": "2090-01-02T03:04"}, "either a time or a delay"),
        ({"delay": "-1"}, "greater than or equal to 0"),
        ({"delay": "nan"}, "Enter a number"),
        ({"delay": "soon"}, "Enter a number"),
        ({"delay": "36501", "unit": "days"}, "100 years"),
        ({"run_at": "9999-12-31T23:59"}, "100 years"),
        ({"run_at": "tomorrow"}, "valid date/time"),
        ({"delay": "1", "unit": "weeks"}, "valid choice"),
    ],
)
def test_reschedule_refuses_a_wrong_time_or_delay(
    client: Client, rows: Rows, values: dict[str, str], fault: str
) -> None:
    data = {"confirmed": 1, "unit": "minutes", **values}
    response = client.post(page_url(rows.pending, "reschedule"), data)
    assert response.status_code == 200
    assert fault in read_text(response)
    job = Job.objects.get(pk=rows.pending.pk)
    assert (job.status, job.run_at) == ("pending", rows.pending.run_at)
    assert not LogEntry.objects.exists()


def test_move_changes_queue_and_priority(client: Client, rows: Rows) -> None:
    ids = [rows.pending.pk, rows.scheduled.pk, rows.running.pk]
    response = confirm(client, "job", "move", *ids, queue="slow", priority="-7")
    assert read_messages(response) == [
        "2 jobs were moved.",
        "1 job is neither scheduled nor pending and was not changed.",
    ]
    moved = Job.objects.filter(queue="slow", priority=-7)
    assert {job.pk for job in moved} == set(ids[:2])
    assert {entry[3] for entry in read_log()} == {"Moved: queue slow, priority -7."}


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({}, "a queue, a priority, or both"),
        ({"queue": "a b"}, "letters, digits"),
        ({"queue": "x" * 65}, "at most 64"),
        ({"priority": "101"}, "less than or equal to 100"),
        ({"priority": "high"}, "whole number"),
    ],
)
def test_move_refuses_a_wrong_queue_or_priority(
    client: Client, rows: Rows, values: dict[str, str], fault: str
) -> None:
    response = client.post(page_url(rows.pending, "move"), {"confirmed": 1, **values})
    assert fault in read_text(response)
    job = Job.objects.get(pk=rows.pending.pk)
    assert (job.queue, job.priority) == ("default", 0)


def test_delete_removes_attempts_and_keeps_running_jobs(
    client: Client, rows: Rows
) -> None:
    make_attempt(rows.succeeded)
    make_attempt(rows.running)
    ids = [rows.succeeded.pk, rows.pending.pk, rows.running.pk]
    asked = act(client, "job", "delete_selected", *ids)
    assert "3 jobs" in read_text(asked)
    assert Job.objects.filter(pk__in=ids).count() == 3
    response = confirm(client, "job", "delete_selected", *ids)
    assert set(read_messages(response)) == {
        "2 jobs were deleted.",
        "1 job is running and was asked to stop.",
    }
    [running] = Job.objects.filter(pk__in=ids)
    assert running.pk == rows.running.pk
    assert running.status == "running"
    assert running.cancel_requested_at is not None
    assert Attempt.objects.filter(job_id__in=ids).get().job_id == running.pk
    assert sorted(read_log()) == sorted(
        [
            (CHANGE, "job", str(rows.running.pk), "Asked to stop."),
            (DELETION, "job", str(rows.succeeded.pk), ""),
            (DELETION, "job", str(rows.pending.pk), ""),
        ]
    )


def test_run_again_enqueues_copies_of_ended_jobs(client: Client, rows: Rows) -> None:
    unknown = make_job(succeeded=True, job_type="gone.away")
    ids = [rows.succeeded.pk, rows.pending.pk, unknown.pk]
    asked = act(client, "job", "run_again", *ids)
    assert "3 jobs" in read_text(asked)
    before = set(Job.objects.values_list("pk", flat=True))
    response = confirm(client, "job", "run_again", *ids)
    [copy] = Job.objects.exclude(pk__in=before)
    assert (copy.status, copy.payload) == ("pending", rows.succeeded.payload)
    texts = read_messages(response)
    assert {
        "1 new job was enqueued.",
        "1 job has not ended and was not enqueued again.",
        "1 job could not be enqueued again.",
    } < set(texts)
    assert any(page_url(copy) in text for text in texts)
    assert any("No handler is registered" in text for text in texts)
    assert read_log() == [
        (CHANGE, "job", str(rows.succeeded.pk), f"Run again as {copy.pk}."),
        (CHANGE, "job", str(copy.pk), f"Copy of {rows.succeeded.pk}, run again."),
    ]


def test_run_again_is_offered_for_ended_jobs_only(client: Client, rows: Rows) -> None:
    for row, is_offered in ((rows.succeeded, True), (rows.pending, False)):
        page = client.get(page_url(row)).content.decode()
        assert (page_url(row, "run_again") in page) == is_offered


def test_delete_button_leads_back_to_the_list(client: Client, rows: Rows) -> None:
    url = page_url(rows.succeeded, "delete")
    assert b"Delete jobs and their attempts" in client.get(url).content
    # The form data of Django's own page is not enough.
    client.post(url, {"post": "yes"})
    assert Job.objects.filter(pk=rows.succeeded.pk).exists()
    response = client.post(url, {"confirmed": 1})
    assert response.url == list_url("job")
    assert not Job.objects.filter(pk=rows.succeeded.pk).exists()


def test_delete_button_of_a_running_job_stays_on_its_page(
    client: Client, rows: Rows
) -> None:
    response = client.post(page_url(rows.running, "delete"), {"confirmed": 1})
    assert response.url == page_url(rows.running)
    assert Job.objects.get(pk=rows.running.pk).status == "running"


@pytest.mark.parametrize(("choice", "attempts"), [("reset", 0), ("keep", 3)])
def test_requeue_resets_or_keeps_the_attempts(
    client: Client, rows: Rows, choice: str, attempts: int
) -> None:
    asked = act(client, "deadjob", "requeue", rows.dead.pk)
    assert 'value="keep"' in asked.content.decode()
    response = confirm(client, "deadjob", "requeue", rows.dead.pk, attempts=choice)
    assert read_messages(response) == ["1 dead job was requeued."]
    job = Job.objects.get(pk=rows.dead.pk)
    assert (job.status, job.attempts) == ("pending", attempts)
    assert not DeadJob.objects.exists()
    [entry] = read_log()
    assert entry[:3] == (CHANGE, "job", str(job.pk))
    assert Attempt.objects.filter(job_id=job.pk).exists()


def test_requeue_reports_the_key_in_use_and_who_has_it(
    client: Client, rows: Rows
) -> None:
    holder = make_job(unique_key="dead")
    free = make_dead_job()
    response = confirm(
        client, "deadjob", "requeue", rows.dead.pk, free.pk, attempts="reset"
    )
    requeued, stays, named = read_messages(response)
    assert requeued == "1 dead job was requeued."
    assert stays == "1 dead job was not requeued: its unique key is in use."
    assert named.startswith("The key dead of testapp.add is in use by ")
    assert page_url(holder) in named
    assert DeadJob.objects.get().pk == rows.dead.pk
    [entry] = read_log()
    assert entry[2] == str(free.pk)


def test_dead_job_is_deleted_with_its_attempts(client: Client, rows: Rows) -> None:
    response = confirm(client, "deadjob", "delete_selected", rows.dead.pk)
    assert read_messages(response) == ["1 job was deleted."]
    assert not DeadJob.objects.exists()
    assert not Attempt.objects.exists()
    assert read_log() == [(DELETION, "deadjob", str(rows.dead.pk), "")]


def test_history_is_shared_by_the_live_and_the_dead_job(
    client: Client, rows: Rows
) -> None:
    client.post(page_url(rows.dead, "requeue"), {"confirmed": 1, "attempts": "reset"})
    job = Job.objects.get(pk=rows.dead.pk)
    client.post(page_url(job, "cancel"), {"confirmed": 1})
    Job.objects.filter(pk=job.pk).delete()
    dead = make_dead_job(id=job.pk)
    page = read_text(client.get(page_url(dead, "history")))
    assert "Requeued, with all attempts." in page
    assert "Cancelled." in page


def test_page_of_a_job_redirects_to_the_table_that_has_it(
    client: Client, rows: Rows
) -> None:
    job, dead = Job(pk=rows.dead.pk), DeadJob(pk=rows.pending.pk)
    assert client.get(page_url(job)).url == page_url(rows.dead)
    assert client.get(page_url(dead)).url == page_url(rows.pending)
    response = client.post(page_url(job, "cancel"), {"confirmed": 1}, follow=True)
    assert response.redirect_chain[-1][0] == page_url(rows.dead)


def test_page_of_a_job_that_is_gone_says_so(client: Client, rows: Rows) -> None:
    response = client.get(page_url(Job()), follow=True)
    assert "doesn’t exist" in read_messages(response)[0]
    response = client.get("/admin/jobqueue/job/no-id/change/", follow=True)
    assert "doesn’t exist" in read_messages(response)[0]


@pytest.mark.parametrize("size", [2, 100])
def test_all_that_match_are_done_in_batches(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(records, "BATCH_SIZE", size)
    mail = [make_job(queue="mail") for _ in range(7)]
    other = make_job(queue="other")
    data = {"action": "cancel", "select_across": 1, "_selected_action": [mail[0].pk]}
    url = list_url("job", "?queue=mail")
    asked = client.post(url, {**data, "index": 0})
    assert "7 jobs" in read_text(asked)
    assert Job.objects.filter(status="cancelled").count() == 0
    response = client.post(url, {**data, "confirmed": 1}, follow=True)
    assert read_messages(response) == ["7 jobs were cancelled."]
    assert Job.objects.get(pk=other.pk).status == "pending"
    assert LogEntry.objects.count() == 7


def test_long_action_stops_after_a_batch_and_continues_when_repeated(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BATCH_SIZE", 2)
    monkeypatch.setattr(records, "MAX_ACTION_SECONDS", -1.0)
    jobs = [make_job() for _ in range(5)]
    values: dict[str, Any] = {"select_across": 1}
    for left in (3, 1, 0):
        response = confirm(client, "job", "cancel", jobs[0].pk, **values)
        assert Job.objects.filter(status="pending").count() == left
        assert any("Repeat the action" in text for text in read_messages(response)) == (
            left > 0
        )


def test_action_on_nothing_chosen_changes_nothing(client: Client, rows: Rows) -> None:
    act(client, "job", "cancel")
    confirm(client, "job", "cancel")
    assert not LogEntry.objects.exists()


@pytest.mark.django_db(databases=["default", "business"])
def test_admin_uses_the_database_of_the_jobs(
    clients: dict[str, Client], settings: Any
) -> None:
    settings.JOBQUEUE = {"DATABASE": "business"}
    client = clients["superuser"]
    job = make_job(scheduled=True)
    dead = make_dead_job()
    assert str(job.pk) in client.get(list_url("job")).content.decode()
    assert client.get(page_url(job)).status_code == 200
    client.post(page_url(job, "cancel"), {"confirmed": 1})
    assert Job.objects.using("business").get(pk=job.pk).status == "cancelled"
    client.post(page_url(job, "delete"), {"confirmed": 1})
    client.post(page_url(dead, "requeue"), {"confirmed": 1, "attempts": "reset"})
    assert Job.objects.using("business").get().pk == dead.pk
    assert not Job.objects.using("default").exists()
    assert LogEntry.objects.using("default").count() == 3
