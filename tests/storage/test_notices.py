"""Anyone may NOTIFY: what does not fit is passed over, whatever it is."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobqueue.options import QUEUE_NAME
from django_jobqueue.storage.notices import (
    LATEST_DUE_SECONDS,
    CancelNotice,
    DueNotice,
    PendingNotice,
    read_notice,
)

JOB = UUID(int=7)
WORKER = UUID(int=8)

NONSENSE = [
    "",
    "{",
    "null",
    "[]",
    "7",
    "[" * 7999,
    '{"a":' * 1500,
    '{"pending": {}}',
    '{"pending": []}',
    '{"pending": {"a\\u0000b": 1}}',
    '{"pending": {"a b": 1}}',
    '{"pending": {"": 1}}',
    '{"pending": {"\\ud800": 1}}',
    '{"pending": {"mail": true}}',
    '{"pending": {"mail": null}}',
    '{"pending": {"mail": 1.5}}',
    '{"pending": {"mail": "1"}}',
    '{"pending": {"mail": [1]}}',
    '{"pending": {"mail": 9223372036854775808}}',
    '{"pending": {"mail": -9223372036854775809}}',
    '{"pending": {"mail": 1, "a\\nb": 1}}',
    json.dumps({"pending": {"x" * 65: 1}}),
    '{"pending": {"mail": ' + "9" * 5000 + "}}",
    '{"due": NaN}',
    '{"due": Infinity}',
    '{"due": 1e400}',
    '{"due": -1}',
    '{"due": 1e9}',
    '{"due": true}',
    '{"due": "1"}',
    '{"due": null}',
    '{"cancel": "not-a-uuid", "worker": "not-a-uuid"}',
    f'{{"cancel": "not-a-uuid", "worker": "{WORKER}"}}',
    f'{{"cancel": "{JOB}"}}',
    f'{{"cancel": 7, "worker": "{WORKER}"}}',
]


@pytest.mark.parametrize("payload", NONSENSE, ids=lambda text: text[:40])
def test_nonsense_is_passed_over(payload: str) -> None:
    assert read_notice(payload) is None


def test_what_makes_sense_is_read() -> None:
    assert read_notice('{"pending": {"mail": -5}}') == PendingNotice({"mail": -5})
    assert read_notice('{"due": 2}') == DueNotice(2.0)
    payload = json.dumps({"cancel": str(JOB), "worker": str(WORKER)})
    assert read_notice(payload) == CancelNotice(JOB, WORKER)


_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.uuids().map(str)
)
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
_messages = st.dictionaries(
    st.sampled_from(["pending", "due", "cancel", "worker"]) | st.text(), _values
)


@given(st.text() | _messages.map(json.dumps) | _values.map(json.dumps))
def test_no_payload_gets_past_the_reader_but_a_sound_one(payload: str) -> None:
    match read_notice(payload):
        case None:
            pass
        case PendingNotice(ranks):
            assert all(map(QUEUE_NAME.fullmatch, ranks))
            assert all(-(1 << 63) <= rank < 1 << 63 for rank in ranks.values())
        case DueNotice(seconds):
            assert 0 <= seconds <= LATEST_DUE_SECONDS
        case CancelNotice(job_id, worker_id):
            assert isinstance(job_id, UUID)
            assert isinstance(worker_id, UUID)
