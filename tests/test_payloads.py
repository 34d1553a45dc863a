"""JSON validation: what a payload and a result may hold, and the error messages."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from django.http import HttpRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobqueue.exceptions import (
    InvalidPayload,
    InvalidResult,
    PayloadTooLarge,
    ResultTooLarge,
)
from django_jobqueue.payloads import dump_json, dump_payload, dump_result
from tests.testapp.models import Effect

LIMIT = 1 << 20
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Opaque:
    pass


def nest(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def contain_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


NO_JSON = [
    (
        float("nan"),
        "payload['x'] is nan, which JSON does not have; use None or a text.",
    ),
    (
        float("inf"),
        "payload['x'] is inf, which JSON does not have; use None or a text.",
    ),
    (
        float("-inf"),
        "payload['x'] is -inf, which JSON does not have; use None or a text.",
    ),
    (
        "a\0b",
        "payload['x'] contains a NUL character, which PostgreSQL cannot store.",
    ),
    (
        "\ud83d",
        "payload['x'] contains a lone surrogate, which is not valid Unicode.",
    ),
    (
        {1: "one"},
        "payload['x'] has the key 1; JSON keys are strings, use '1'.",
    ),
    (
        {None: "none"},
        "payload['x'] has the key None; JSON keys are strings, use 'None'.",
    ),
    (
        {(1, 2): 3},
        "payload['x'] has the key (1, 2); JSON keys are strings, use '(1, 2)'.",
    ),
    (
        {"a\0": 1},
        "the key 'a\\x00' of payload['x'] contains a NUL character, which PostgreSQL "
        "cannot store.",
    ),
    (
        {"\udfff": 1},
        "the key '\\udfff' of payload['x'] contains a lone surrogate, which is not "
        "valid Unicode.",
    ),
    (
        b"bytes",
        "payload['x'] is of type bytes, which JSON does not have; decode it, or pass "
        "it in base64.",
    ),
    (
        bytearray(b"bytes"),
        "payload['x'] is of type bytearray, which JSON does not have; decode it, or "
        "pass it in base64.",
    ),
    (
        Effect(name="unsaved"),
        "payload['x'] is a model instance (Effect), which JSON does not have; pass its "
        "primary key and load it in the handler.",
    ),
    (
        {1, 2},
        "payload['x'] is of type set, which JSON does not have; pass a list.",
    ),
    (
        frozenset({1}),
        "payload['x'] is of type frozenset, which JSON does not have; pass a list.",
    ),
    (
        MOMENT,
        "payload['x'] is of type datetime, which JSON does not have; pass "
        "value.isoformat().",
    ),
    (
        date(2026, 1, 1),
        "payload['x'] is of type date, which JSON does not have; pass "
        "value.isoformat().",
    ),
    (
        UUID(int=1),
        "payload['x'] is of type UUID, which JSON does not have; pass str(value).",
    ),
    (
        Decimal("1.5"),
        "payload['x'] is of type Decimal, which JSON does not have; pass str(value).",
    ),
    (
        Effect.objects.all(),
        "payload['x'] is of type QuerySet, which JSON does not have; pass a list of "
        "primary keys: list(….values_list('pk', flat=True)).",
    ),
    (
        HttpRequest(),
        "payload['x'] is of type HttpRequest, which JSON does not have; pass the "
        "values that the handler needs, such as request.user.pk.",
    ),
    (
        print,
        "payload['x'] is of type builtin_function_or_method, which JSON does not have; "
        "pass data, and choose the code in the handler.",
    ),
    (
        Opaque(),
        "payload['x'] is of type Opaque, which JSON does not have; pass its text or "
        "its parts.",
    ),
    (
        [1, [2, {"deep": {3}}]],
        "payload['x'][1][1]['deep'] is of type set, which JSON does not have; pass a "
        "list.",
    ),
    (
        nest(100_000),
        "payload is nested too deeply or contains itself; flatten it.",
    ),
    (
        contain_itself(),
        "payload is nested too deeply or contains itself; flatten it.",
    ),
]


@pytest.mark.parametrize(
    ("value", "message"), NO_JSON, ids=[message[:60] for _, message in NO_JSON]
)
def test_payload_that_is_not_json_says_where_and_what_to_do(
    value: Any, message: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        dump_payload({"x": value}, limit=LIMIT)
    assert str(caught.value) == message


def test_non_string_key_at_the_top_is_refused() -> None:
    with pytest.raises(InvalidPayload) as caught:
        dump_payload({1: "one"}, limit=LIMIT)
    assert str(caught.value) == (
        "payload has the key 1; JSON keys are strings, use '1'."
    )


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        ([1], "of type list"),
        ("text", "of type str"),
        (5, "of type int"),
        (None, "of type NoneType"),
        (Effect(name="x"), "a model instance (Effect)"),
    ],
)
def test_payload_that_is_no_dict_is_refused(payload: Any, name: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        dump_payload(payload, limit=LIMIT)
    assert str(caught.value) == (
        f"The payload is a dict of the handler's keyword arguments, not {name}. Pass "
        f"something like {{'user_id': 1}}."
    )


def test_payload_above_the_limit_says_both_sizes() -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        dump_payload({"x": "a" * 2000}, limit=1500)
    assert str(caught.value) == (
        "The payload has 2,008 bytes of JSON; MAX_PAYLOAD_BYTES allows 1,500. Store "
        "the data elsewhere and pass a reference to it."
    )


def test_limit_counts_bytes_not_characters() -> None:
    payload = {"x": "ä" * 10}
    assert dump_payload(payload, limit=28)
    with pytest.raises(PayloadTooLarge):
        dump_payload(payload, limit=27)


def test_integer_too_long_for_text_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="payload is not JSON: Exceeds the limit"):
        dump_payload({"x": 10**5000}, limit=LIMIT)


def test_text_that_only_looks_like_nul_is_accepted() -> None:
    payload = {"x": "\\u0000"}
    assert json.loads(dump_payload(payload, limit=LIMIT)) == payload


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        ({}, {}),
        ({"x": (1, 2)}, {"x": [1, 2]}),
        ({"x": Colour.RED}, {"x": "red"}),
        ({"x": Level.HIGH}, {"x": 3}),
        ({Colour.RED: 1}, {"red": 1}),
        (
            {"x": [None, True, 1.5, {"y": "ü🎉"}]},
            {"x": [None, True, 1.5, {"y": "ü🎉"}]},
        ),
    ],
)
def test_payload_is_stored_as_json(payload: Any, stored: Any) -> None:
    assert json.loads(dump_payload(payload, limit=LIMIT)) == stored


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(deadline=None)
@given(st.dictionaries(texts, values, max_size=4))
def test_every_json_object_comes_back_as_it_was(payload: dict[str, Any]) -> None:
    assert json.loads(dump_payload(payload, limit=LIMIT)) == payload


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.text(), max_size=3))
def test_every_text_is_either_stored_or_refused(payload: dict[str, str]) -> None:
    joined = "".join([*payload, *payload.values()])
    is_storable = "\0" not in joined and not any(
        "\ud800" <= character <= "\udfff" for character in joined
    )
    if is_storable:
        assert json.loads(dump_payload(payload, limit=LIMIT)) == payload
    else:
        with pytest.raises(InvalidPayload):
            dump_payload(payload, limit=LIMIT)


def test_result_of_none_is_no_result() -> None:
    assert dump_result(None, limit=LIMIT) is None


@pytest.mark.parametrize("result", [0, "", [], {}, False, [1, {"a": None}]])
def test_result_may_be_any_json(result: Any) -> None:
    text = dump_result(result, limit=LIMIT)
    assert text is not None
    assert json.loads(text) == result


def test_result_that_is_not_json_says_so() -> None:
    with pytest.raises(InvalidResult) as caught:
        dump_result({"at": MOMENT}, limit=LIMIT)
    assert str(caught.value) == (
        "result['at'] is of type datetime, which JSON does not have; return "
        "value.isoformat(). A result is JSON or None."
    )


def test_result_above_the_limit_says_both_sizes() -> None:
    with pytest.raises(ResultTooLarge) as caught:
        dump_result("a" * 2000, limit=1500)
    assert str(caught.value) == (
        "The result has 2,002 bytes of JSON; MAX_RESULT_BYTES allows 1,500. Store the "
        "data elsewhere and return a reference to it."
    )


def test_other_json_is_named_in_its_error() -> None:
    assert dump_json(["a"], name="tags") == '["a"]'
    with pytest.raises(InvalidPayload, match=r"^meta\['a'\] is of type set"):
        dump_json({"a": {1}}, name="meta")
