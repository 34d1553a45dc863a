"""A context manager that is also a decorator for sync and async tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Block(ContextDecorator):
    """Base class of what eager_jobs() and travel() return. May be entered again."""

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
