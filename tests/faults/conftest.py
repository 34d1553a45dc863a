"""The scene of a fault, for the tests."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .scene import Scene


@pytest.fixture
def scene(worker_env: dict[str, str], tmp_path: Path) -> Scene:
    """Give a scene whose chance follows the seed that pytest-randomly prints."""
    # Not before Django is set up, and this file is read long before.
    from .scene import Scene

    return Scene(
        env=worker_env,
        folder=tmp_path,
        rng=random.Random(random.random()),
        database=os.environ["JOBQUEUE_TEST_DATABASE"],
    )
