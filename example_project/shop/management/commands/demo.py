from __future__ import annotations

import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection
from django.utils import timezone

from bunderstack_django.models import Job, WorkerProcess

from ... import account, seed
from ...models import Order
from ...processes import Child, interrupt_on_signals
from ...report import Report, short
from ...tasks import export_orders

LONGEST = 120.0  # seconds for all jobs; the retries wait for 3.5


class Command(BaseCommand):
    help = "Load the example shop into a fresh database, run its jobs, and tell what happened."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--threads", type=int, default=4, metavar="N", help="handlers that run at a time")

    def handle(self, *, threads: int, **options: Any) -> None:
        interrupt_on_signals()
        report = Report(self.stdout, self.style)
        report.title("A shop whose receipts are background jobs")
        try:
            self._start_afresh()
            report.fact("Database", f"{_database()}, made anew and migrated")
            self._load(report)
            self._run_jobs(report, threads)
        except KeyboardInterrupt:
            raise CommandError(
                "Stopped. No job is lost: make serve goes on with them.", returncode=130
            ) from None
        report.numbers()
        report.troubles()
        report.places()
        if problems := account.discrepancies():
            raise CommandError("\n".join(["The account does not add up.", *problems]))
        report.verdict()

    def _start_afresh(self) -> None:
        """Remove what an earlier demo left: only files of the demo's own, never rows of another database."""
        if connection.vendor == "sqlite":
            database = Path(connection.settings_dict["NAME"])
            if database.exists():
                _refuse_beside_a_worker()
            connection.close()
            if database.parent == settings.DEMO_DIR:
                for path in database.parent.glob(f"{database.name}*"):  # with its journal
                    path.unlink()
        for folder in (settings.RECEIPTS_DIR, settings.MAIL_DIR, settings.EXPORTS_DIR):
            shutil.rmtree(folder, ignore_errors=True)
        for log in (settings.WORKER_LOG, settings.WEB_LOG):
            log.unlink(missing_ok=True)
        call_command("migrate", verbosity=0, interactive=False)
        if Order.objects.exists() or Job.objects.exists():
            raise CommandError(f"The demo needs an empty database; {_database()} has orders or jobs in it.")

    def _load(self, report: Report) -> None:
        began = time.monotonic()
        orders = seed.load()
        export_orders.enqueue()
        took = time.monotonic() - began
        report.fact("Orders", f"{orders} from {short(seed.DATA / 'orders.csv')}, loaded in {took:.1f} s,")
        report.fact("", "each in one transaction with the job that sends its receipt")

    def _run_jobs(self, report: Report, threads: int) -> None:
        report.fact("Worker", f"manage.py runworker --threads {threads}")
        report.title("Running (a job that fails is retried after 0.5 s, 1 s and 2 s)")
        with Child("runworker", "--threads", str(threads), log=settings.WORKER_LOG) as worker:
            _wait_for_jobs(worker, report)
            if (code := worker.stop()) != 0:
                raise CommandError(f"The worker's exit code was {code}. See {short(settings.WORKER_LOG)}.")


def _wait_for_jobs(worker: Child, report: Report) -> None:
    """Return once every job has ended."""
    began = time.monotonic()
    while True:
        seconds = time.monotonic() - began
        tallies = account.tallies()
        report.progress(seconds, tallies)
        if not any(each.unfinished for each in tallies):
            return
        if worker.exit_code is not None:
            raise CommandError(f"The worker ended by itself. See {short(settings.WORKER_LOG)}.")
        if seconds > LONGEST:
            raise CommandError(f"Not done after {LONGEST:g} s. See {short(settings.WORKER_LOG)}.")
        time.sleep(0.25)


def _refuse_beside_a_worker() -> None:
    """A worker whose database is taken away would go on in the deleted file."""
    alive = timezone.now() - timedelta(seconds=30)
    try:
        worker = WorkerProcess.objects.filter(heartbeat_at__gt=alive).first()
    except DatabaseError:  # an earlier demo was stopped before its tables were made
        return
    if worker is not None and psutil.pid_exists(worker.pid):
        raise CommandError(
            f"Worker process {worker.pid} runs on {_database()}. Stop it first (Ctrl-C in make serve)."
        )


def _database() -> str:
    name = connection.settings_dict["NAME"]
    return short(Path(name)) if connection.vendor == "sqlite" else f"{connection.display_name} {name}"
