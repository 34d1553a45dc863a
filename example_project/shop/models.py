"""The tables of a corner shop. They know nothing about jobs."""

from django.db import models


class Customer(models.Model):
    name = models.CharField(max_length=100)
    email = models.EmailField()
    welcomed_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    name = models.CharField(max_length=100, unique=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    # Always the sum of the packed orders: each is counted exactly once.
    sold = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    class Status(models.TextChoices):
        PLACED = "placed"
        PACKED = "packed"
        PAID = "paid"

    customer = models.ForeignKey(Customer, on_delete=models.CASCADE)
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveSmallIntegerField(default=1)
    status = models.CharField(
        max_length=10, choices=Status.choices, default=Status.PLACED
    )
    is_booked = models.BooleanField(default=False)
    placed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"Order {self.pk}"


class Payment(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    amount = models.DecimalField(max_digits=8, decimal_places=2)
    # The same in every attempt: the provider charges a reference only once.
    reference = models.CharField(max_length=100, unique=True)
    paid_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.reference


class Photo(models.Model):
    title = models.CharField(max_length=100)
    thumbnail = models.BinaryField(default=b"")

    def __str__(self) -> str:
        return self.title


class LedgerEntry(models.Model):
    """A line of the books, in the `business` database (see routers.py)."""

    # No foreign keys: the referenced rows are in another database.
    order_id = models.BigIntegerField(unique=True)
    amount = models.DecimalField(max_digits=8, decimal_places=2)
    booked_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "ledger entries"

    def __str__(self) -> str:
        return f"Order {self.order_id}: {self.amount}"
