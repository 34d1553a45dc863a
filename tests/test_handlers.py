"""Handlers: how a function or class becomes one, what it is told when it cannot, and
how they are found."""

import asyncio
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import modify_settings
from django.utils import timezone

from django_jobqueue import BaseHandler, JobContext, exponential, handler, job, registry
from django_jobqueue.exceptions import (
    HandlerError,
    InvalidArguments,
    InvalidOption,
    InvalidPriority,
    InvalidTime,
    UnknownJobType,
)
from django_jobqueue.handlers import Handler
from django_jobqueue.options import make_options
from django_jobqueue.registry import (
    all_handlers,
    autodiscover,
    find_handler,
    get_handler,
)
from tests.testapp.jobs import EmailHandler, add


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after each test what it registered."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "duplicates", [])


def make_context() -> JobContext:
    return JobContext(
        job_id=uuid.UUID(int=1),
        job_type="x",
        attempt=1,
        max_attempts=3,
        deadline=timezone.now(),
    )


def refused(**options: Any) -> str:
    """Return what @job says to these options."""
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
    with pytest.raises(HandlerError, match=r"not '.*<lambda>'"):
        job(lambda: None)


def test_job_on_a_class_points_to_handler() -> None:
    with pytest.raises(HandlerError, match="for a class there is @handler"):

        @job("handlers.cls")
        class Cls: ...


def test_misspelt_option_asks_whether_its_neighbour_was_meant() -> None:
    assert refused(max_attemps=3) == (
        "The handler 'refused' has no option 'max_attemps'. Did you mean "
        "'max_attempts'?"
    )


def test_misspelt_option_of_a_class_asks_the_same() -> None:
    with pytest.raises(HandlerError, match="Did you mean 'max_attempts'"):

        @handler("handlers.misspelt", max_attemps=3)
        class Misspelt(BaseHandler):
            def execute(self, params: dict[str, Any]) -> None: ...


def test_name_given_twice_is_refused() -> None:
    assert "'name'" in refused(name="another")


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


def test_each_call_has_an_instance_of_its_own() -> None:
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
def test_methods_of_a_class_do_not_get_in_the_way(name: str) -> None:
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


def test_positional_arguments_get_their_names() -> None:
    assert add.spec(1, 2).payload == {"x": 1, "y": 2}
    assert add.spec(1, y=2).payload == {"x": 1, "y": 2}
    assert add.spec(x=1).payload == {"x": 1}


def test_positional_arguments_begin_after_the_context() -> None:
    made: Any = get_handler("testapp.leave_effect")
    assert made.spec("a").payload == {"name": "a"}


def test_too_many_positional_arguments_are_refused() -> None:
    with pytest.raises(InvalidArguments) as caught:
        add.spec(1, 2, 3)  # type: ignore[call-arg]
    assert "testapp.add takes (x: " in str(caught.value)
    assert "too many arguments" in str(caught.value)


def test_two_values_for_one_argument_are_refused() -> None:
    with pytest.raises(InvalidArguments, match=r": two values for x\. The keys"):
        add.spec(1, x=2)  # type: ignore[misc]


def test_class_takes_keyword_arguments_only() -> None:
    made: Any = EmailHandler.handler
    with pytest.raises(InvalidArguments) as caught:
        made.spec("ann")
    assert str(caught.value) == (
        "testapp.email takes keyword arguments only; they become its params."
    )


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ({}, "missing a required argument: 'x'"),
        ({"x": 1, "z": 2}, "got an unexpected keyword argument 'z'"),
    ],
)
def test_arguments_that_do_not_fit_show_the_signature(
    payload: dict[str, Any], fault: str
) -> None:
    @job("handlers.fit", takes_context=True)
    def fit(context, x, y=1):  # type: ignore[no-untyped-def]
        ...

    with pytest.raises(InvalidArguments) as caught:
        fit.check_arguments(payload)
    assert str(caught.value) == (
        f"handlers.fit takes (x, y=1): {fault}. The keys of the payload are the "
        f"handler's keyword arguments."
    )


def test_payload_cannot_replace_the_context() -> None:
    made = get_handler("testapp.leave_effect")
    with pytest.raises(
        InvalidArguments, match="multiple values for argument 'context'"
    ):
        made.check_arguments({"context": 1, "name": "a"})


def test_handler_with_open_keywords_takes_everything() -> None:
    @job("handlers.open")
    def take(**kwargs: Any) -> None: ...

    take.check_arguments({"self": 1, "args": 2, "kwargs": 3})


def test_class_takes_every_payload() -> None:
    get_handler("testapp.email").check_arguments({"anything": 1})


def test_using_leaves_the_handler_as_it_was() -> None:
    urgent = add.using(priority=10, queue="high")
    assert urgent.spec(1).options == {"priority": 10, "queue": "high"}
    assert add.spec(1).options == {}
    assert get_handler("testapp.add") is add
    assert urgent(1, 2) == 3


def test_using_adds_to_what_was_used_before() -> None:
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


