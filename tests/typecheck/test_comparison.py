"""The comparison itself: `make lint` runs the type checkers."""

from tests.typecheck.__main__ import CALLS, compare, find_expected


def test_the_comments_say_which_lines_are_wrong() -> None:
    assert find_expected("f()\nf(1)  # wrong\nf(2)  # not wrong at all\n") == {2}
    assert len(find_expected(CALLS.read_text())) > 30


def test_an_error_on_each_wrong_line_passes() -> None:
    assert compare("mypy", [(2, "no"), (2, "no, no")], {2}) == []


def test_an_error_that_is_missing_or_unexpected_is_reported() -> None:
    assert compare("mypy", [(1, "Too few\nfor f")], {2}) == [
        "mypy: line 1 is right, but: Too few",
        "mypy: line 2 is wrong, but has no error",
    ]
