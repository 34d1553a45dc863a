"""The fixture that gives a test its round of faults."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .fault_round import FaultRound


@pytest.fixture
def fault_round(worker_env: dict[str, str], tmp_path: Path) -> FaultRound:
    """Return a round whose random choices follow the seed of pytest-randomly."""
    # Imported here: pytest reads this file before Django is set up.
    from .fault_round import FaultRound

    return FaultRound(
        env=worker_env,
        folder=tmp_path,
        rng=random.Random(random.random()),
        database=os.environ["JOBQUEUE_TEST_DATABASE"],
    )
