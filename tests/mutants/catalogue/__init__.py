"""The seeded bugs, grouped by the rule that they break.

To add one, add an entry to one of these lists, or a new list: a name, the rule in one
sentence, the changes, and the tests that must fail. Name as few tests as suffice, since
they run for this bug only. The text of a change must occur in the code exactly as often
as the entry says.
"""

from __future__ import annotations

from tests.mutants.catalogue.admin_and_commands import ADMIN_AND_COMMANDS
from tests.mutants.catalogue.budgets import BUDGETS
from tests.mutants.catalogue.clocks import CLOCKS
from tests.mutants.catalogue.crashes import CRASHES
from tests.mutants.catalogue.endings import ENDINGS
from tests.mutants.catalogue.fences import FENCES
from tests.mutants.catalogue.heartbeats import HEARTBEATS
from tests.mutants.catalogue.hostile import HOSTILE
from tests.mutants.catalogue.interrupts import INTERRUPTIONS
from tests.mutants.catalogue.keys import KEYS
from tests.mutants.catalogue.locks import LOCKS
from tests.mutants.catalogue.middleware_and_signals import MIDDLEWARE_AND_SIGNALS
from tests.mutants.catalogue.progress import PROGRESS
from tests.mutants.catalogue.prunes import PRUNES
from tests.mutants.catalogue.rescues import RESCUES
from tests.mutants.catalogue.scaling_and_reload import SCALING_AND_RELOAD

MUTANTS = [
    *FENCES,
    *RESCUES,
    *HOSTILE,
    *HEARTBEATS,
    *CLOCKS,
    *LOCKS,
    *BUDGETS,
    *CRASHES,
    *PROGRESS,
    *KEYS,
    *ENDINGS,
    *PRUNES,
    *SCALING_AND_RELOAD,
    *MIDDLEWARE_AND_SIGNALS,
    *INTERRUPTIONS,
    *ADMIN_AND_COMMANDS,
]
