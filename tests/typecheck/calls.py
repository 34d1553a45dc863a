"""Right and wrong calls, for mypy and pyright; this module is never imported.

A line that ends in `# wrong` must be an error for both; other lines must not be. Each
call is on one line, since the two report different lines of a longer one.
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
def with_context(context: JobContext, user_id: int) -> bool:
    return context.cancelled


@job(discard_on=(ValueError, KeyError), backoff=lambda attempt, error: attempt * 2.0)
async def later(user_id: int) -> int:
    return user_id


@job("calls.later_with_context", takes_context=True, backoff=linear(2))
async def later_with_context(context: JobContext, user_id: int) -> None: ...


@handler("calls.export", queue="reports", atomic=True)
class Export(BaseHandler):
    def execute(self, params: dict[str, Any]) -> None: ...


# A handler keeps the signature of its function.
assert_type(plain(1, note="x"), str)
coroutine: Coroutine[Any, Any, int] = later(1)
plain("1")  # wrong
plain(1, "x")  # wrong


def call_with_context(context: JobContext) -> None:
    assert_type(with_context(context, 1), bool)
    assert_type(with_context(context, user_id=1), bool)
    with_context(1)  # wrong
    with_context(context)  # wrong


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

# The worker passes the context; callers do not enqueue it.
assert_type(with_context.enqueue(1), Job)
assert_type(with_context.enqueue(user_id=1), Job)
assert_type(later_with_context.enqueue(1), Job)
with_context.enqueue(None, 1)  # wrong
with_context.enqueue()  # wrong
later_with_context.enqueue(user_id="1")  # wrong


async def enqueue_async() -> None:
    assert_type(await plain.aenqueue(1), Job)
    assert_type(await with_context.aenqueue(1), Job)
    assert_type(await Job.objects.aenqueue("calls.named", {"user_id": 1}), Job)
    await plain.aenqueue("1")  # wrong
    await with_context.aenqueue()  # wrong
    await Job.objects.aenqueue("calls.named", priorty=1)  # wrong


# using() keeps the signature and knows the options of a job.
assert_type(plain.using(priority=10, delay=timedelta(minutes=5)).enqueue(1), Job)
assert_type(with_context.using(unique_key="k", backoff=[1, 5]).enqueue(1), Job)
assert_type(plain.using(tags=["a"], meta={"b": 1}).spec(1), JobSpec)
plain.using(priority=10).enqueue("1")  # wrong
with_context.using(priority=10).enqueue()  # wrong
plain.using(priority="high")  # wrong
plain.using(prioritty=10)  # wrong
plain.using(run_at="tomorrow")  # wrong
plain.using(tags="urgent")  # wrong
plain.using(atomic=True)  # wrong

# The same holds for spec(), used with enqueue_many().
Job.objects.enqueue_many(
    [plain.spec(1), with_context.spec(2), JobSpec("calls.named", {})]
)
plain.spec("1")  # wrong
with_context.spec()  # wrong
JobSpec("calls.named", {}, prioritty=1)  # wrong
JobSpec("calls.named", [1])  # wrong

# Classes take any keywords; their options are checked too.
assert_type(Export.enqueue(year=2026), Job)
assert_type(Export.using(run_at=datetime.now()).enqueue(year=2026), Job)
Export.enqueue(2026)  # wrong
Export.using(prioritty=1)  # wrong

# By name the signature is unknown, but the options are checked.
assert_type(Job.objects.enqueue("calls.named", {"user_id": 1}, priority=1), Job)
Job.objects.enqueue("calls.named", {"user_id": 1}, delay="soon")  # wrong
Job.objects.enqueue("calls.named", {"user_id": 1}, prioritty=1)  # wrong


# The decorators know their options, and the signature that takes_context needs.
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