def test_using_sees_a_contradiction_with_what_was_used_before() -> None:
    later = add.using(delay=5)
    with pytest.raises(InvalidTime):
        later.using(run_at=timezone.now())
    assert later.using(delay=None, run_at=timezone.now())


def test_class_has_the_same_ways_to_be_enqueued() -> None:
    spec = EmailHandler.using(priority=3).spec(to="ann")
    assert (spec.job_type, spec.payload) == ("testapp.email", {"to": "ann"})
    assert spec.options == {"priority": 3}
    assert EmailHandler.spec(to="bob").payload == {"to": "bob"}


def test_policy_asks_the_job_then_the_handler_then_the_settings() -> None:
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


def test_unknown_job_type_asks_whether_its_neighbour_was_meant() -> None:
    with pytest.raises(UnknownJobType) as caught:
        get_handler("testapp.ad")
    assert str(caught.value) == (
        "No handler is registered for the job type 'testapp.ad'. Did you mean "
        "'testapp.add'?"
    )


@pytest.mark.parametrize("name", ["zzzzzzzz", None, 5, ["z"]])
def test_unknown_job_type_without_a_neighbour_says_where_handlers_are(
    name: Any,
) -> None:
    with pytest.raises(UnknownJobType) as caught:
        get_handler(name)
    assert str(caught.value) == (
        f"No handler is registered for the job type {name!r}. Handlers are found in "
        f"the `jobs` and `tasks` modules of the installed apps; is the app in "
        f"INSTALLED_APPS?"
    )


def test_find_handler_returns_none_for_an_unknown_name() -> None:
    assert find_handler("zzzzzzzz") is None


def test_all_handlers_are_listed_by_name() -> None:
    names = list(all_handlers())
    assert names == sorted(names)
    assert {"testapp.add", "testapp.email"} <= set(names)


def test_second_handler_of_a_name_is_noted_and_the_first_stays() -> None:
    @job("handlers.twice")
    def first() -> None: ...

    @job("handlers.twice")
    def second() -> None: ...

    assert get_handler("handlers.twice") is first
    [(name, one, two)] = registry.duplicates
    assert name == "handlers.twice"
    assert one.endswith("first")
    assert two.endswith("second")


def test_module_imported_again_replaces_its_handlers() -> None:
    def define() -> Handler[..., Any]:
        @job("handlers.reloaded")
        def reloaded() -> None: ...

        return reloaded

    define()
    again = define()
    assert get_handler("handlers.reloaded") is again
    assert registry.duplicates == []


@pytest.fixture
def apps_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder of apps, to be imported and forgotten."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write_app(folder: Path, name: str, modules: dict[str, str]) -> None:
    """Write an app whose modules hold one job each, by the name given."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    for path, job_name in modules.items():
        file = folder / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"from django_jobqueue import job\n@job({job_name!r})\ndef found(): ...\n"
        )


def discovered(*apps: str) -> set[str]:
    before = set(all_handlers())
    with modify_settings(INSTALLED_APPS={"append": list(apps)}):
        autodiscover()
    return set(all_handlers()) - before


def test_jobs_and_tasks_modules_are_found(apps_folder: Path) -> None:
    modules = {"jobs.py": "one", "tasks.py": "two", "other.py": "three"}
    write_app(apps_folder, "jq_modules", modules)
    assert discovered("jq_modules") == {"one", "two"}


def test_jobs_packages_are_found_recursively(apps_folder: Path) -> None:
    modules = {
        "jobs/__init__.py": "top",
        "jobs/mail.py": "mail",
        "jobs/reports/__init__.py": "reports",
        "jobs/reports/daily.py": "daily",
        "jobs/reports/deep/__init__.py": "deep",
        "jobs/reports/deep/down.py": "down",
        "tasks/__init__.py": "tasks",
        "tasks/more.py": "more",
    }
    write_app(apps_folder, "jq_packages", modules)
    assert discovered("jq_packages") == set(modules.values())


def test_app_without_jobs_is_passed_over(apps_folder: Path) -> None:
    write_app(apps_folder, "jq_empty", {"other.py": "never"})
    assert discovered("jq_empty") == set()


@pytest.mark.parametrize("path", ["jobs.py", "jobs/__init__.py", "jobs/mail.py"])
def test_broken_module_is_not_passed_over(apps_folder: Path, path: str) -> None:
    modules = {"jobs/__init__.py": "fine"} if path == "jobs/mail.py" else {}
    write_app(apps_folder, "jq_broken", modules)
    file = apps_folder / "jq_broken" / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("import no_such_module_anywhere\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        discovered("jq_broken")


def test_job_of_a_package_is_called_by_its_app(apps_folder: Path) -> None:
    write_app(apps_folder, "jq_label", {"jobs/__init__.py": "jq"})
    (apps_folder / "jq_label" / "jobs" / "mail.py").write_text(
        "from django_jobqueue import job\n@job\ndef send(): ...\n"
    )
    assert discovered("jq_label") == {"jq", "jq_label.send"}
