"""A simulated payment provider that often fails. It opens no connection."""

import random
import time
import zlib
from decimal import Decimal

from django.conf import settings


class PaymentUnavailable(Exception):
    """The provider did not answer; a later attempt may succeed."""


class TooManyRequests(Exception):
    """The provider asks to retry later."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"try again in {retry_after:g} seconds")
        self.retry_after = retry_after


def charge(amount: Decimal, *, reference: str) -> str:
    """Charge a card and return the provider's receipt, or raise one of the errors."""
    time.sleep(random.uniform(0.05, 0.2))
    chance = random.random()
    if chance < settings.PAYMENT_FAILURE_RATE / 4:
        raise TooManyRequests(retry_after=3)
    if chance < settings.PAYMENT_FAILURE_RATE:
        raise PaymentUnavailable("503 Service Unavailable")
    return f"receipt-{zlib.crc32(reference.encode()):08x}"
