"""What the demo prints."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from django.conf import settings
from django.core.management.base import OutputWrapper
from django.core.management.color import Style

from bunderstack_django.models import Job

from . import account
from .account import Tally
from .models import Order


class Report:
    """Plain lines in columns; colour only where the terminal has it."""

    def __init__(self, out: OutputWrapper, style: Style) -> None:
        self._out = out
        self._style = style
        self._last_progress = ""

    def title(self, text: str) -> None:
        self._line(f"\n{self._style.MIGRATE_HEADING(text)}")

    def fact(self, label: str, text: str) -> None:
        self._line(f"  {label:12}{text}".rstrip())

    def progress(self, seconds: float, tallies: list[Tally]) -> None:
        """How far the jobs are; a line only if something has changed."""
        succeeded = sum(each.succeeded for each in tallies)
        failed = sum(each.failed for each in tallies)
        retrying = sum(each.retrying for each in tallies)
        to_do = sum(each.unfinished for each in tallies) - retrying
        line = f"{to_do:4} to do   {succeeded:4} succeeded   {retrying:3} to be retried   {failed:2} failed"
        if line != self._last_progress:
            self._last_progress = line
            self._line(f"  {seconds:5.1f} s   {line}")

    def numbers(self) -> None:
        self.title("What happened")
        self._line(f"  {'job':20}{'enqueued':>10}{'run':>8}{'retried':>10}{'succeeded':>12}{'failed':>9}")
        for each in account.tallies():
            self._line(
                f"  {each.name:20}{each.enqueued:10}{each.runs:8}"
                f"{each.retries:10}{each.succeeded:12}{each.failed:9}"
            )
        jobs, took = account.pace()
        seconds = max(took.total_seconds(), 0.001)
        self._line("")
        self.fact(
            "Speed", f"{jobs / seconds:.0f} jobs per second ({jobs} jobs without a retry in {seconds:.2f} s)"
        )

    def troubles(self) -> None:
        self.title("Failed at first, then succeeded")
        self._jobs(account.retried())
        self.title("Failed for good (discarded: no retry would help; error: every retry failed too)")
        self._jobs(account.failed())

    def places(self) -> None:
        receipts = sum(1 for _ in Path(settings.RECEIPTS_DIR).glob("*.html"))
        mails = sum(
            path.read_text(errors="replace").count("\nMessage-ID:")
            for path in Path(settings.MAIL_DIR).glob("*")
        )
        self.title("Where to look")
        self.fact("Receipts", f"{short(settings.RECEIPTS_DIR)}/ ({receipts} HTML files)")
        self.fact("Mails", f"{short(settings.MAIL_DIR)}/ ({mails} mails)")
        self.fact("Export", short(settings.EXPORTS_DIR / "orders.csv"))
        self.fact("Worker log", short(settings.WORKER_LOG))
        self.fact("Admin", "make serve  (web and worker together; it prints the address and a login)")

    def verdict(self) -> None:
        tallies = account.tallies()
        enqueued, succeeded, failed = (
            sum(getattr(each, name) for each in tallies) for name in ("enqueued", "succeeded", "failed")
        )
        line = f"All is accounted for: {enqueued} enqueued = {succeeded} succeeded + {failed} failed."
        self._line(f"\n{self._style.SUCCESS(line)}")

    def _jobs(self, jobs: Iterable[Job]) -> None:
        numbers = dict(Order.objects.values_list("receipt_job", "number"))
        for job in jobs:
            subject = f"order {numbers[job.pk]}" if job.pk in numbers else job.name
            attempts = f"{job.attempts} attempt{'' if job.attempts == 1 else 's'}"
            reason = f"{job.failure_reason:11}" if job.failure_reason else ""
            self._line(f"  {subject:12}{attempts:12}{reason}{account.last_problem(job)}")

    def _line(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def short(path: Path) -> str:
    """``path`` as seen from the current folder."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
