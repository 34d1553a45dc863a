"""The seeded bugs, by the rule that they break.

To add one, add an entry to one of these lists, or a list: a name, the rule in one
sentence, the changes, and the tests that must fail, as few as will do, since they are
started for this one bug. The text of a change must stand in the code exactly as often
as the entry says.
"""

from __future__ import annotations

from tests.mutants.catalogue.budgets import BUDGETS
from tests.mutants.catalogue.clocks import CLOCKS
from tests.mutants.catalogue.comforts import COMFORTS
from tests.mutants.catalogue.crashes import CRASHES
from tests.mutants.catalogue.endings import ENDINGS
from tests.mutants.catalogue.fences import FENCES
from tests.mutants.catalogue.hearts import HEARTS
from tests.mutants.catalogue.keys import KEYS
from tests.mutants.catalogue.locks import LOCKS
from tests.mutants.catalogue.passages import PASSAGES
from tests.mutants.catalogue.prunes import PRUNES
from tests.mutants.catalogue.rescues import RESCUES

MUTANTS = [
    *FENCES,
    *RESCUES,
    *HEARTS,
    *CLOCKS,
    *LOCKS,
    *BUDGETS,
    *CRASHES,
    *KEYS,
    *ENDINGS,
    *PRUNES,
    *COMFORTS,
    *PASSAGES,
]
