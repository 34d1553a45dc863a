"""The messages of the checks, as tuples to compare."""

from django.core.checks import CheckMessage


def as_tuples(found: list[CheckMessage]) -> list[tuple[str | None, str, str | None]]:
    return [(message.id, message.msg, message.hint) for message in found]
