"""The orders that are shipped with the example.

Six of them are broken on purpose (three products that do not exist, three addresses that are none), and nine
go to a mail server that turns away the first attempt.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from .models import Customer, Product
from .operations import place_order

DATA = Path(__file__).parent / "data"


def load() -> int:
    """Load the catalogue and place the orders, each in its own transaction. Returns how many orders."""
    Product.objects.bulk_create(
        Product(code=row["code"], name=row["name"], price=Decimal(row["price"]))
        for row in _rows("products.csv")
    )
    placed = 0
    for row in _rows("orders.csv"):
        customer, _ = Customer.objects.get_or_create(email=row["email"], defaults={"name": row["customer"]})
        place_order(
            number=row["number"],
            customer=customer,
            product_code=row["product"],
            quantity=int(row["quantity"]),
            placed_at=datetime.fromisoformat(row["placed_at"]),
        )
        placed += 1
    return placed


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
