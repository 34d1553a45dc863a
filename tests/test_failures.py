"""Exceptions as text that can be stored, whatever their own code does."""

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobqueue.failures import (
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    Failure,
    clean_text,
    describe_end,
    describe_exception,
    find_packages,
)


def raised(error: BaseException) -> BaseException:
    """Return the error with a traceback that ends in this function."""
    try:
        raise error
    except BaseException as caught:
        return caught


def is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def test_failure_names_class_message_and_place() -> None:
    failure = describe_exception(raised(ValueError("no such user")))
    assert failure.exception_class == "ValueError"
    assert failure.message == "no such user"
    assert failure.traceback.startswith("Traceback (most recent call last):")
    assert "in raised" in failure.traceback
    assert failure.traceback.endswith("ValueError: no such user\n")


def test_class_of_a_module_is_named_with_the_module() -> None:
    class Mine(Exception):
        pass

    name = describe_exception(Mine()).exception_class
    assert name.startswith(f"{__name__}.")
    assert name.endswith(".Mine")


def test_short_form_is_class_and_message() -> None:
    failure = Failure(exception_class="app.errors.TooLate", message="by an hour")
    assert failure.short == "TooLate: by an hour"
    assert Failure(exception_class="KeyError").short == "KeyError"
    assert Failure(message="cancelled").short == "cancelled"
    assert Failure().short == ""


def test_nul_and_lone_surrogates_are_replaced() -> None:
    failure = describe_exception(raised(ValueError("a\0b\ud83dc")))
    assert failure.message == "a\ufffdb\ufffdc"
    assert is_storable(failure.traceback)


def test_class_name_is_cleaned_and_capped() -> None:
    strange: Any = type("x" * 500, (Exception,), {"__module__": "bad\ud800"})
    name = describe_exception(strange()).exception_class
    assert is_storable(name)
    assert len(name) == 200


def test_message_of_ten_megabytes_is_capped() -> None:
    failure = describe_exception(raised(ValueError("x" * 10_000_000)))
    assert len(failure.message) == MESSAGE_LIMIT
    assert failure.message.endswith("…")
    assert len(failure.traceback) <= TRACEBACK_LIMIT
    assert len(failure.short) <= MESSAGE_LIMIT


def test_traceback_names_the_frames_even_if_the_message_is_long() -> None:
    failure = describe_exception(raised(ValueError("x" * 10_000_000)))
    assert "in raised" in failure.traceback


