"""How free slots are shared between queues: by weight, without starving a queue."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobqueue.worker.claiming.queue_shares import QueueShares

WEIGHTS = {"high": 4, "default": 1, "low": 1}


def claim(
    shares: QueueShares, slots: int, filled: set[str] | None = None
) -> Counter[str]:
    """Share the slots and note that the filled queues (None: all) gave their quota."""
    quotas = shares.share(slots)
    given = [
        name
        for name, quota in quotas.items()
        if filled is None or name in filled
        for _ in range(quota)
    ]
    shares.note(quotas, given)
    return Counter(given)


@pytest.mark.parametrize("slots", [1, 2, 3, 6, 7, 50])
def test_slots_are_shared_by_weight_over_many_claims(slots: int) -> None:
    shares = QueueShares(WEIGHTS)
    total: Counter[str] = Counter()
    for _ in range(600):
        total += claim(shares, slots)
    assert total.total() == 600 * slots
    unit = 600 * slots / 6
    for name, weight in WEIGHTS.items():
        assert abs(total[name] - unit * weight) <= len(WEIGHTS)


def test_one_slot_starves_no_queue() -> None:
    shares = QueueShares({"heavy": 1000, "light": 1})
    claims = [claim(shares, 1) for _ in range(3003)]
    assert sum(each["light"] for each in claims) == 3


def test_one_slot_goes_round_within_the_sum_of_the_weights() -> None:
    shares = QueueShares(WEIGHTS)
    for _ in range(20):
        total: Counter[str] = Counter()
        for _ in range(6):
            total += claim(shares, 1)
        assert total == WEIGHTS


def test_heavier_queue_comes_first() -> None:
    assert QueueShares({"low": 1, "high": 4}).share(1) == {"high": 1}


def test_slots_fewer_than_queues_leave_some_out() -> None:
    quotas = QueueShares(dict.fromkeys("abcdef", 1)).share(2)
    assert sum(quotas.values()) == 2
    assert all(quota == 1 for quota in quotas.values())


@pytest.mark.parametrize("slots", [0, -1])
def test_no_slots_are_no_quotas(slots: int) -> None:
    assert QueueShares(WEIGHTS).share(slots) == {}


def test_no_queues_are_no_quotas() -> None:
    shares = QueueShares({})
    assert shares.share(5) == {}
    shares.note({}, [])
    assert not shares.may_have_jobs


def test_only_queue_gets_everything() -> None:
    assert QueueShares({"a": 3}).share(7) == {"a": 7}


def test_share_of_an_empty_queue_goes_to_the_others() -> None:
    shares = QueueShares(WEIGHTS)
    claim(shares, 6, filled={"default", "low"})
    assert shares.share(6) == {"default": 3, "low": 3}


def test_queue_that_gave_less_than_its_quota_is_thought_empty() -> None:
    shares = QueueShares({"a": 1, "b": 1})
    assert shares.share(4) == {"a": 2, "b": 2}
    shares.note({"a": 2, "b": 2}, ["a", "b", "b"])
    assert shares.may_have_jobs
    assert shares.share(4) == {"b": 4}


def test_note_says_whether_some_queue_may_have_more() -> None:
    shares = QueueShares({"a": 1, "b": 1})
    shares.note({"a": 1}, ["a"])
    assert shares.may_have_jobs
    shares.note({"a": 1}, [])
    assert shares.may_have_jobs
    shares.note({"b": 1}, [])
    assert not shares.may_have_jobs
    assert shares.share(5) == {}


def test_queue_that_was_woken_gets_its_share_again() -> None:
    shares = QueueShares({"a": 1, "b": 1})
    claim(shares, 2, filled=set())
    shares.mark_nonempty(["a"])
    assert shares.share(4) == {"a": 4}
    shares.mark_nonempty(["b", "unknown"])
    assert shares.share(4) == {"a": 2, "b": 2}


def test_empty_queue_saves_nothing_up() -> None:
    shares = QueueShares({"a": 1, "b": 1})
    claim(shares, 2, filled={"a"})
    for _ in range(100):
        claim(shares, 2)
    shares.mark_nonempty(["b"])
    total: Counter[str] = Counter()
    for _ in range(10):
        total += claim(shares, 2)
    assert abs(total["a"] - total["b"]) <= 2


def test_learned_queues_have_a_weight_of_one() -> None:
    shares = QueueShares({"a": 2})
    shares.learn(["b", "a"])
    assert shares.names == ["a", "b"]
    assert shares.share(6) == {"a": 4, "b": 2}


def test_learning_a_queue_again_changes_nothing() -> None:
    shares = QueueShares({"a": 3, "b": 1})
    shares.learn(["a", "b"])
    assert shares.share(4) == {"a": 3, "b": 1}


@settings(deadline=None)
@given(
    weights=st.dictionaries(
        st.sampled_from("abcdef"), st.integers(1, 1000), min_size=1
    ),
    rounds=st.lists(st.integers(1, 100), max_size=20),
)
def test_quotas_always_add_up_to_the_slots(
    weights: dict[str, int], rounds: list[int]
) -> None:
    shares = QueueShares(weights)
    for slots in rounds:
        quotas = shares.share(slots)
        assert sum(quotas.values()) == slots
        assert all(quota > 0 for quota in quotas.values())


@settings(deadline=None)
@given(
    weights=st.fixed_dictionaries(dict.fromkeys("abcd", st.integers(1, 9))),
    seed=st.integers(0, 2**32),
)
def test_queue_that_always_has_jobs_is_never_left_waiting_long(
    weights: dict[str, int], seed: int
) -> None:
    chance = random.Random(seed)
    shares = QueueShares(weights)
    waited = 0
    for _ in range(500):
        shares.mark_nonempty(name for name in "bcd" if chance.random() < 0.5)
        filled = {"a", *(name for name in "bcd" if chance.random() < 0.5)}
        claimed = claim(shares, chance.randint(1, 3), filled)
        waited = 0 if claimed["a"] else waited + 1
        # Its turn comes once in the sum of the weights; queues that are woken and
        # found empty again may make that a few rounds more.
        assert waited <= 5 * sum(weights.values())
