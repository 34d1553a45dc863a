"""How the free slots are shared between the queues of a worker. Pure: no database.

Weights share the slots without starving a queue. A queue that gave less than it was
asked for is thought empty, and its share goes to the others, until a notification or
the regular look at all queues says that it has jobs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class QueueShares:
    """Turns free slots into a quota for each queue, claim after claim."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        # What each queue is owed: weighted shares that whole slots have not paid yet.
        self._credit = dict.fromkeys(self._weights, 0.0)
        self._empty: set[str] = set()

    @property
    def names(self) -> list[str]:
        return list(self._weights)

    def learn(self, names: Iterable[str]) -> None:
        """Add queues that were not known, with a weight of 1."""
        for name in names:
            self._weights.setdefault(name, 1)
            self._credit.setdefault(name, 0.0)

    def wake(self, names: Iterable[str]) -> None:
        """Believe that these queues have jobs."""
        self._empty.difference_update(names)

    def share(self, slots: int) -> dict[str, int]:
        """Return the quota of each queue that may have jobs; `slots` together."""
        busy = [name for name in self._weights if name not in self._empty]
        if not busy or slots < 1:
            return {}
        if len(busy) == 1:
            return {busy[0]: slots}
        total = sum(self._weights[name] for name in busy)
        for name in busy:
            self._credit[name] += slots * self._weights[name] / total
        quotas = dict.fromkeys(busy, 0)
        for _ in range(slots):
            # The queue that is owed most; of equals the heavier one.
            name = max(busy, key=lambda name: (self._credit[name], self._weights[name]))
            self._credit[name] -= 1
            quotas[name] += 1
        return {name: quota for name, quota in quotas.items() if quota}

    def note(self, quotas: Mapping[str, int], claimed: Iterable[str]) -> bool:
        """Learn from a claim; True if some queue may have more."""
        counts = dict.fromkeys(quotas, 0)
        for name in claimed:
            counts[name] += 1
        for name, quota in quotas.items():
            if counts[name] < quota:
                self._empty.add(name)
                # No saving up while there is nothing to do.
                self._credit[name] = 0.0
        return len(self._empty) < len(self._weights)
