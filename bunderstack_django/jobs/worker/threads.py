"""The threads that run handlers."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable

from django.core.cache import caches
from django.db import connections

from ... import conf
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
        make_caches()
        pristine = contextvars.copy_context()
        hygiene = Hygiene()
        hygiene.watch()
        while (run := self._inbox.get()) is not None:
            self._current[number] = run
            outcome = pristine.copy().run(_execute, run, hygiene)
            self._current[number] = None
            self._on_outcome(outcome)
        connections.close_all()


def make_caches() -> None:
    """Made here once, the caches are shared by the copies of this thread's context that jobs run in."""
    for alias in caches:
        try:
            caches[alias]
        except Exception:  # of an alias that nobody may ever use
            logger.warning("The cache %r cannot be made", alias, exc_info=True)


def _execute(run: Run, hygiene: Hygiene) -> Outcome:
    """Run a job unless its lease may have lapsed while it waited; total, whatever goes wrong."""
    if run.lost or time.monotonic() - run.leased_at > conf.lease().total_seconds():
        return Outcome(run, states.give_back())  # fenced: nothing, if another has it
    try:
        hygiene.before_job()
        outcome = execute(run)
    except BaseException as error:
        logger.exception(
            "Running a job failed outside its handler name=%s id=%s", run.claimed.name, run.claimed.id
        )
        described = describe(error, attempt=run.claimed.attempts, worker=run.claimed.worker)
        outcome = Outcome(run, states.failed(FailureReason.ERROR), error=described)
    hygiene.after_job(run.claimed.name, interrupted=run.was_interrupted)
    return outcome
