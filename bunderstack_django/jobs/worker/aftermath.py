"""The thread that tells of landed outcomes: signals and ``on_failed`` may be slow, the dispatcher must not wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from django.db import connections

from ..execute import Outcome
from ..signals import announce_settled, wants_announcement
from .hygiene import Hygiene

logger = logging.getLogger("bunderstack_django.jobs")


class Aftermath:
    """Announces outcomes one after the other, in the order in which they landed."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Outcome, str] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, outcome: Outcome, status: str) -> None:
        """Tell of ``outcome``, which landed as ``status``, if anyone listens."""
        if not wants_announcement(outcome, status):
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="job-aftermath", daemon=True)
            self._thread.start()
        self._queue.put((outcome, status))

    def close(self, may_wait: Callable[[], bool]) -> int:
        """Wait until all is told, or ``may_wait`` says no. Returns how many outcomes are left untold."""
        if self._thread is None:
            return 0
        self._queue.put(None)
        while self._thread.is_alive() and may_wait():
            self._thread.join(0.1)
        return len(self) - 1 if self._thread.is_alive() else 0  # the end mark is no outcome

    def __len__(self) -> int:
        """How many outcomes wait to be told."""
        return self._queue.qsize()

    def _run(self) -> None:
        hygiene = Hygiene()
        while (item := self._queue.get()) is not None:
            hygiene.before_job()
            try:
                announce_settled(*item)
            except BaseException:
                logger.exception("Telling of an outcome failed id=%s", item[0].run.job_id)
            hygiene.after_job(item[0].run.claimed.name)
        connections.close_all()
