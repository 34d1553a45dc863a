"""A pretended payment provider that is having a bad day. Nothing leaves the machine."""

import random
import time
import zlib
from decimal import Decimal

from django.conf import settings


class PaymentUnavailable(Exception):
    """The provider did not answer; it may next time."""


class TooManyRequests(Exception):
    """The provider asks us to come back later."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"try again in {retry_after:g} seconds")
        self.retry_after = retry_after


def charge(amount: Decimal, *, reference: str) -> str:
    """Charge a card and return the provider's receipt, unless something is wrong."""
    time.sleep(random.uniform(0.05, 0.2))
    chance = random.random()
    if chance < settings.PAYMENT_FAILURE_RATE / 4:
        raise TooManyRequests(retry_after=3)
    if chance < settings.PAYMENT_FAILURE_RATE:
        raise PaymentUnavailable("503 Service Unavailable")
    return f"receipt-{zlib.crc32(reference.encode()):08x}"
