"""An operator's way through the admin, in a real browser.

Every page is checked in light and dark, wide and narrow: no console error, nothing that
the Content-Security-Policy refuses, no page wider than its window. The screenshots stay
in pytest's temporary folder, whose path is printed (`-s`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from django_jobqueue.models import DeadJob, Job
from tests.browser.shop import fill_shop, find_dead_job, find_job, make_handlers

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
]

VIEWS = {
    "light-wide": ({"width": 1280, "height": 800}, "light"),
    "dark-wide": ({"width": 1280, "height": 800}, "dark"),
    "light-narrow": ({"width": 400, "height": 800}, "light"),
    "dark-narrow": ({"width": 400, "height": 800}, "dark"),
}


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_jobqueue.registry._registry", make_handlers())
    fill_shop()


@pytest.fixture
def walker(chromium: Any, server: str, shop: None, pictures: Path) -> Iterator[Walker]:
    get_user_model().objects.create_superuser("operator", password="secret")
    context = chromium.new_context(base_url=server)
    walker = Walker(context.new_page(), pictures)
    yield walker
    context.close()


class Walker:
    """A page, the errors seen on it, and the folder of its screenshots."""

    def __init__(self, page: Any, pictures: Path) -> None:
        self.page = page
        self.pictures = pictures
        self.faults: list[str] = []
        page.set_default_timeout(15_000)
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("response", self._note_response)

    def log_in(self) -> None:
        self.page.goto("/admin/")
        self.page.fill("#id_username", "operator")
        self.page.fill("#id_password", "secret")
        self.follow("input[type=submit]")

    def follow(self, selector: str) -> None:
        """Click, and wait until the next page has loaded."""
        with self.page.expect_navigation():
            self.page.click(selector)

    def check_views(self, name: str) -> None:
        """Take a screenshot in every view, and check that the page fits into each."""
        for view, (size, scheme) in VIEWS.items():
            self.page.set_viewport_size(size)
            self.page.emulate_media(color_scheme=scheme)
            path = self.pictures / f"{name}-{view}.png"
            self.page.screenshot(path=path, full_page=True)
            if view.endswith("narrow"):
                width = self.page.evaluate("document.documentElement.scrollWidth")
                assert width <= size["width"], f"{name} is {width} px wide"
        self.page.set_viewport_size(VIEWS["light-wide"][0])
        self.page.emulate_media(color_scheme="light")
        assert self.faults == []

    def read_messages(self) -> str:
        return str(self.page.inner_text(".messagelist"))

    def _note_console(self, message: Any) -> None:
        is_icon = message.location["url"].endswith("/favicon.ico")
        if message.type in ("error", "warning") and not is_icon:
            self.faults.append(f"{message.type}: {message.text}")

    def _note_response(self, response: Any) -> None:
        if response.status >= 400 and not response.url.endswith("/favicon.ico"):
            self.faults.append(f"{response.status}: {response.url}")


def test_operator_walks_from_the_list_to_the_end_of_a_job(walker: Walker) -> None:
    page = walker.page
    walker.log_in()
    walker.check_views("index")

    walker.follow("#content a[href='/admin/jobqueue/job/']")
    walker.check_views("jobs")
    walker.follow("#changelist-filter a[href='?status=running']")
    assert page.locator("#result_list tbody tr").count() == 3
    walker.check_views("jobs-running")

    report = find_job("monthly_report")
    walker.follow(f"#result_list a[href*='{report.pk}']")
    assert page.locator("progress").get_attribute("value") == "0.6200"
    walker.check_views("job-running")
    page.emulate_media(color_scheme="dark")
    track = page.locator("progress").evaluate("e => getComputedStyle(e).background")
    assert max(map(int, re.findall(r"\d+", track)[:3])) < 100, "the track is dark too"
    page.emulate_media(color_scheme="light")

    walker.follow(".object-tools button:has-text('Cancel')")
    assert "asked to stop" in walker.read_messages()
    report.refresh_from_db()
    assert report.cancel_requested_at is not None
    walker.check_views("job-asked-to-stop")


def test_operator_reschedules_a_retry_and_moves_jobs(walker: Walker) -> None:
    page = walker.page
    retried = find_job("charge_card")
    walker.log_in()
    page.goto(f"/admin/jobqueue/job/{retried.pk}/change/")
    walker.check_views("job-retried")

    walker.follow(".object-tools a:has-text('Reschedule')")
    walker.follow("#content input[type=submit]")
    assert "either a time or a delay" in page.inner_text("#content")
    walker.check_views("reschedule")
    page.fill("#id_delay", "5")
    walker.follow("#content input[type=submit]")
    assert "1 job was rescheduled" in walker.read_messages()

    page.goto("/admin/jobqueue/job/?queue=webhooks")
    page.check("#action-toggle")
    page.select_option("select[name=action]", "move")
    walker.follow(".actions button[type=submit]")
    page.fill("#id_queue", "slow")
    walker.check_views("move")
    walker.follow("#content input[type=submit]")
    assert "3 jobs were moved" in walker.read_messages()
    assert Job.objects.filter(queue="slow").count() == 3


def test_operator_runs_a_job_again(walker: Walker) -> None:
    page = walker.page
    ended = Job.objects.filter(status="succeeded").first()
    assert ended is not None
    walker.log_in()
    page.goto(f"/admin/jobqueue/job/{ended.pk}/change/")
    walker.check_views("job-succeeded")
    walker.follow(".object-tools a:has-text('Run again')")
    walker.check_views("run-again")
    walker.follow("#content input[type=submit]")
    assert "1 new job was enqueued" in walker.read_messages()
    walker.check_views("job-run-again")
    walker.follow(".messagelist a")
    assert "pending" in page.inner_text(".field-status")


def test_operator_requeues_a_dead_job(walker: Walker) -> None:
    page = walker.page
    dead = find_dead_job(job_type="shop.charge_card")
    walker.log_in()
    page.goto("/admin/jobqueue/deadjob/")
    walker.check_views("dead-jobs")
    walker.follow(f"#result_list a[href*='{dead.pk}']")
    assert "PaymentDeclined" in page.inner_text(".jobqueue-attempts")
    walker.check_views("dead-job")
    walker.follow(".field-same_error a")
    assert "PaymentDeclined" in page.inner_text("#changelist-filter")
    walker.check_views("dead-jobs-of-one-error")
    page.go_back()
    walker.follow(".object-tools a:has-text('Requeue')")
    walker.check_views("requeue")
    walker.follow("#content input[type=submit]")
    assert "1 dead job was requeued" in walker.read_messages()
    assert page.url.endswith(f"/admin/jobqueue/job/{dead.pk}/change/")
    assert not DeadJob.objects.filter(pk=dead.pk).exists()
    walker.follow(".historylink")
    assert "Requeued" in page.inner_text("#change-history")
    walker.check_views("history")


def test_operator_sees_who_works(walker: Walker) -> None:
    page = walker.page
    walker.log_in()
    page.goto("/admin/jobqueue/workerheartbeat/")
    assert page.locator("#result_list .jobqueue-bad").inner_text() == "! stale"
    walker.check_views("workers")
    walker.follow("#result_list tbody tr:first-child th a")
    walker.check_views("worker")
    walker.follow("#content .field-jobs a")
    assert page.locator("#result_list tbody tr").count() == 3
    page.goto("/admin/jobqueue/attempt/")
    walker.follow("#result_list tbody tr:first-child th a")
    walker.check_views("attempt")
    page.goto("/admin/jobqueue/queue/")
    walker.check_views("queues")
    walker.follow("#result_list a:has-text('webhooks')")
    assert "3 waiting" in page.inner_text(".field-jobs")
    walker.check_views("queue")
