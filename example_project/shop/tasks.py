"""The shop's background jobs. The worker finds them because the app is installed and this module is ``tasks``."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings

from bunderstack_django import Backoff, JobContext, job
from bunderstack_django.jobs.errors import JobError

from . import receipts
from .models import Order


def mark_receipt_failed(job_id: str, args: list[Any], kwargs: dict[str, Any], error: JobError) -> None:
    """Let the shop see what went wrong. Called once, after the last attempt."""
    Order.objects.filter(pk=kwargs["order_id"]).exclude(receipt=Order.Receipt.SENT).update(
        receipt=Order.Receipt.FAILED, receipt_problem=error.message
    )


@job(
    name="shop.send_receipt",  # the function may move; jobs stored before still find it
    retries=3,
    backoff=Backoff(base=timedelta(seconds=0.25)),  # 0.5 s, 1 s, 2 s: hurried, so that the demo ends soon
    discard_on=(receipts.BadAddress, Order.DoesNotExist),  # no retry mends these
    timeout=timedelta(seconds=30),
    on_failed=mark_receipt_failed,
    takes_context=True,
)
def send_receipt(context: JobContext, *, order_id: int) -> str:
    """Write an order's receipt and mail it.

    A job runs at least once: after a crash it may run again, so what it does twice must do no harm. The file and
    the Message-ID are the same each time, and an order whose receipt is sent is left alone.
    """
    order = Order.objects.select_related("customer").get(pk=order_id)
    if order.receipt == Order.Receipt.SENT:
        return receipts.path_of(order).name
    recipient = receipts.recipient_of(order)
    html = receipts.render(order)
    path = receipts.save(order, html)
    receipts.mail(order, recipient, html, attempt=context.attempt)
    Order.objects.filter(pk=order.pk).update(receipt=Order.Receipt.SENT, receipt_problem="")
    return path.name


@job(name="shop.export_orders", priority=-10, takes_context=True)
def export_orders(context: JobContext) -> dict[str, Any]:
    """Write all orders to a CSV file, telling how far it is."""
    path = Path(settings.EXPORTS_DIR) / "orders.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{context.job_id}")
    orders = Order.objects.select_related("customer").order_by("pk")
    total = orders.count()
    context.log(f"Exporting {total} orders to {path.name}.")
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["number", "placed_at", "customer", "email", "product", "quantity", "receipt"])
        for done, order in enumerate(orders.iterator(chunk_size=500), start=1):
            context.raise_if_cancelled()
            customer = order.customer
            rows.writerow(
                [
                    order.number,
                    order.placed_at.isoformat(),
                    customer.name,
                    customer.email,
                    order.product_code,
                    order.quantity,
                    order.receipt,
                ]
            )
            context.progress(min(done / total, 1), f"{done} of {total} orders")
    unfinished.replace(path)  # whoever reads the export sees the last whole one
    context.log("Done.")
    return {"file": path.name, "orders": total}
