"""Hostile exceptions: the job gets the right state, and a record that can be read.

One worker process runs all cases: each in a thread, in a transaction and on the event
loop, each once as the last attempt of its job and once as the first of two. Then it
runs an ordinary job.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest

from django_jobqueue import DeadJob, Job
from django_jobqueue.failures import MESSAGE_LIMIT, TRACEBACK_LIMIT
from django_jobqueue.models import Attempt, Queue
from tests.processes import WorkerProcess, run_burst
from tests.testapp import jobs
from tests.testapp.hostile_exceptions import (
    CASES,
    raise_atomically,
    raise_in_coroutine,
    raise_in_thread,
)

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(300)]

HANDLERS = {
    "thread": raise_in_thread,
    "transaction": raise_atomically,
    "coroutine": raise_in_coroutine,
}
# Cancels the other cases too, so it has a separate test.
ALONE = "cancel_all_tasks"
MODULE = "tests.testapp.hostile_exceptions"
UNREADABLE = "(the message of this {} could not be read)"


@dataclass(frozen=True)
class Expected:
    """What the record contains: class, start of the message, part of the traceback."""

    name: str
    message: str = "start"
    shown: str = ""


def local(case: str, name: str) -> str:
    return f"{MODULE}.{case}.<locals>.{name}"


EXPECTED = {
    "nul": Expected("ValueError", "before\ufffdafter"),
    "lone_surrogates": Expected("ValueError", "before\ufffd and \ufffdafter"),
    "ten_megabytes": Expected("ValueError", "start xxx", "ValueError: start xxx"),
    "ten_megabytes_of_nul": Expected("ValueError", "start \ufffd"),
    "huge_args": Expected("ValueError", "(0, 1, 2, 3"),
    "control_characters": Expected("ValueError", "start \x1b[31mred"),
    "source_of_control_characters": Expected("ValueError", shown="fail()  # \x1b"),
    "source_of_lone_surrogates": Expected("ValueError", shown="<lone surrogates>"),
    "unreadable_source": Expected("ValueError", shown="no/module.py"),
    "invalid_file_name": Expected("ValueError", shown="od\ufffdd \ufffd.py"),
    "class_name_of_a_megabyte": Expected(f"{MODULE}.{'N' * (199 - len(MODULE) - 1)}…"),
    "class_name_with_nul": Expected(f"{MODULE}.Ren\ufffdam\ufffded"),
    "class_without_a_module": Expected("NoModule"),
    "class_whose_name_raises": Expected(f"{MODULE}.NameRaises"),
    "str_that_raises": Expected(
        local("str_that_raises", "StrRaises"), UNREADABLE.format("StrRaises")
    ),
    "str_that_exits": Expected(
        local("str_that_exits", "StrExits"), UNREADABLE.format("StrExits")
    ),
    "str_that_is_a_hostile_text": Expected(f"{MODULE}.StrIsHostile", "a hostile text"),
    "args_that_cannot_be_shown": Expected(
        "ValueError", UNREADABLE.format("ValueError")
    ),
    "repr_that_raises": Expected(local("repr_that_raises", "ReprRaises")),
    "class_attribute_that_raises": Expected(
        local("class_attribute_that_raises", "ClassRaises")
    ),
    "class_attribute_that_lies": Expected(
        local("class_attribute_that_lies", "ClassLies")
    ),
    "attributes_that_raise": Expected(
        local("attributes_that_raise", "AttributesRaise")
    ),
    "notes_that_raise": Expected(local("notes_that_raise", "NotesRaise")),
    "not_to_be_pickled": Expected(local("not_to_be_pickled", "NotPicklable")),
    "equal_to_everything": Expected(local("equal_to_everything", "EqualToAll")),
    "cyclic_context": Expected("ValueError", "first", "KeyError: 'second'"),
    "cause_of_itself": Expected("ValueError", "first"),
    "ten_thousand_causes": Expected("ValueError", "link 9999", "ValueError: link 9990"),
    "causes_without_end": Expected(
        local("causes_without_end", "EndlessCauses"), shown="EndlessCauses: again"
    ),
    "causes_that_raise": Expected(local("causes_that_raise", "CausesRaise")),
    "long_message_in_every_cause": Expected("ValueError", "link 89 yyy"),
    "group": Expected("ExceptionGroup", "start (2 sub-", "KeyError: 'two'"),
    "groups_in_groups": Expected("ExceptionGroup", "outer (1 sub-"),
    "group_of_many": Expected("ExceptionGroup", "start (50000 sub-", "ValueError: 3"),
    "group_without_end": Expected(
        local("group_without_end", "EndlessGroup"), "start (1 sub-", "ValueError: 3"
    ),
    "group_of_all_kinds": Expected(
        "BaseExceptionGroup", "start (4 sub-", "SystemExit: 3"
    ),
    "system_exit": Expected("SystemExit"),
    "keyboard_interrupt": Expected("KeyboardInterrupt"),
    "generator_exit": Expected("GeneratorExit"),
    "stop_iteration": Expected("StopIteration"),
    "stop_async_iteration": Expected("StopAsyncIteration"),
    "cancelled_error": Expected("asyncio.exceptions.CancelledError"),
    "timeout_error": Expected("TimeoutError"),
    "base_exception": Expected(local("base_exception", "OwnBase")),
    "memory_error": Expected("MemoryError", ""),
    "recursion_error": Expected(
        "RecursionError", "maximum recursion", "return dive(depth + 1) + 1"
    ),
    "recursion_while_another_is_handled": Expected(
        "RecursionError", "maximum recursion", "in dive_again"
    ),
    "stop_iteration_in_a_generator": Expected(
        "RuntimeError", "generator raised StopIteration", "StopIteration: start"
    ),
    "generator_that_fails_while_it_is_closed": Expected(
        "ValueError", "while closing", "GeneratorExit"
    ),
    "syntax_error": Expected("SyntaxError", "", "this is = no python"),
    "syntax_error_with_wrong_types": Expected("SyntaxError"),
    "exit_in_a_task": Expected("SystemExit"),
    "interrupt_in_a_task": Expected("KeyboardInterrupt"),
    "task_group": Expected("ExceptionGroup", "unhandled", "ValueError: in a task"),
    "cancel_own_task": Expected("asyncio.exceptions.CancelledError"),
    "stop_the_loop": Expected("ValueError"),
    "close_the_loop": Expected("RuntimeError", "Cannot close a running event loop"),
    "async_generator": Expected(
        "RuntimeError", "async generator raised StopAsyncIteration"
    ),
    "deep_coroutines": Expected("RecursionError", "maximum recursion"),
}
# Python converts the exception to another one in a coroutine.
ELSEWHERE = {
    ("coroutine", "stop_iteration"): Expected(
        "RuntimeError", "coroutine raised StopIteration", "StopIteration: start"
    ),
}
RUNS = [
    (where, case)
    for case, function in CASES.items()
    for where in HANDLERS
    if case != ALONE
    and (where == "coroutine" or not inspect.iscoroutinefunction(function))
]


@dataclass(frozen=True)
class Record:
    """The rows of one case, as the last attempt and as the first of two."""

    dead: DeadJob
    retried: Job
    attempts: list[Attempt]


@pytest.fixture(scope="module")
def records(
    worker_env: dict[str, str], django_db_blocker: Any
) -> dict[tuple[str, str], Record]:
    """Run all cases in one worker, and ordinary jobs at the end."""
    with django_db_blocker.unblock():
        enqueued = {run: enqueue_both(*run) for run in RUNS}
        ordinary = [jobs.add.enqueue(x=1), jobs.add_async.enqueue(x=1)]
        try:
            log = run_burst(worker_env, "--concurrency", "4")
            # None of them has ended a thread of the worker.
            assert "Exception in thread" not in log
            assert [job.wait(timeout=1).result for job in ordinary] == [2, 2]
            return {run: read_record(*pair) for run, pair in enqueued.items()}
        finally:
            for model in (Job, DeadJob, Attempt, Queue):
                model.objects.all().delete()


def enqueue_both(where: str, case: str) -> tuple[Job, Job]:
    handler = HANDLERS[where]
    last = handler.using(max_attempts=1).enqueue(case=case)
    first = handler.using(max_attempts=2, backoff=3600).enqueue(case=case)
    return last, first


def read_record(last: Job, first: Job) -> Record:
    attempts = Attempt.objects.filter(job_id__in=[last.pk, first.pk])
    return Record(
        dead=DeadJob.objects.get(pk=last.pk),
        retried=Job.objects.get(pk=first.pk),
        # A claim that could not start within a second was released; that is allowed.
        attempts=list(attempts.exclude(outcome="released")),
    )


def test_every_case_has_an_expectation() -> None:
    assert set(CASES) == {*EXPECTED, ALONE}


@pytest.mark.parametrize(("where", "case"), RUNS)
def test_the_job_is_in_the_right_state(
    records: dict[tuple[str, str], Record], where: str, case: str
) -> None:
    record = records[where, case]
    assert (record.dead.reason, record.dead.attempts) == ("exception", 1)
    assert (record.retried.status, record.retried.attempts) == ("scheduled", 1)
    assert [attempt.outcome for attempt in record.attempts] == ["failed", "failed"]
    assert (record.dead.given_back, record.retried.given_back) == (0, 0)


@pytest.mark.parametrize(("where", "case"), RUNS)
def test_the_record_shows_what_was_raised_and_where(
    records: dict[tuple[str, str], Record], where: str, case: str
) -> None:
    expected = ELSEWHERE.get((where, case), EXPECTED[case])
    record = records[where, case]
    short = ": ".join(
        filter(None, [expected.name.rpartition(".")[2], expected.message])
    )
    assert record.dead.error.startswith(short)
    assert record.retried.error == record.dead.error
    assert len(record.dead.error) <= MESSAGE_LIMIT
    assert record.dead.fingerprint
    for attempt in record.attempts:
        assert attempt.exception_class.startswith(expected.name)
        assert attempt.message.startswith(expected.message)
        assert len(attempt.message) <= MESSAGE_LIMIT
        assert "Traceback (most recent call last):\n" in attempt.traceback
        assert f"in {case}" in attempt.traceback
        assert expected.shown in attempt.traceback
        assert len(attempt.traceback) <= TRACEBACK_LIMIT


@pytest.mark.django_db(transaction=True)
def test_worker_runs_on_after_a_job_that_cancels_all_tasks(
    worker_env: dict[str, str],
) -> None:
    hostile = raise_in_coroutine.using(max_attempts=1).enqueue(case=ALONE)
    ordinary = [jobs.add_async.enqueue(x=n) for n in range(3)]

    with WorkerProcess(worker_env, "--concurrency", "1") as worker:
        assert [job.wait(timeout=30).result for job in ordinary] == [1, 2, 3]
        worker.wait_until_logged("a job has stopped the event loop")
        assert worker.stop() == 0

    assert DeadJob.objects.get(pk=hostile.pk).error == "CancelledError: start"
