"""Handlers that autodiscovery finds here, since they are not in `jobs`."""

from .hell import raise_atomically, raise_in_coroutine, raise_in_thread

__all__ = ["raise_atomically", "raise_in_coroutine", "raise_in_thread"]
