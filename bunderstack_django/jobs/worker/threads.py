"""The threads that run handlers."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable

from django.core.cache import caches
from django.db import connections

from .. import states
from ..errors import describe
from ..execute import Outcome, Run, execute
from ..states import FailureReason
from .hygiene import Hygiene
from .inbox import Inbox

logger = logging.getLogger("bunderstack_django.jobs")


class HandlerThreads:
    """A fixed number of threads, each taking run after run from the inbox."""

    def __init__(self, count: int, inbox: Inbox, on_outcome: Callable[[Outcome], None]) -> None:
        self._inbox = inbox
        self._on_outcome = on_outcome
        self._current: list[Run | None] = [None] * count
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"job-handler-{number}", daemon=True)
            for number in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self, timeout: float) -> bool:
        """Whether all threads have ended within ``timeout`` seconds each."""
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def busy_for(self, seconds: float) -> int:
        """How many threads have been in one handler for longer than this."""
        since = time.monotonic() - seconds
        started = [run.started for run in self._current if run is not None]
        return sum(each is not None and each < since for each in started)

    def _run(self, number: int) -> None:
        for alias in caches:  # made here once, every job's copy of the context shares them
            caches[alias]
        pristine = contextvars.copy_context()
        hygiene = Hygiene()
        while (run := self._inbox.get()) is not None:
            self._current[number] = run
            hygiene.before_job()
            outcome = pristine.copy().run(_execute, run)
            hygiene.after_job(run.claimed.name)
            self._current[number] = None
            self._on_outcome(outcome)
        connections.close_all()


def _execute(run: Run) -> Outcome:
    try:
        return execute(run)
    except BaseException as error:
        logger.exception(
            "Running a job failed outside its handler name=%s id=%s", run.claimed.name, run.claimed.id
        )
        described = describe(error, attempt=run.claimed.attempts, worker=run.claimed.worker)
        return Outcome(run, states.failed(FailureReason.ERROR), error=described)
