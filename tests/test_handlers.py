"""Handlers: how a function or class becomes one, and the errors if it cannot."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_jobqueue import BaseHandler, JobContext, exponential, handler, job
from django_jobqueue.exceptions import (
    HandlerError,
    InvalidOption,
    InvalidPriority,
    InvalidTime,
)
from django_jobqueue.handlers import Handler
from django_jobqueue.options import make_options
from django_jobqueue.registry import (
    find_handler,
    get_handler,
)
from tests.testapp.jobs import EmailHandler, add

pytestmark = pytest.mark.usefixtures("own_registry")


def make_context() -> JobContext:
    return JobContext(
        job_id=uuid.UUID(int=1),
        job_type="x",
        attempt=1,
        max_attempts=3,
        deadline=timezone.now(),
    )


def refused(**options: Any) -> str:
    """Return the error message of @job for these options."""
    with pytest.raises(HandlerError) as caught:

        @job("refused", **options)
        def function() -> None: ...

    return str(caught.value)


def test_job_without_a_name_is_called_by_app_and_function() -> None:
    assert add.name == "testapp.add"
    assert get_handler("testapp.add") is add


def test_job_outside_of_every_app_is_called_by_its_module() -> None:
    @job
    def lonely() -> None: ...

    assert lonely.name == f"{__name__}.lonely"


def test_job_may_be_named() -> None:
    @job("mail.send:v2")
    def send() -> None: ...

    assert send.name == "mail.send:v2"
    assert find_handler("mail.send:v2") is send


def test_plain_function_stays_callable() -> None:
    assert add(2, y=3) == 5
    assert add.__name__ == "add"


def test_plain_coroutine_function_stays_callable() -> None:
    @job("handlers.later")
    async def later(x: int) -> int:
        return x

    assert asyncio.run(later(4)) == 4  # type: ignore[arg-type]
    assert later.is_async


@pytest.mark.parametrize("name", ["", "a b", "x" * 201, "ä", "a/b", "a\n"])
def test_impossible_name_is_refused(name: str) -> None:
    with pytest.raises(HandlerError) as caught:
        job(name)(lambda: None)
    assert str(caught.value) == (
        f"A job's name has 1 to 200 letters, digits, dots, colons, dashes or "
        f"underscores, not {name!r}. Write @job('app.name')."
    )


def test_lambda_without_a_name_is_refused() -> None:
    with pytest.raises(HandlerError, match=r"Write a function with def and @job"):
        job(lambda: None)


def test_method_is_refused() -> None:
    with pytest.raises(HandlerError, match=r"Orders\.pack is a method"):

        class Orders:
            @job
            def pack(self, order_id: int) -> None: ...


def test_job_on_a_class_points_to_handler() -> None:
    with pytest.raises(HandlerError, match="for a class there is @handler"):

        @job("handlers.cls")
        class Cls: ...


def test_misspelt_option_suggests_the_closest_one() -> None:
    assert refused(max_attemps=3) == (
        "The handler 'refused' has no option 'max_attemps'. Did you mean "
        "'max_attempts'?"
    )


def test_misspelt_option_of_a_class_suggests_the_closest_one() -> None:
    with pytest.raises(HandlerError, match="Did you mean 'max_attempts'"):

        @handler("handlers.misspelt", max_attemps=3)
        class Misspelt(BaseHandler):
            def execute(self, params: dict[str, Any]) -> None: ...


def test_name_as_a_keyword_is_refused_and_shown_as_the_first_argument() -> None:
    assert refused(name="another") == (
        "The handler 'refused' has no option 'name'. The name is the first argument: "
        "@job('app.name')."
    )


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (
            {"bind": True},
            "Write takes_context=True, which passes a JobContext as the first "
            "argument, named `context`.",
        ),
        (
            {"max_retries": 3},
            "Write max_attempts=…, which counts the first attempt too.",
        ),
        ({"time_limit": 3}, "Write timeout=…, which takes seconds or a timedelta."),
        (
            {"unique_key": "x"},
            "It belongs to one job: .using(unique_key=…).enqueue(…).",
        ),
    ],
)
def test_option_of_another_place_or_system_gets_a_hint(
    options: dict[str, Any], hint: str
) -> None:
    [name] = options
    assert refused(**options) == f"The handler 'refused' has no option {name!r}. {hint}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 101}, "A priority is a whole number from -100 to 100"),
        ({"queue": "a b"}, "A queue name has 1 to 64 letters"),
        ({"max_attempts": 0}, "max_attempts is a whole number from 1 to 32000"),
        ({"timeout": 0}, "timeout is a timedelta or seconds above 0"),
        ({"backoff": -1}, "backoff takes seconds, a timedelta"),
        ({"retry_on": {ValueError: "soon"}}, "backoff takes seconds, a timedelta"),
    ],
)
def test_wrong_option_names_the_handler(options: Any, message: str) -> None:
    assert refused(**options).startswith(f"The handler 'refused': {message}")


@pytest.mark.parametrize("option", ["retry_on", "discard_on"])
@pytest.mark.parametrize("value", ["ValueError", (ValueError, 5), ValueError("x"), int])
def test_classes_that_are_no_exceptions_are_refused(option: str, value: Any) -> None:
    assert f"{option} takes an exception class or a tuple of them, not " in refused(
        **{option: value}
    )


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, None),
        (ValueError, {ValueError: None}),
        ((ValueError, KeyError), {ValueError: None, KeyError: None}),
        ({ValueError: None}, {ValueError: None}),
        ({ValueError: exponential(2, 9)}, {ValueError: exponential(2, 9)}),
    ],
)
def test_retry_on_is_read_in_every_form(given: Any, read: Any) -> None:
    made: Handler[..., Any] = job("handlers.retry", retry_on=given)(lambda: None)
    assert made.retry_on == read


def test_context_must_be_the_first_argument() -> None:
    with pytest.raises(HandlerError) as caught:

        @job("handlers.context", takes_context=True)
        def function(user_id: int) -> None: ...

    assert str(caught.value) == (
        "The handler 'handlers.context' has takes_context=True, so its first argument "
        "must be named 'context'; it is 'user_id'."
    )


@pytest.mark.parametrize("options", [{"atomic": True}, {"databases": ["default"]}])
def test_async_handler_cannot_have_transactions(options: Any) -> None:
    with pytest.raises(HandlerError, match="is async, and Django has no async"):

        @job("handlers.async_atomic", **options)
        async def function() -> None: ...


def test_class_without_execute_is_refused() -> None:
    with pytest.raises(HandlerError) as caught:

        @handler("handlers.empty")
        class Empty(BaseHandler): ...

    assert str(caught.value) == "Empty must define execute(self, params)."


def test_handler_on_a_function_points_to_job() -> None:
    with pytest.raises(HandlerError, match="for a function there is @job"):

        @handler("handlers.function")  # type: ignore[type-var]
        def function() -> None: ...


def test_handler_without_a_name_is_refused() -> None:
    with pytest.raises(HandlerError):

        @handler  # type: ignore[arg-type]
        class Nameless(BaseHandler):
            def execute(self, params: dict[str, Any]) -> None: ...


def test_class_is_called_with_the_payload_and_has_its_context() -> None:
    made = get_handler("testapp.email")
    assert made.queue == "mail"
    assert made.call(make_context(), [], {"to": "ann"}) == "1 to ann"


def test_each_call_gets_a_new_instance() -> None:
    @handler("handlers.instances")
    class Instances(BaseHandler):
        def execute(self, params: dict[str, Any]) -> BaseHandler:
            return self

    context = make_context()
    first, second = (Instances.handler.call(context, [], {}) for _ in range(2))
    assert first is not second
    assert first.context is context


def test_async_class_is_recognised() -> None:
    made = get_handler("testapp.async_email")
    assert made.is_async
    called = made.call(make_context(), [], {"to": "ann"})
    assert asyncio.run(called) == "True ann"


@pytest.mark.parametrize(
    "name", ["call", "make_payload", "check_arguments", "make_policy"]
)
def test_methods_of_a_class_may_have_any_name(name: str) -> None:
    def method(self: BaseHandler) -> str:
        raise AssertionError("called as if it were ours")

    def execute(self: BaseHandler, params: dict[str, Any]) -> dict[str, Any]:
        return params

    cls = type("Busy", (BaseHandler,), {name: method, "execute": execute})
    made = handler("handlers.busy")(cls).handler
    assert made.call(make_context(), [], {"a": 1}) == {"a": 1}
    assert made.spec(a=1).payload == {"a": 1}
    made.check_arguments({"a": 1})
    assert made.make_policy(make_options({}), max_attempts=None, backoff=None)


def test_function_is_called_with_context_first() -> None:
    @job("handlers.contextual", takes_context=True)
    def contextual(context: JobContext, x: int) -> Any:
        return context, x

    context = make_context()
    assert contextual.call(context, [], {"x": 1}) == (context, 1)
    assert contextual.call(context, [2], {}) == (context, 2)


def test_using_leaves_the_handler_as_it_was() -> None:
    urgent = add.using(priority=10, queue="high")
    assert urgent.spec(1).options == {"priority": 10, "queue": "high"}
    assert add.spec(1).options == {}
    assert get_handler("testapp.add") is add
    assert urgent(1, 2) == 3


def test_using_adds_to_earlier_options() -> None:
    twice = add.using(priority=10, queue="high").using(priority=5, unique_key="a")
    assert twice.spec(1).options == {"priority": 5, "queue": "high", "unique_key": "a"}


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"priority": 101}, InvalidPriority),
        ({"prio": 1}, InvalidOption),
        ({"delay": 1, "run_at": timezone.now()}, InvalidTime),
    ],
)
def test_using_refuses_at_once(options: Any, cause: type[Exception]) -> None:
    with pytest.raises(cause):
        add.using(**options)


def test_using_refuses_an_option_that_contradicts_an_earlier_one() -> None:
    later = add.using(delay=5)
    with pytest.raises(InvalidTime):
        later.using(run_at=timezone.now())
    assert later.using(delay=None, run_at=timezone.now())


def test_class_has_the_same_ways_to_be_enqueued() -> None:
    spec = EmailHandler.using(priority=3).spec(to="ann")
    assert (spec.job_type, spec.payload) == ("testapp.email", {"to": "ann"})
    assert spec.options == {"priority": 3}
    assert EmailHandler.spec(to="bob").payload == {"to": "bob"}


def test_policy_takes_the_job_then_the_handler_then_the_settings() -> None:
    options = make_options({"max_attempts": 7, "backoff_base": 2, "backoff_cap": 50})
    plain = job("handlers.plain")(lambda: None)
    strict = job("handlers.strict", max_attempts=5, backoff=[1])(lambda: None)

    policy = plain.make_policy(options, max_attempts=None, backoff=None)
    assert (policy.max_attempts, policy.backoff) == (7, exponential(2, 50))
    policy = strict.make_policy(options, max_attempts=None, backoff=None)
    assert (policy.max_attempts, policy.backoff) == (5, strict.backoff)
    policy = strict.make_policy(options, max_attempts=2, backoff=exponential(9, 9))
    assert (policy.max_attempts, policy.backoff) == (2, exponential(9, 9))


def test_options_of_the_handler_are_read() -> None:
    made = job("handlers.read", timeout=30, priority=-5, queue="low")(lambda: None)
    assert made.timeout == timedelta(seconds=30)
    assert (made.priority, made.queue) == (-5, "low")
    plain = job("handlers.unread")(lambda: None)
    assert (plain.timeout, plain.priority, plain.queue) == (None, 0, "default")
