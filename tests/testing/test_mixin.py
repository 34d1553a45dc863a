"""JobQueueTestMixin: the kit as methods of a TestCase."""

from __future__ import annotations

import unittest
from datetime import timedelta

from django.test import TestCase

from django_jobqueue.testing import JobQueueTestMixin
from tests.testapp import jobs, rehearsed
from tests.testapp.models import Effect


class FailingTests(JobQueueTestMixin, TestCase):
    """Run by the tests below; not collected by pytest."""

    __test__ = False

    def assertEnqueued_fails(self) -> None:  # noqa: N802
        self.assertEnqueued(jobs.add)

    async def aassertEnqueued_fails(self) -> None:  # noqa: N802
        await self.aassertEnqueued(jobs.add)

    def runJobs_fails(self) -> None:  # noqa: N802
        rehearsed.fail_an_assertion.enqueue()
        self.runJobs()


def run_failing(name: str) -> str:
    """Return the output of unittest for a test that fails in this method."""
    result = unittest.TestResult()
    FailingTests(f"{name}_fails")(result)
    [(_, text)] = result.failures
    return text


class MixinTests(JobQueueTestMixin, TestCase):
    def test_jobs_are_asserted_and_run(self) -> None:
        with self.captureJobs() as captured:
            job = jobs.leave_effect.enqueue(name="mixed in")
        assert captured == self.assertEnqueued(jobs.leave_effect) == [job]
        self.assertNotEnqueued(jobs.nothing)
        assert self.runJobs().outcomes == ["succeeded"]
        assert Effect.objects.get().name == "mixed in"

    def test_assertions_fail_as_those_of_unittest_do(self) -> None:
        with self.assertRaisesMessage(
            self.failureException, "No testapp.add was enqueued."
        ):
            self.assertEnqueued(jobs.add)
        jobs.add.enqueue(x=1)
        with self.assertRaisesMessage(
            self.failureException, "1 testapp.add was enqueued, but none was expected."
        ):
            self.assertNotEnqueued(jobs.add)

    def test_unittest_shows_no_frame_of_an_assertion(self) -> None:
        for name in ("assertEnqueued", "aassertEnqueued"):
            with self.subTest(name):
                text = run_failing(name)
                assert "test_mixin.py" in text
                assert "django_jobqueue" not in text

    def test_unittest_shows_the_frames_of_a_failing_handler(self) -> None:
        text = run_failing("runJobs")
        assert "in fail_an_assertion" in text

    def test_jobs_run_at_once(self) -> None:
        with self.eagerJobs():
            assert jobs.add.enqueue(x=1).result == 2

    def test_the_clock_is_moved(self) -> None:
        jobs.add.using(delay=timedelta(hours=1)).enqueue(x=1)
        with self.travelJobs(timedelta(hours=2)):
            assert self.runJobs().results == [2]

    def test_faults_strike(self) -> None:
        rehearsed.pay.enqueue(name="Ada")
        with self.faultJobs(seed=1) as fault:
            fault.deliver_twice(rehearsed.pay)
            assert self.runJobs().outcomes == ["lost", "succeeded"]

    async def test_async_tests_have_their_own_methods(self) -> None:
        await jobs.leave_effect_async.aenqueue(name="awaited")
        await self.aassertEnqueued(jobs.leave_effect_async, count=1)
        await self.aassertNotEnqueued(jobs.add)
        assert (await self.arunJobs()).results == ["awaited"]
        assert await Effect.objects.acount() == 1
