"""What a seeded bug is: texts to change in the code, and the tests that must fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path


class DoesNotApply(Exception):
    """The code has moved: the text of a mutation is not there as often as it says."""


@dataclass(frozen=True)
class Edit:
    """One text to replace in one file."""

    # From the root of the repository.
    file: str
    old: str
    new: str
    _: KW_ONLY
    # How often the text stands there, and which of them to change; None: all.
    count: int = 1
    nth: int | None = None

    def apply(self, root: Path) -> None:
        """Write the change into a copy of the repository. Raises DoesNotApply."""
        path = root / self.file
        path.write_text(self.change(path.read_text()))

    def change(self, text: str) -> str:
        pieces = text.split(self.old)
        if len(pieces) - 1 != self.count:
            raise DoesNotApply(
                f"{self.file} has this text {len(pieces) - 1} times and not "
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
    # The rule that it breaks, in one sentence.
    breaks: str
    edits: Sequence[Edit]
    _: KW_ONLY
    # What pytest is given: files or single tests, as few as will do.
    tests: Sequence[str]
    database: str = "postgresql"

    def apply(self, root: Path) -> None:
        for edit in self.edits:
            edit.apply(root)
