from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from difflib import get_close_matches
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections

from ... import conf
from ...jobs.backends import allowed_queues, our_backends
from ...jobs.declare import registry
from ...jobs.models import Job
from ...jobs.worker import Selection, Settings, Worker
from ...runtime.stopping import Stop, on_signals


class Command(BaseCommand):
    help = "Run background jobs until stopped by SIGTERM or Ctrl-C."
    stealth_options = ("stop",)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
        parser.epilog = (
            "Example: manage.py runworker --queues mail,default --threads 8. "
            "SIGTERM finishes what fits in the shutdown timeout and gives back the rest; a second one stops at once."
        )
        parser.add_argument(
            "--threads", type=_positive, default=4, metavar="N", help="handlers that run at a time"
        )
        parser.add_argument(
            "--queues", type=_names, default="*", metavar="A,B", help="queues to serve; * for all"
        )
        parser.add_argument(
            "--exclude-queues", type=_names, default="", metavar="A,B", help="queues not to serve"
        )
        parser.add_argument("--drain", action="store_true", help="stop when no job is pending")
        parser.add_argument(
            "--max-jobs", type=_positive, default=None, metavar="N", help="stop after so many jobs"
        )
        parser.add_argument(
            "--poll-interval",
            type=_seconds,
            default=conf.duration("POLL_INTERVAL").total_seconds(),
            metavar="SECONDS",
            help="between looks for new jobs",
        )
        parser.add_argument(
            "--shutdown-timeout",
            type=_seconds,
            default=25.0,
            metavar="SECONDS",
            help="from SIGTERM until the process has ended",
        )
        parser.add_argument(
            "--database",
            default=None,
            metavar="ALIAS",
            help="database with the jobs; that of TASKS if omitted",
        )

    def handle(
        self,
        *,
        threads: int,
        queues: tuple[str, ...],
        exclude_queues: tuple[str, ...],
        drain: bool,
        max_jobs: int | None,
        poll_interval: float,
        shutdown_timeout: float,
        database: str | None,
        verbosity: int,
        stop: Stop | None = None,
        **options: Any,
    ) -> None:
        using = self._database(database)
        selection = Selection(
            only=None if queues in ((), ("*",)) else queues, excluded=frozenset(exclude_queues) - {"*"}
        )
        self._check_queues(selection)
        if not list(registry):
            _fail("No job is declared: nothing to run. Is the app with your tasks module in INSTALLED_APPS?")
        self._check_table(using)
        settings = Settings(
            using=using,
            selection=selection,
            threads=threads,
            poll_interval=poll_interval,
            shutdown_timeout=shutdown_timeout,
            max_jobs=max_jobs,
            drain=drain,
        )
        self._set_up_logging(verbosity)
        stop = stop or Stop()
        worker = Worker(settings, stop)
        threads_before = threading.enumerate()
        with on_signals(stop):  # before the banner: whoever reads it may stop the worker
            if verbosity > 0:
                self._banner(worker, settings)
            counts = worker.run()
        if verbosity > 0:
            self.stdout.write(
                f"Worker {worker.id} stopped: {counts.succeeded} succeeded, {counts.retried} to be retried, "
                f"{counts.failed} failed, {counts.cancelled} cancelled, {counts.given_back} given back."
            )
        left_behind = [
            each for each in threading.enumerate() if not each.daemon and each not in threads_before
        ]
        if worker.abandoned or left_behind:
            # Given back, a job must not run on here; and a thread that some handler left must not hold up a deploy.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def _database(self, asked: str | None) -> str:
        ours = {backend.database for backend in our_backends()}
        using = asked or (min(ours) if len(ours) == 1 else "default")
        if using not in connections:
            _fail(f"There is no database {using!r} in DATABASES; there is {', '.join(connections)}.")
        if not ours:
            _fail(
                "No backend in TASKS is bunderstack_django.backend.DatabaseBackend: no job can be enqueued."
            )
        if asked is None and len(ours) > 1:
            _fail(
                f"TASKS keeps jobs in several databases; choose one with --database {'|'.join(sorted(ours))}."
            )
        return using

    def _check_queues(self, selection: Selection) -> None:
        allowed = allowed_queues()
        declared = {task.queue_name for task in registry}
        for name in (*(selection.only or ()), *selection.excluded):
            if allowed is not None and name not in allowed:
                _fail(f"Queue {name!r} is not in QUEUES of TASKS, which allows {', '.join(sorted(allowed))}.")
            if name not in declared:
                near = get_close_matches(name, declared, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else f" Declared: {', '.join(sorted(declared))}."
                self.stderr.write(self.style.WARNING(f"No declared job uses the queue {name!r}.{hint}"))

    def _check_table(self, using: str) -> None:
        try:
            connections[using].ensure_connection()
        except DatabaseError as error:
            _fail(f"The database {using!r} cannot be reached: {' '.join(str(error).split())}")
        try:
            Job.objects.using(using).only("id").first()
        except DatabaseError as error:
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
            if Job._meta.db_table in _tables(using):
                _fail(
                    f"The job table cannot be read: {problem}. Is every migration applied? (manage.py migrate)"
                )
            _fail(f"The job table is not there ({problem}). Run manage.py migrate first.")

    def _banner(self, worker: Worker, settings: Settings) -> None:
        connection = connections[settings.using]
        served = (
            "all queues"
            if settings.selection.only is None
            else f"queues {', '.join(settings.selection.only)}"
        )
        if settings.selection.excluded:
            served += f" but {', '.join(sorted(settings.selection.excluded))}"
        self.stdout.write(
            f"Worker {worker.id} runs {served} from database {settings.using!r} ({connection.display_name}) "
            f"in {settings.threads} threads, looking for jobs every {settings.poll_interval:g} s."
            f"{' It stops when no job is pending.' if settings.drain else ' Stop it with Ctrl-C.'}"
        )
        self.stdout.flush()

    def _set_up_logging(self, verbosity: int) -> None:
        """Let the worker's lines be seen where the project's LOGGING says nothing of them."""
        logger = logging.getLogger("bunderstack_django")
        if logger.hasHandlers():
            return
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))


def _tables(using: str) -> list[str]:
    try:
        return connections[using].introspection.table_names()
    except DatabaseError:
        return []


def _fail(message: str) -> NoReturn:
    raise CommandError(message, returncode=2)


def _positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1.")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0 and below 86400.")
    return seconds


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
