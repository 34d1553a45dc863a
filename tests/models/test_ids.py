"""The ids of jobs: unique UUIDs of version 7, in the order of their creation."""

from __future__ import annotations

import copy
import os
import pickle
import uuid

from django_jobqueue.models.record import make_id


def test_an_id_is_a_valid_uuid() -> None:
    id = make_id()
    assert id.version == 7
    assert id.variant == uuid.RFC_4122
    assert id == uuid.UUID(str(id)) == uuid.UUID(bytes=id.bytes)
    assert hash(id) == hash(uuid.UUID(str(id)))
    assert pickle.loads(pickle.dumps(id)) == copy.copy(id) == id
    assert repr(id) == repr(uuid.UUID(str(id)))


def test_ids_of_one_process_sort_in_the_order_they_were_made() -> None:
    ids = [make_id() for _ in range(10_000)]
    assert ids == sorted(ids)
    # The random part is unique too: 62 bits of each.
    assert len({id.int & (1 << 62) - 1 for id in ids}) == 10_000


def test_a_forked_process_uses_new_random_bits() -> None:
    make_id()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, make_id().bytes)
        os._exit(0)
    theirs, ours = uuid.UUID(bytes=os.read(reading, 16)), make_id()
    assert os.waitpid(child, 0)[1] == 0
    os.close(reading)
    os.close(writing)
    assert theirs.int & (1 << 62) - 1 != ours.int & (1 << 62) - 1
