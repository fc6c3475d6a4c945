"""A worker: one process that claims jobs and runs them in threads.

The main thread is the dispatcher (``dispatcher``). Beside it run the handler threads (``threads``), the
heartbeat with a connection of its own (``heartbeat``), the watch over timeouts (``jobs.timeouts``) and, when
someone listens, the thread that tells of outcomes (``aftermath``).
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Final

import psutil
from django.db import DatabaseError, InterfaceError, connections

from ...runtime.service import Service
from ...runtime.stopping import Stop
from ..store import workers
from .dispatcher import Counts, Dispatcher, Selection
from .heartbeat import Heartbeat
from .threads import HandlerThreads

__all__ = ["Counts", "Selection", "Settings", "Worker"]

logger = logging.getLogger("bunderstack_django.jobs")

ALL_QUEUES: Final = Selection()
RESERVE: Final = 3.0  # seconds before the end of the shutdown timeout at which waiting ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a worker runs."""

    using: str = "default"  # alias of the database with the jobs
    selection: Selection = ALL_QUEUES
    threads: int = 4
    poll_interval: float = 1.0  # seconds
    shutdown_timeout: float = 25.0  # seconds from the request to stop until the process ends
    max_jobs: int | None = None
    drain: bool = False  # end when no job is pending


class Worker:
    """One run of a worker process: ``run()`` until stopped, drained or at its number of jobs."""

    def __init__(self, settings: Settings, stop: Stop) -> None:
        self.id = new_worker_id()
        self.abandoned = 0  # handlers still running at the end; the process must exit at once
        self._settings = settings
        self._stop = stop
        self._service = Service()
        self.dispatcher = Dispatcher(
            using=settings.using,
            worker_id=self.id,
            selection=settings.selection,
            threads=settings.threads,
            poll_interval=settings.poll_interval,
            max_jobs=settings.max_jobs,
            drain=settings.drain,
            stop=stop,
        )
        self._threads = HandlerThreads(settings.threads, self.dispatcher.inbox, self.dispatcher.report)
        self.dispatcher.busy_for = self._threads.busy_for
        self._heartbeat = Heartbeat(
            worker_id=self.id,
            using=settings.using,
            holdings=self.dispatcher.holdings,
            contact=self.dispatcher.contact,
            on_lost_row=self._register,
        )

    @property
    def counts(self) -> Counts:
        return self.dispatcher.counts

    def run(self) -> Counts:
        """Work. Raises DatabaseError if the first contact with the database fails."""
        self._stop.watch(self.dispatcher.wake.set)
        self._register()
        self._service.add(self._unregister)
        self._service.add(self._heartbeat.close)
        self._heartbeat.start()
        self._threads.start()
        try:
            while not self._stop.requested:
                pause = self.dispatcher.turn()
                if self.dispatcher.is_done:
                    break
                self.dispatcher.wake.wait(pause)
        finally:
            self._shut_down()
        return self.counts

    def _shut_down(self) -> None:
        """Finish what fits in the time, give back the rest."""
        asked_at = self._stop.requested_at or time.monotonic()
        timeout = self._settings.shutdown_timeout
        end = asked_at + timeout
        wait_until = end - min(RESERVE, timeout / 4)
        dispatcher = self.dispatcher
        dispatcher.give_back_waiting()
        while dispatcher.in_flight and not self._stop.immediate and time.monotonic() < wait_until:
            dispatcher.wake.wait(min(dispatcher.turn(), wait_until - time.monotonic()))
        idle = dispatcher.in_flight == 0
        dispatcher.write_all(end)
        untold = dispatcher.aftermath.close(
            # Nobody waits for the end of a drained worker; one that was asked to stop has its time.
            lambda: not self._stop.requested or (not self._stop.immediate and time.monotonic() < wait_until)
        )
        if untold:
            logger.warning("Stopping before every outcome was told to its receivers count=%d", untold)
        dispatcher.inbox.close()
        if not (idle and self._threads.join(timeout=1)):
            self.abandoned = dispatcher.give_back_running()
            if self.abandoned:
                logger.warning(
                    "Stopping with handlers still running; their jobs are given back count=%d", self.abandoned
                )
        self._service.close()
        if not dispatcher.write_all(end):
            logger.warning(
                "Stopping without the database; %d jobs wait for their leases to lapse",
                len(dispatcher.outbox),
            )

    def _register(self) -> None:
        only = self._settings.selection.only
        workers.register(
            self.id,
            self._settings.using,
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            identity=process_identity(),
            queues=list(only or ()),
            threads=self._settings.threads,
        )

    def _unregister(self) -> None:
        try:
            workers.unregister(self.id, self._settings.using)
        except (DatabaseError, InterfaceError):
            connections[self._settings.using].close()  # its row goes stale, and is then removed by another


def new_worker_id() -> str:
    """``host:pid:random``, of characters that need no quoting anywhere."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:100]
    return f"{host}:{os.getpid()}:{secrets.token_hex(3)}"


def process_identity() -> str:
    """When this process was started, which tells it from a later one with its pid."""
    return f"{psutil.Process().create_time():.2f}"
