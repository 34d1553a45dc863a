"""Arguments of a call: positional names, missing ones, hints for unexpected ones."""

from typing import Any

import pytest

from django_jobqueue import job
from django_jobqueue.exceptions import (
    InvalidArguments,
)
from django_jobqueue.registry import (
    get_handler,
)
from tests.testapp.jobs import EmailHandler, add

pytestmark = pytest.mark.usefixtures("own_registry")


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
        "testapp.email takes keyword arguments only; execute() gets them as params."
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


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ({"nam": "x"}, "unexpected 'nam', did you mean 'name'?"),
        (
            {"nam": "x", "tims": 2},
            "unexpected 'nam', did you mean 'name'?; unexpected 'tims', did you mean "
            "'times'?",
        ),
        (
            {"name": "x", "countdown": 5},
            "unexpected 'countdown', which is called 'delay' here: .using(delay=…).",
        ),
        (
            {"name": "x", "eta": 5},
            "unexpected 'eta', which is called 'run_at' here: .using(run_at=…).",
        ),
        (
            {"name": "x", "priority": 5},
            "unexpected 'priority', an option of the job: .using(priority=…).",
        ),
        ({"name": "x", "zzz": 5}, "got an unexpected keyword argument 'zzz'."),
        (
            {"kwargs": {"name": "x"}},
            "missing a required argument: 'name'; unexpected 'kwargs'.",
        ),
    ],
)
def test_unexpected_argument_gets_a_hint(payload: dict[str, Any], fault: str) -> None:
    @job("handlers.greet")
    def greet(name: str, times: int = 1) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        greet.check_arguments(payload)
    assert str(caught.value) == (
        f"handlers.greet takes (name: str, times: int = 1): {fault} The keys of the "
        f"payload are the handler's keyword arguments."
    )


def test_argument_that_fits_gets_no_hint_whatever_its_name() -> None:
    @job("handlers.eta")
    def fit(eta: int, priority: int, nam: str) -> None: ...

    fit.check_arguments({"eta": 1, "priority": 2, "nam": "x"})


@pytest.mark.parametrize("first", ["self", "context"])
def test_missing_context_points_to_takes_context(first: str) -> None:
    scope: dict[str, Any] = {"job": job}
    exec(f"@job('handlers.bound')\ndef bound({first}, x): ...", scope)
    with pytest.raises(InvalidArguments, match=r"@job\(takes_context=True\)"):
        scope["bound"].check_arguments({"x": 1})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("delay", r"Write \.enqueue\(…\) with the arguments of testapp\.add"),
        ("apply_async", r"Write \.using\(delay=…\)\.enqueue\(…\)"),
        ("send", r"Write \.enqueue\(…\) with the arguments of testapp\.add"),
        ("enqueue_at", r"Write \.using\(run_at=…\)\.enqueue\(…\)"),
        ("nonsense", "'Handler' object has no attribute 'nonsense'$"),
    ],
)
def test_methods_of_other_job_systems_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=hint):
        getattr(add, name)
    assert not hasattr(add, name)


def test_hint_for_a_method_is_the_only_suggestion() -> None:
    # Python adds "Did you mean: 'enqueue'?" if the error has the handler as obj.
    with pytest.raises(AttributeError, match=r"Write \.using\(delay=…\)") as caught:
        getattr(add, "enqueue_in")  # noqa: B009
    assert caught.value.obj is None


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
