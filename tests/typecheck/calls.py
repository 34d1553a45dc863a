"""Right and wrong calls, for mypy and pyright; nobody runs or imports this module.

A line that ends in `# wrong` must be an error for both, and no other line for either.
Each call stands on one line, since the two point to different lines of a longer one.
"""

from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, assert_type

from django_jobqueue import BaseHandler, Job, JobContext, JobSpec, handler, job, linear


@job
def plain(user_id: int, *, note: str = "") -> str:
    return note * user_id


@job("calls.named", queue="mail", max_attempts=3, timeout=timedelta(minutes=1))
def named(user_id: int, note: str = "") -> None: ...


@job(takes_context=True, backoff=[1, timedelta(seconds=5)], retry_on=OSError)
def told(context: JobContext, user_id: int) -> bool:
    return context.cancelled


@job(discard_on=(ValueError, KeyError), backoff=lambda attempt, error: attempt * 2.0)
async def later(user_id: int) -> int:
    return user_id


@job("calls.later_told", takes_context=True, backoff=linear(2))
async def later_told(context: JobContext, user_id: int) -> None: ...


@handler("calls.export", queue="reports", atomic=True)
class Export(BaseHandler):
    def execute(self, params: dict[str, Any]) -> None: ...


# A handler is still the function it was.
assert_type(plain(1, note="x"), str)
coroutine: Coroutine[Any, Any, int] = later(1)
plain("1")  # wrong
plain(1, "x")  # wrong


def call_with_context(context: JobContext) -> None:
    assert_type(told(context, 1), bool)
    assert_type(told(context, user_id=1), bool)
    told(1)  # wrong
    told(context)  # wrong


# What is enqueued must fit the signature.
assert_type(plain.enqueue(1, note="x"), Job)
assert_type(plain.enqueue(user_id=1), Job)
assert_type(named.enqueue(1, "x"), Job)
assert_type(later.enqueue(1), Job)
plain.enqueue()  # wrong
plain.enqueue("1")  # wrong
plain.enqueue(user="1")  # wrong
plain.enqueue(1, note=2)  # wrong
plain.enqueue(1, "x")  # wrong
named.enqueue(1, "x", "y")  # wrong
later.enqueue("1")  # wrong

# The worker passes the context, so nobody enqueues it.
assert_type(told.enqueue(1), Job)
assert_type(told.enqueue(user_id=1), Job)
assert_type(later_told.enqueue(1), Job)
told.enqueue(None, 1)  # wrong
told.enqueue()  # wrong
later_told.enqueue(user_id="1")  # wrong


async def enqueue_async() -> None:
    assert_type(await plain.aenqueue(1), Job)
    assert_type(await told.aenqueue(1), Job)
    assert_type(await Job.objects.aenqueue("calls.named", {"user_id": 1}), Job)
    await plain.aenqueue("1")  # wrong
    await told.aenqueue()  # wrong
    await Job.objects.aenqueue("calls.named", priorty=1)  # wrong


# using() keeps the signature and knows the options of a job.
assert_type(plain.using(priority=10, delay=timedelta(minutes=5)).enqueue(1), Job)
assert_type(told.using(unique_key="k", backoff=[1, 5]).enqueue(1), Job)
assert_type(plain.using(tags=["a"], meta={"b": 1}).spec(1), JobSpec)
plain.using(priority=10).enqueue("1")  # wrong
told.using(priority=10).enqueue()  # wrong
plain.using(priority="high")  # wrong
plain.using(prioritty=10)  # wrong
plain.using(run_at="tomorrow")  # wrong
plain.using(tags="urgent")  # wrong
plain.using(atomic=True)  # wrong

# spec() too, for enqueue_many().
Job.objects.enqueue_many([plain.spec(1), told.spec(2), JobSpec("calls.named", {})])
plain.spec("1")  # wrong
told.spec()  # wrong
JobSpec("calls.named", {}, prioritty=1)  # wrong
JobSpec("calls.named", [1])  # wrong

# Classes take any keywords; their options are known all the same.
assert_type(Export.enqueue(year=2026), Job)
assert_type(Export.using(run_at=datetime.now()).enqueue(year=2026), Job)
Export.enqueue(2026)  # wrong
Export.using(prioritty=1)  # wrong

# By name nobody knows the signature, but the options are known.
assert_type(Job.objects.enqueue("calls.named", {"user_id": 1}, priority=1), Job)
Job.objects.enqueue("calls.named", {"user_id": 1}, delay="soon")  # wrong
Job.objects.enqueue("calls.named", {"user_id": 1}, prioritty=1)  # wrong


# The decorators know their options, and what takes_context asks of a function.
@job(max_attemps=3)  # wrong
def misspelt() -> None: ...


@job(queue=3)  # wrong
def numbered() -> None: ...


@job(takes_context=True)  # wrong
def without_context(user_id: int) -> None: ...


@handler("calls.misspelt", prioritty=3)  # wrong
class Misspelt(BaseHandler):
    def execute(self, params: dict[str, Any]) -> None: ...


@handler("calls.function")  # wrong
def function_as_class() -> None: ...
