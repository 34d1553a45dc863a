"""QueueShares: which queues a worker serves, and how they share its free slots.

Weights share the slots without starving a queue. A queue that gave less than its quota
is taken to be empty, and its share goes to the others, until a notification or the next
poll says that it has jobs again. Pure: no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class QueueShares:
    """Turns free slots into a quota for each queue, claim after claim."""

    def __init__(
        self,
        weights: Mapping[str, int],
        *,
        serves_all: bool = False,
        excluded: Iterable[str] = (),
    ) -> None:
        self.serves_all = serves_all
        self.excluded = frozenset(excluded)
        self._weights = dict(weights)
        # What each queue is owed: weighted shares not yet paid in whole slots.
        self._credit = dict.fromkeys(self._weights, 0.0)
        self._empty: set[str] = set()

    @property
    def names(self) -> list[str]:
        return list(self._weights)

    @property
    def may_have_jobs(self) -> bool:
        """Whether some queue is not known to be empty; from any thread."""
        return len(self._empty) < len(self._weights)

    def serves(self, name: str) -> bool:
        """Return whether this worker runs jobs of a queue; from any thread."""
        if name in self.excluded:
            return False
        return self.serves_all or self.knows(name)

    def knows(self, name: str) -> bool:
        """Return whether a queue was given or learnt; from any thread."""
        return name in self._weights

    def learn(self, names: Iterable[str]) -> None:
        """Add queues that were not known, with a weight of 1."""
        for name in names:
            self._weights.setdefault(name, 1)
            self._credit.setdefault(name, 0.0)

    def mark_nonempty(self, names: Iterable[str]) -> None:
        """Note that these queues may have jobs."""
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
            # The queue with the highest credit; of equals the one with more weight.
            name = max(busy, key=lambda name: (self._credit[name], self._weights[name]))
            self._credit[name] -= 1
            quotas[name] += 1
        return {name: quota for name, quota in quotas.items() if quota}

    def note(self, quotas: Mapping[str, int], claimed: Iterable[str]) -> None:
        """Learn from a claim: the quotas, and the queue of each claimed job."""
        counts = dict.fromkeys(quotas, 0)
        for name in claimed:
            counts[name] += 1
        for name, quota in quotas.items():
            if counts[name] < quota:
                self._empty.add(name)
                # An empty queue saves no credit.
                self._credit[name] = 0.0
