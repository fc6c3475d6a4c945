"""The thread that renews the leases, on a connection of its own."""

from __future__ import annotations

import logging
import threading
import time

import psutil
from django.db import DatabaseError, InterfaceError, connections

from ... import conf
from ..execute import Run
from ..store import dialect_of, workers
from .contact import Contact
from .holdings import Holdings
from .hygiene import abandon

logger = logging.getLogger("bunderstack_django.jobs")

BATCH = 1_000
RETRY = 0.5  # seconds between attempts to reach a database that is gone
GLANCE = 1.0  # seconds between looks for progress, logs and long runs to write


class Heartbeat:
    """Renews every lease of the process each interval; writes progress and logs within a second."""

    def __init__(
        self, *, worker_id: str, using: str, holdings: Holdings, contact: Contact, on_lost_row: object
    ) -> None:
        self._worker_id = worker_id
        self._using = using
        self._holdings = holdings
        self._contact = contact
        self._re_register = on_lost_row
        self._interval = conf.heartbeat().total_seconds()
        self._lease = conf.lease().total_seconds()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="job-heartbeat", daemon=True)
        self._process = psutil.Process()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2)

    def _run(self) -> None:
        next_beat = time.monotonic()
        while not self._stop.is_set():
            beat = time.monotonic() >= next_beat
            try:
                self._turn(beat=beat)
            except (DatabaseError, InterfaceError) as error:
                self._contact.broken()
                logger.warning("Heartbeat failed; trying again worker=%s error=%s", self._worker_id, error)
                abandon(connections[self._using])
                self._stop.wait(RETRY)
                continue
            except Exception:
                logger.exception("Heartbeat failed; trying again worker=%s", self._worker_id)
            if beat:
                next_beat = time.monotonic() + self._interval
            self._stop.wait(max(0.0, min(GLANCE, next_beat - time.monotonic())))
        connections[self._using].close()

    def _turn(self, *, beat: bool) -> None:
        runs = self._holdings.snapshot()
        if not beat:
            runs = [run for run in runs if run.has_news]
        for start in range(0, len(runs), BATCH):
            self._renew(runs[start : start + BATCH])
        if beat:
            known = workers.beat(
                self._worker_id,
                self._using,
                rss_bytes=self._process.memory_info().rss,
                running=sum(run.is_running for run in runs),
            )
            if not known and not self._stop.is_set() and callable(self._re_register):
                self._re_register()
            self._contact.made()

    def _renew(self, runs: list[Run]) -> None:
        connection = connections[self._using]
        dialect = dialect_of(connection)
        sent_at = time.monotonic()
        pulses = [run.pulse() for run in runs]
        held = dialect.pulse(connection, pulses, self._lease)
        missing = [(run.claimed.id, run.claimed.lease_token) for run in runs if run.claimed.id not in held]
        locked = dialect.still_held(connection, missing) if missing else set()
        for run, pulse in zip(runs, pulses, strict=True):
            if run.claimed.id in held:
                run.renewed(pulse, cancelled=held[run.claimed.id], at=sent_at)
            elif run.claimed.id in locked:
                run.is_overdue = True  # tried again at the next glance
            elif self._holdings.holds(run) and not run.is_settling and not run.lost:
                run.lost = True
                logger.warning(
                    "Lease lost; the job belongs to another worker now name=%s id=%s",
                    run.claimed.name,
                    run.job_id,
                )
