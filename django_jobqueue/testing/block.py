"""A `with` block that can also stand above a test as its decorator, sync or async."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Block(ContextDecorator):
    """What eager_jobs() and travel() return; each use of it is entered anew."""

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc_info: object) -> None:
        raise NotImplementedError

    def __call__(self, func: F) -> F:
        if not inspect.iscoroutinefunction(func):
            return super().__call__(func)

        @wraps(func)
        async def inner(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await func(*args, **kwargs)

        return inner  # type: ignore[return-value]