@pytest.mark.parametrize("cause", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_exception_whose_str_raises_is_described(
    cause: type[BaseException],
) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise cause("not even that")

        __repr__ = __str__

    failure = describe_exception(raised(Silent()))
    assert failure.message == "(the message of this Silent could not be read)"
    assert "in raised" in failure.traceback


def test_exception_whose_str_returns_no_text_is_described() -> None:
    class Odd(Exception):
        def __str__(self) -> Any:
            return 5

    failure = describe_exception(raised(Odd()))
    assert failure.message == "(the message of this Odd could not be read)"


def test_exception_whose_str_recurses_is_described() -> None:
    class Endless(Exception):
        def __str__(self) -> str:
            return str(self)

    failure = describe_exception(raised(Endless()))
    assert failure.message == "(the message of this Endless could not be read)"


def test_exception_whose_notes_cannot_be_read_keeps_its_traceback() -> None:
    class Secretive(Exception):
        @property
        def __notes__(self) -> Any:
            raise RuntimeError("no notes")

    failure = describe_exception(raised(Secretive("boo")))
    assert failure.message == "boo"
    assert "in raised" in failure.traceback


def test_exception_group_shows_what_is_inside() -> None:
    inner: list[Any] = [raised(ValueError("one")), raised(KeyError("two"))]
    failure = describe_exception(raised(ExceptionGroup("both", inner)))
    assert failure.exception_class == "ExceptionGroup"
    assert failure.message == "both (2 sub-exceptions)"
    assert "ValueError: one" in failure.traceback
    assert "KeyError: 'two'" in failure.traceback


def test_nested_groups_are_described() -> None:
    group: Exception = ValueError("innermost")
    for _ in range(5000):
        group = ExceptionGroup("outer", [group])
    failure = describe_exception(raised(group))
    assert failure.exception_class == "ExceptionGroup"
    assert len(failure.traceback) <= TRACEBACK_LIMIT


def test_cause_is_part_of_the_traceback() -> None:
    error = ValueError("outer")
    error.__cause__ = raised(KeyError("inner"))
    failure = describe_exception(raised(error))
    assert "KeyError: 'inner'" in failure.traceback
    assert failure.traceback.endswith("ValueError: outer\n")


def test_a_cycle_of_causes_is_cut_off() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert describe_exception(first).message == "first"


def test_recursion_error_is_capped() -> None:
    def recurse(depth: int) -> int:
        return recurse(depth + 1) + 1

    with pytest.raises(RecursionError) as caught:
        recurse(0)
    failure = describe_exception(caught.value)
    assert failure.exception_class == "RecursionError"
    assert len(failure.traceback) <= TRACEBACK_LIMIT
    assert failure.traceback.count("in recurse") < sys.getrecursionlimit() // 2


def test_a_deep_traceback_names_its_first_and_last_frame() -> None:
    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        else:
            arrive()

    def arrive() -> None:
        raise ValueError("so deep")

    with pytest.raises(ValueError, match="so deep") as caught:
        descend(200)
    failure = describe_exception(caught.value)
    assert "in test_a_deep_traceback_names" in failure.traceback
    assert "in arrive" in failure.traceback


def test_a_chain_that_is_too_long_is_shown_from_its_end() -> None:
    error: BaseException = KeyError("the first")
    for number in range(1000):
        try:
            raise ValueError(f"link {number}") from error
        except ValueError as caught:
            error = caught
    shown = describe_exception(error).traceback
    assert "ValueError: link 999\n" in shown
    assert "direct cause of the following exception" in shown
    assert shown.index("ValueError: link 998\n") < shown.index("ValueError: link 999\n")
    assert "the first" not in shown


def test_a_group_that_is_too_large_is_shown_from_its_beginning() -> None:
    members: list[Any] = [ValueError(str(number)) for number in range(1000)]
    shown = describe_exception(raised(ExceptionGroup("many", members))).traceback
    assert "in raised" in shown
    assert "ExceptionGroup: many (1000 sub-exceptions)\n" in shown
    assert "  | ValueError: 0\n" in shown
    assert "ValueError: 999\n" not in shown


def test_a_class_without_a_module_is_stored_by_its_name() -> None:
    homeless: Any = type("Homeless", (Exception,), {"__module__": None})
    assert describe_exception(homeless()).exception_class == "Homeless"
    assert find_packages(homeless()) == {"", "builtins"}


def test_describing_works_at_the_bottom_of_the_stack() -> None:
    def recurse() -> Failure:
        try:
            return recurse()
        except RecursionError as error:
            return describe_exception(error)

    # The deepest call that had enough stack left has described the error.
    assert recurse().exception_class == "RecursionError"


def test_fingerprint_is_the_same_for_another_message() -> None:
    one = describe_exception(raised(ValueError("user 1")), job_type="mail")
    two = describe_exception(raised(ValueError("user 2")), job_type="mail")
    assert one.fingerprint == two.fingerprint
    assert len(one.fingerprint) == 16


def test_fingerprint_differs_by_class_job_type_and_place() -> None:
    def elsewhere() -> BaseException:
        try:
            raise ValueError("user 1")
        except ValueError as caught:
            return caught

    fingerprints = {
        describe_exception(error, job_type=job_type).fingerprint
        for error, job_type in [
            (raised(ValueError("user 1")), "mail"),
            (raised(KeyError("user 1")), "mail"),
            (raised(ValueError("user 1")), "report"),
            (elsewhere(), "mail"),
        ]
    }
    assert len(fingerprints) == 4


def test_an_end_without_an_exception_is_described_like_one() -> None:
    failure = describe_end("WorkerCrashed", "it\0died", job_type="mail", place="there")
    assert failure.short == "WorkerCrashed: it\N{REPLACEMENT CHARACTER}died"
    assert failure.traceback == ""
    others = [
        describe_end("Other", "", job_type="mail", place="there"),
        describe_end("WorkerCrashed", "", job_type="report", place="there"),
        describe_end("WorkerCrashed", "", job_type="mail", place="here"),
    ]
    assert len({failure.fingerprint, *(other.fingerprint for other in others)}) == 4


@settings(deadline=None)
@given(st.text(), st.integers(2, 50))
def test_clean_text_is_storable_and_short(text: str, limit: int) -> None:
    cleaned = clean_text(text, limit=limit)
    assert is_storable(cleaned)
    assert len(cleaned) <= limit
    assert len(cleaned) == min(len(text), limit)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_clean_text_keeps_storable_text(text: str) -> None:
    assert clean_text(text) == text


@settings(deadline=None)
@given(st.text())
def test_any_message_can_be_stored(message: str) -> None:
    failure = describe_exception(raised(ValueError(message)))
    assert is_storable(failure.message + failure.traceback + failure.short)
