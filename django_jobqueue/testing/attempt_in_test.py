"""AttemptInTest: one attempt in the thread of the test, from the claim to the end.

Made by run.py for each claim. It uses the worker's code for an attempt and the same
transitions, writes the end, records it, and raises what the handler raised.
"""

from __future__ import annotations

import asyncio
import json
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, assert_never

from asgiref.sync import async_to_sync

from ..exceptions import Interruption, JobQueueError, Steering
from ..failures import is_kind
from ..job_log import JobLog, report_late_error
from ..lifecycle.finish import FinishReport, finish_attempts
from ..outcomes import (
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Lost,
    Outcome,
    Retried,
    Succeeded,
)
from ..registry import find_handler, get_handler
from ..states import AttemptOutcome
from ..storage.claims import Claim
from ..storage.endings import Ending
from ..storage.progress import write_progress
from ..worker.running.attempt import arun_attempt, run_attempt
from ..worker.running.attempt_env import AttemptEnv
from ..worker.running.in_flight import InFlightJob
from .fault_kit import Strike, arm
from .ran_jobs import RanAttempt
from .surroundings import Surroundings

if TYPE_CHECKING:
    from .run import JobRun


class AttemptInTest:
    """One attempt in the thread of the test, from claim to finish."""

    def __init__(self, run: JobRun, claim: Claim) -> None:
        self.claim = claim
        self.in_flight = InFlightJob(claim)
        self.handler = find_handler(claim.job_type)
        self.error: BaseException | None = None
        self._run = run
        self._log = JobLog(run.worker_id, is_complete=True)
        self._surroundings = Surroundings(run.options.database)
        # The last progress of an async handler, which cannot query on its event loop.
        self._progress: dict[str, Any] | None = None

    def run(self) -> None:
        """Run the attempt, write its end, record it, and raise what it raised."""
        strike = arm(
            self.in_flight, self.handler, self._run.options, self._run.worker_id
        )
        with strike:
            ending = self._call()
        ending = strike.judge(ending)
        self._write_progress()
        report = self._finish(ending)
        self._record(ending, report)
        self._raise(report, strike)
        self._run_hooks()
        if not report.lost and ending.label == AttemptOutcome.UNKNOWN_HANDLER:
            self._raise_unknown()

    def _call(self) -> Ending:
        env = AttemptEnv(
            options=self._run.options,
            worker_id=self._run.worker_id,
            report_progress=self._report_progress,
            report_started=self._log.report_started,
            report_error=self._note_error,
            keeps_locals=True,
            tidy=self._surroundings.restore,
            needs_tidying=lambda: True,
            is_enclosed=self._surroundings.is_enclosed,
        )
        run = run_attempt
        if self.handler is not None and self.handler.is_async:
            run = async_to_sync(arun_attempt)
        try:
            # As in a worker: neither the next attempt nor the test sees what it sets.
            return copy_context().run(run, self.in_flight, env)
        finally:
            self._surroundings.restore()

    def _note_error(self, error: BaseException) -> None:
        self.error = error

    def _report_progress(self, claim: Claim, progress: dict[str, Any]) -> None:
        self._progress = progress
        if self.handler is not None and not self.handler.is_async:
            self._write_progress()

    def _write_progress(self) -> None:
        progress, self._progress = self._progress, None
        if progress is None:
            return
        lost = write_progress(
            self._run.db, {self.claim: progress}, worker_id=self._run.worker_id
        )
        self.in_flight.flags.lost = self.in_flight.flags.lost or bool(lost)

    def _finish(self, ending: Ending) -> FinishReport:
        if ending.is_written:
            report = FinishReport(done=[ending])
        else:
            report = finish_attempts(
                self._run.db,
                [ending],
                worker_id=self._run.worker_id,
                options=self._run.options,
            )
        if report.busy:
            raise JobQueueError(
                f"The row of the job {self.claim.id} is locked by another connection, "
                f"so its end cannot be written. End that transaction first."
            )
        for unwritten in report.unwritten:
            raise unwritten.error
        for done in report.done:
            self._log.report_ended(done)
        for lost in report.lost:
            self._log.report_lost(lost.claim, what=type(lost.outcome).__name__.lower())
        return report

    def _record(self, ending: Ending, report: FinishReport) -> None:
        claim = self.claim
        # The written end may differ: a job with a cancel request is cancelled.
        ending = report.done[0] if report.done else ending
        values: dict[str, Any] = {"outcome": str(AttemptOutcome.LOST)}
        if not report.lost:
            values = {"outcome": str(ending.label), **_describe(ending.outcome)}
        self._run.ran.append(
            RanAttempt(
                job_id=claim.id,
                job_type=claim.job_type,
                queue=claim.queue,
                attempt=claim.attempt,
                exception=self.error,
                **values,
            )
        )

    def _raise(self, report: FinishReport, strike: Strike) -> None:
        error = self.error
        if error is None or strike.is_own(error):
            return
        is_wanted = self._run.raise_errors and not report.lost
        if _is_for_test_runner(error) or (is_wanted and not is_kind(error, Steering)):
            claim = self.claim
            error.add_note(
                f"Raised by attempt {claim.attempt} of {claim.job_type} {claim.id}, "
                f"and recorded. To continue, pass run_jobs(raise_errors=False)."
            )
            raise error

    def _run_hooks(self) -> None:
        if not self._surroundings.is_enclosed:
            return
        try:
            self._surroundings.run_hooks()
        except Exception as error:
            if self._run.raise_errors:
                raise
            report_late_error(self.claim, error, worker_id=self._run.worker_id)

    def _raise_unknown(self) -> None:
        if self._run.raise_errors:
            get_handler(self.claim.job_type)


def _describe(outcome: Outcome) -> dict[str, Any]:
    """Return the fields of a RanAttempt that depend on the outcome."""
    match outcome:
        case Succeeded(result=result, note=note):
            value = None if result is None else json.loads(result)
            return {"result": value, "error": note}
        case Cancelled(reason=reason):
            return {"error": reason}
        case Died(failure=failure):
            return {"error": failure.short, "is_dead": True}
        case (
            Retried(failure=failure, delay=delay)
            | Crashed(failure=failure, delay=delay)
            | GivenBack(failure=failure, delay=delay)
        ):
            return {"error": failure.short, "delay": delay or None}
        case Lost():
            return {}
        case _:
            assert_never(outcome)


def _is_for_test_runner(error: BaseException) -> bool:
    """Return whether an error is for the test runner, as Ctrl-C and pytest.fail() are.

    A worker would record these too, as it records sys.exit().
    """
    raised_by_jobs = (
        Exception,
        SystemExit,
        GeneratorExit,
        asyncio.CancelledError,
        Interruption,
    )
    return not is_kind(error, raised_by_jobs)
