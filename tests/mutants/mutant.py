"""A seeded bug: texts to change in the code, and the tests that must fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path


class DoesNotApply(Exception):
    """The code has changed: the text does not occur as often as the edit says."""


@dataclass(frozen=True)
class Edit:
    """One text to replace in one file."""

    # From the root of the repository.
    file: str
    old: str
    new: str
    _: KW_ONLY
    # How often the text occurs, and which occurrence to change; None: all.
    count: int = 1
    nth: int | None = None

    def apply(self, root: Path) -> None:
        """Apply the change to a copy of the repository. Raises DoesNotApply."""
        path = root / self.file
        path.write_text(self.change(path.read_text()))

    def change(self, text: str) -> str:
        pieces = text.split(self.old)
        if len(pieces) - 1 != self.count:
            raise DoesNotApply(
                f"{self.file} has this text {len(pieces) - 1} times, not "
                f"{self.count}:\n{self.old}"
            )
        if self.nth is None:
            return self.new.join(pieces)
        before, after = pieces[: self.nth], pieces[self.nth :]
        return self.old.join(before) + self.new + self.old.join(after)


@dataclass(frozen=True)
class Mutant:
    """One seeded bug."""

    name: str
    # The rule that it breaks, as one sentence.
    breaks: str
    edits: Sequence[Edit]
    _: KW_ONLY
    # Arguments of pytest: as few files or single tests as suffice.
    tests: Sequence[str]
    database: str = "postgresql"

    def apply(self, root: Path) -> None:
        for edit in self.edits:
            edit.apply(root)
