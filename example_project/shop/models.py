from __future__ import annotations

from django.db import models


class Customer(models.Model):
    name = models.CharField(max_length=200)
    email = models.EmailField(unique=True)  # as given; nothing has checked it when an order is imported

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    code = models.CharField(max_length=20, unique=True)
    name = models.CharField(max_length=200)
    price = models.DecimalField(max_digits=8, decimal_places=2)

    class Meta:
        ordering = ("code",)

    def __str__(self) -> str:
        return f"{self.code} {self.name}"


class Order(models.Model):
    class Receipt(models.TextChoices):
        WAITING = "waiting", "Waiting"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"

    number = models.CharField(max_length=20, unique=True)
    placed_at = models.DateTimeField(db_index=True)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="orders")
    product_code = models.CharField(max_length=20)  # as ordered: there may be no such product
    quantity = models.PositiveSmallIntegerField()

    receipt = models.CharField(max_length=10, choices=Receipt, default=Receipt.WAITING, db_index=True)
    receipt_problem = models.TextField(blank=True)  # why it failed
    receipt_job = models.UUIDField(null=True, editable=False)  # no foreign key: ended jobs are pruned

    class Meta:
        ordering = ("-placed_at", "-pk")

    def __str__(self) -> str:
        return f"Order {self.number}"
