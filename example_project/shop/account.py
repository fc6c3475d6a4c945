"""What became of the jobs, read from the table they are kept in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum

from bunderstack_django.models import Job, JobStatus

from . import receipts
from .models import Order, Product
from .tasks import send_receipt

SUCCEEDED = Q(status=JobStatus.SUCCEEDED)
FAILED = Q(status=JobStatus.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The jobs of one name, in numbers."""

    name: str
    enqueued: int
    runs: int  # attempts, all jobs together
    retries: int  # of those, attempts after a job's first
    ended: int
    succeeded: int
    failed: int
    retrying: int  # wait for their next attempt

    @property
    def unfinished(self) -> int:
        return self.enqueued - self.ended


def tallies() -> list[Tally]:
    """One per job name, the most frequent first."""
    rows = Job.objects.values("name").annotate(
        enqueued=Count("pk"),
        runs=Sum("attempts"),
        retries=Sum(F("attempts") - 1, filter=Q(attempts__gt=1), default=0),
        ended=Count("pk", filter=Q(finished_at__isnull=False)),
        succeeded=Count("pk", filter=SUCCEEDED),
        failed=Count("pk", filter=FAILED),
        retrying=Count("pk", filter=Q(status=JobStatus.SCHEDULED)),
    )
    return [Tally(**row) for row in rows.order_by("-enqueued", "name")]


def retried() -> QuerySet[Job]:
    """The jobs that succeeded after failing at first."""
    return Job.objects.filter(SUCCEEDED, attempts__gt=1).order_by("id")


def failed() -> QuerySet[Job]:
    return Job.objects.filter(FAILED).order_by("attempts", "id")


def last_problem(job: Job) -> str:
    return job.errors[-1]["message"] if job.errors else ""


def pace() -> tuple[int, timedelta]:
    """How many jobs needed one attempt, and how long these took together: without the waits before retries."""
    first = Job.objects.filter(attempts=1, finished_at__isnull=False).aggregate(
        jobs=Count("pk"), began=Min("last_attempted_at"), ended=Max("finished_at")
    )
    return first["jobs"], (first["ended"] - first["began"]) if first["jobs"] else timedelta(0)


def discrepancies() -> list[str]:
    """What does not add up once the worker has stopped; each as a sentence."""
    found = []
    for tally in tallies():
        if other := tally.enqueued - tally.succeeded - tally.failed:
            found.append(f"Of {tally.enqueued} jobs {tally.name}, {other} neither succeeded nor failed.")
    enqueued = Job.objects.filter(name=send_receipt.job_name).count()
    if enqueued != (orders := Order.objects.count()):
        found.append(f"{orders} orders have {enqueued} receipt jobs.")
    if (broken := _broken_orders()) != (unsent := _orders(Order.Receipt.FAILED)):
        found.append(f"Receipts failed for other orders than the broken ones: {sorted(broken ^ unsent)}.")
    if (sent := _orders(Order.Receipt.SENT)) != (written := _written()):
        found.append(f"Receipts are not there, or there for too many: {sorted(sent ^ written)}.")
    return found


def _orders(receipt: str) -> set[str]:
    return set(Order.objects.filter(receipt=receipt).values_list("number", flat=True))


def _broken_orders() -> set[str]:
    """The orders that can have no receipt."""
    codes = set(Product.objects.values_list("code", flat=True))
    return {
        order.number
        for order in Order.objects.select_related("customer")
        if order.product_code not in codes or not receipts.is_address(order.customer.email)
    }


def _written() -> set[str]:
    return {path.stem for path in Path(settings.RECEIPTS_DIR).glob("*.html")}
