"""What the shop does with orders."""

from __future__ import annotations

import random
import secrets
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from .models import Customer, Order, Product
from .tasks import send_receipt


@transaction.atomic
def place_order(
    *,
    number: str,
    customer: Customer,
    product_code: str,
    quantity: int,
    placed_at: datetime | None = None,
) -> Order:
    """Store an order together with the job that sends its receipt: both are there, or neither."""
    order = Order.objects.create(
        number=number,
        customer=customer,
        product_code=product_code,
        quantity=quantity,
        placed_at=placed_at or timezone.now(),
    )
    result = send_receipt.using(dedupe_key=f"receipt:{order.number}").enqueue(order_id=order.pk)
    order.receipt_job = result.id
    order.save(update_fields=["receipt_job"])
    return order


def place_sample_order() -> Order:
    """An order by one of the customers, for the button on the home page."""
    return place_order(
        number=f"W-{secrets.token_hex(3).upper()}",
        customer=Customer.objects.filter(email__contains="@example.").order_by("?")[0],
        product_code=Product.objects.order_by("?")[0].code,
        quantity=random.randint(1, 3),
    )
