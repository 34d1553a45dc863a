"""Tasks that autodiscovery does not find: the worker has to import this module."""

from __future__ import annotations

import os
from typing import Any

from django_jobqueue.backend.api import task


@task
def fetch(what: str) -> str:
    return f"{what} from {os.path.basename(__file__)}"


@task
async def fetch_async(what: str) -> str:
    return f"{what}, awaited"


def not_a_task(what: str) -> Any:
    raise AssertionError(f"a row has made the worker run this: {what}")
