"""What a worker says of itself when it starts."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobqueue.options import make_options
from django_jobqueue.worker.heartbeat import describe_queues


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ({}, {"queues": "all"}),
        ({"queues": "high:4,default"}, {"queues": "high:4,default"}),
        ({"exclude_queues": "a,b"}, {"queues": "all", "exclude_queues": "a,b"}),
    ],
)
def test_the_line_of_a_start_names_the_queues(
    flags: dict[str, Any], fields: dict[str, str]
) -> None:
    assert describe_queues(make_options(flags)) == fields
