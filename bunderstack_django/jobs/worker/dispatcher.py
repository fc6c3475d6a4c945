"""The thread that talks to the job table: claims for the handler threads, writes what they report."""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ... import conf
from ...runtime.stopping import Stop, Wake
from .. import maintenance, states
from ..execute import Outcome, Run
from ..states import Status
from ..store import dialect_of
from ..store.rows import Claimed
from .aftermath import Aftermath
from .contact import Contact
from .holdings import Holdings
from .hygiene import abandon
from .inbox import Inbox
from .outbox import Outbox
from .pace import HORIZON, Pace, batch_size

logger = logging.getLogger("bunderstack_django.jobs")

PROMOTE_TIME = 0.2  # seconds in a row
MOST_UNTOLD = 1_000  # outcomes that wait for slow receivers before nothing more is claimed
STALE = 1.0  # seconds a claimed job may wait for a thread before it is given back
SLOWEST_RETRY = 5.0  # seconds between attempts to reach a database that is gone
QUICKEST_RETRY = 0.2


@dataclass(slots=True)
class Counts:
    """What a worker has done so far."""

    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    given_back: int = 0
    lost: int = 0  # outcomes dropped because the lease had been lost

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed + self.cancelled + self.retried


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which queues a worker serves: ``only`` these (None = all), never ``excluded``."""

    only: tuple[str, ...] | None = None
    excluded: frozenset[str] = frozenset()

    def of(self, connection: BaseDatabaseWrapper) -> Sequence[str] | None:
        """The queues to claim from now."""
        if self.only is not None:
            return [name for name in self.only if name not in self.excluded]
        if not self.excluded:
            return None
        return [
            name for name in dialect_of(connection).pending_queues(connection) if name not in self.excluded
        ]


class _Refused(Exception):
    """The database will not store what was to be written, however often it is sent."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Dispatcher:
    """One turn after the other: write outcomes, do chores, claim, hand out."""

    def __init__(
        self,
        *,
        using: str,
        worker_id: str,
        selection: Selection,
        threads: int,
        poll_interval: float,
        max_jobs: int | None,
        drain: bool,
        stop: Stop,
    ) -> None:
        self.using = using
        self.worker_id = worker_id
        self.wake = Wake()
        self.inbox = Inbox(self.wake.set)
        self.outbox = Outbox(self.wake.set)
        self.holdings = Holdings()
        self.contact = Contact(conf.heartbeat().total_seconds())
        self.aftermath = Aftermath()
        self.counts = Counts()
        self._selection = selection
        self._threads = threads
        self._poll_interval = poll_interval
        self._max_jobs = max_jobs
        self._drain = drain
        self._stop = stop
        self._pace = Pace()
        self.busy_for: Callable[[float], int] = lambda seconds: 0  # threads in one handler for longer
        self._lease = conf.lease().total_seconds()
        self._claimed = 0  # runs handed to the inbox so far, less those taken back
        self._reported = 0  # outcomes of those runs so far, counted by the handler threads
        self._report_lock = threading.Lock()
        self._spent = 0  # of --max-jobs: runs handed out, less those given back
        self._next_poll = 0.0  # monotonic
        self._more_expected = True  # the last claim got all it asked for
        self._found_nothing = False  # the last claim, made when nothing was left to do
        self._ahead_allowed = True
        self._unclear: list[str] = []  # tokens of claims whose answer was lost
        self._failures = 0  # in a row
        self._retry_at = 0.0  # monotonic; nothing is tried before

    # For the handler threads.

    def report(self, outcome: Outcome) -> None:
        """Take an outcome from a handler thread."""
        task = outcome.run.task
        urgent = task is not None and (
            task.durable or task.concurrency is not None or task.rate_limit is not None
        )
        with self._report_lock:  # at every instant the run is in flight or its outcome in the outbox
            self.outbox.put(outcome, urgent=urgent)
            self._reported += 1

    # For the process.

    @property
    def in_flight(self) -> int:
        """Runs in the inbox or in a handler."""
        with self._report_lock:
            return self._claimed - self._reported

    @property
    def is_done(self) -> bool:
        """Whether the worker has nothing left to do, by --drain or --max-jobs."""
        if not self._is_idle:
            return False
        if self._max_jobs is not None and self._spent >= self._max_jobs:
            return True
        return self._drain and self._found_nothing

    @property
    def _is_idle(self) -> bool:
        return not (self.in_flight or len(self.outbox) or self._unclear)

    def turn(self) -> float:
        """Do what is due. Returns how many seconds there is nothing more to do, unless woken."""
        now = time.monotonic()
        if now < self._retry_at:
            return self._retry_at - now
        try:
            self._settle_unclear()
            if self.outbox.is_urgent:
                self._write_due()
            self._give_back_stale(now)
            if not self._stop.requested:
                self._claim_due(now)  # before writing: the threads work while the database does
            self._write_due()
            self._failures = 0
        except (DatabaseError, InterfaceError) as error:
            self._database_failed(error)
            return self._retry_at - time.monotonic()
        return self._idle_for(time.monotonic())

    def give_back_waiting(self) -> None:
        """Take back what no thread has started."""
        self._return(self.inbox.take_all())

    def write_all(self, give_up_at: float) -> bool:
        """Write every outcome, trying until the monotonic instant ``give_up_at``. Whether all is written."""
        while len(self.outbox) or self._unclear:
            try:
                self._settle_unclear()
                self._write(self.outbox.take())
            except (DatabaseError, InterfaceError) as error:
                self._database_failed(error)
                if self._retry_at >= give_up_at or self._stop.immediate:
                    return False
                time.sleep(max(0.0, self._retry_at - time.monotonic()))
        return True

    def give_back_running(self) -> int:
        """Give back what is still in a handler; the process must end right after. Returns how many."""
        runs = [run for run in self.holdings.snapshot() if run.ended is None and not run.lost]
        for run in runs:
            self.outbox.put(Outcome(run, states.give_back()))
        return len(runs)

    # Writing.

    def _write_due(self) -> None:
        due_in = self.outbox.due_in()
        if due_in is not None and due_in <= 0:
            self._write(self.outbox.take())

    def _write(self, outcomes: list[Outcome]) -> None:
        if self._stop.requested:
            outcomes = _one_per_run(outcomes)
        durable: list[Outcome] = []
        together: list[Outcome] = []
        for each in outcomes:
            (durable if each.run.task is not None and each.run.task.durable else together).append(each)
        left = [*([together] if together else []), *([each] for each in durable)]
        try:
            while left:
                try:
                    self._write_together(left[0])
                except _Refused as refused:
                    abandon(connections[self.using])
                    left[:1] = self._instead_of(left[0], refused.error)
                else:
                    del left[0]
        except BaseException:
            self.outbox.put_back([outcome for batch in left for outcome in batch])
            raise

    def _write_together(self, outcomes: list[Outcome]) -> None:
        """Settle ``outcomes`` in one statement, and take note of what became of each. Raises _Refused."""
        connection = connections[self.using]
        dialect = dialect_of(connection)
        for outcome in outcomes:
            outcome.run.is_settling = True
        settlements = [outcome.settlement() for outcome in outcomes]
        try:
            landed = dict(dialect.settle(connection, settlements))
        except (DataError, IntegrityError, ValueError) as error:
            raise _Refused(error) from error
        missing = [(each.id, each.token) for each in settlements if each.id not in landed]
        locked: set[Any] = set()
        if missing:
            # An answer that a cut connection swallowed: written then, so not found running now.
            landed |= dict(dialect.ended_by(connection, missing))
            locked = dialect.still_held(connection, missing)
        # What another has locked waits until it is free.
        self.outbox.put_back([each for each in outcomes if each.run.claimed.id in locked])
        settled = [each for each in outcomes if each.run.claimed.id not in locked]
        for outcome in settled:
            self._landed(outcome, landed.get(outcome.run.claimed.id))
        self.holdings.remove(outcome.run for outcome in settled)

    def _instead_of(self, refused: list[Outcome], error: Exception) -> list[list[Outcome]]:
        """The database will not have one of these outcomes: find it, and let its job fail instead of all."""
        if len(refused) > 1:
            return [[each] for each in refused]
        (outcome,) = refused
        claimed = outcome.run.claimed
        if outcome.is_last_resort:
            logger.error(
                "An outcome cannot be stored; its lease will lapse id=%s", claimed.id, exc_info=error
            )
            self.holdings.remove([outcome.run])
            return []
        logger.error("An outcome cannot be stored; its job fails id=%s", claimed.id, exc_info=error)
        return [[outcome.as_refused(error)]]

    def _landed(self, outcome: Outcome, status: str | None) -> None:
        run = outcome.run
        claimed = run.claimed
        if status is None:
            self.counts.lost += 1
            logger.warning("Outcome dropped: the lease was lost name=%s id=%s", claimed.name, run.job_id)
            return
        if run.started is not None:
            self._pace.add(outcome.duration)
        self._count(outcome, status)
        self._log(outcome, status)
        self.aftermath.put(outcome, status)

    def _count(self, outcome: Outcome, status: str) -> None:
        counts = self.counts
        if status == Status.SUCCEEDED:
            counts.succeeded += 1
        elif status == Status.FAILED:
            counts.failed += 1
        elif status == Status.CANCELLED:
            counts.cancelled += 1
        elif outcome.verdict.uncharged:
            counts.given_back += 1
            self._spent -= outcome.run.is_handed_out
            self._more_expected = self._more_expected or status == Status.PENDING
        else:
            counts.retried += 1

    def _log(self, outcome: Outcome, status: str) -> None:
        if status == Status.SUCCEEDED and not logger.isEnabledFor(logging.INFO):
            return
        claimed = outcome.run.claimed
        milliseconds = outcome.duration * 1000
        if status == Status.SUCCEEDED:
            logger.info("job.finished name=%s id=%s ms=%.1f", claimed.name, outcome.run.job_id, milliseconds)
        elif status == Status.CANCELLED:
            logger.info("job.cancelled name=%s id=%s ms=%.1f", claimed.name, outcome.run.job_id, milliseconds)
        elif outcome.verdict.uncharged:
            logger.info("job.given_back name=%s id=%s", claimed.name, outcome.run.job_id)
        else:
            self._log_failure(outcome, status, milliseconds)

    def _log_failure(self, outcome: Outcome, status: str, milliseconds: float) -> None:
        claimed, error, verdict = outcome.run.claimed, outcome.error, outcome.verdict
        final = status == Status.FAILED
        what = f"{error.exception_class}: {error.message[:200]}" if error else ""
        logger.log(
            logging.ERROR if final else logging.WARNING,
            "job.%s name=%s id=%s attempt=%d/%d ms=%.1f%s error=%s",
            "failed" if final else "retrying",
            claimed.name,
            outcome.run.job_id,
            claimed.attempts - claimed.crashes,
            claimed.max_attempts,
            milliseconds,
            f" reason={verdict.reason}" if final else f" in={verdict.delay}",
            what,
        )

    # Claiming.

    def _claim_due(self, now: float) -> None:
        poll_is_due = now >= self._next_poll or (self._drain and self._is_idle)
        if poll_is_due:
            self._next_poll = now + self._poll_interval * random.uniform(0.9, 1.1)  # noqa: S311
            self._poll()
        wanted, at_once = self._wanted()
        if wanted and (poll_is_due or self._more_expected):
            self._claim(wanted, at_once=at_once)

    def _poll(self) -> None:
        """What comes up whether or not this worker is busy."""
        connection = connections[self.using]
        promoted = maintenance.promote(connection, until=time.monotonic() + PROMOTE_TIME)
        if promoted >= maintenance.PROMOTE_BATCH:
            self._next_poll = 0.0  # there may be more; claim and write in between
        recovered = maintenance.chores(
            connection, is_own=self.holdings.has_claim, may_recover=self.contact.is_trusted
        )
        for each in recovered:
            self.aftermath.put(each.outcome, each.status)

    def _wanted(self) -> tuple[int, bool]:
        """How many jobs to claim, and whether each of them has an idle thread."""
        idle = self._threads - self.in_flight
        # Threads stuck in a long handler will take nothing soon, however short the jobs before it were.
        if len(self.aftermath) > MOST_UNTOLD:
            return 0, False
        ahead = self._pace.ahead(self._threads - self.busy_for(HORIZON)) if self._ahead_allowed else 0
        room = idle + ahead
        if idle <= 0 and room < ahead / 2:
            return 0, False  # enough waits still; larger batches are cheaper
        if self._max_jobs is not None:
            room = min(room, self._max_jobs - self._spent)
        wanted = batch_size(room)
        return wanted, wanted <= idle

    def _claim(self, limit: int, *, at_once: bool) -> None:
        connection = connections[self.using]
        was_idle = self._is_idle
        sent_at = time.monotonic()
        token = secrets.token_hex(16)
        self._unclear.append(token)
        queues = self._selection.of(connection)
        claimed = (
            dialect_of(connection).claim(
                connection,
                token=token,
                worker=self.worker_id,
                queues=queues,
                limit=limit,
                lease=self._lease,
                at_once=at_once,
            )
            if queues is None or queues
            else []
        )
        self._unclear.remove(token)
        self._more_expected = len(claimed) >= limit
        self._found_nothing = was_idle and not claimed
        self._hand_out(claimed, sent_at)

    def _hand_out(self, claimed: list[Claimed], leased_at: float) -> None:
        idle = max(self._threads - self.in_flight, 0)
        runs = [Run(each, lambda: self._stop.requested, leased_at) for each in claimed]
        # A job that crashed before must not wait behind others: it would be charged with their crash.
        suspects = [run for run in runs[idle:] if run.claimed.crashes or run.claimed.recovered]
        self._ahead_allowed = not suspects
        if suspects:
            runs = [run for run in runs if run not in suspects]
            self.holdings.add(suspects)
            self._give_back(suspects)
        self.holdings.add(runs)
        self._claimed += len(runs)
        self._spent += len(runs)
        for run in runs:
            run.is_handed_out = True
        self.inbox.low_water = max(len(runs) // 2, 1) if len(runs) > idle else 0
        self.inbox.put(runs)

    def _give_back_stale(self, now: float) -> None:
        if len(self.inbox):
            self._return(self.inbox.take_stale(now - STALE))

    def _return(self, runs: list[Run]) -> None:
        self._claimed -= len(runs)
        self._give_back(runs)

    def _give_back(self, runs: list[Run]) -> None:
        for run in runs:
            self.outbox.put(Outcome(run, states.give_back()))

    def _settle_unclear(self) -> None:
        """Give back what a claim took whose answer never came."""
        connection = connections[self.using]
        while self._unclear:
            dialect = dialect_of(connection)
            taken = dialect.held_by_token(connection, self._unclear[-1])
            if taken:
                dialect.settle(connection, [Run(each).settlement(states.give_back()) for each in taken])
            self._unclear.pop()

    # Waiting.

    def _idle_for(self, now: float) -> float:
        waits = [STALE if self._stop.requested else self._next_poll - now]
        due_in = self.outbox.due_in()
        if due_in is not None:
            waits.append(due_in)
        if len(self.inbox):
            waits.append(STALE / 4)
        if self._drain and self._is_idle and not self._found_nothing:
            waits.append(0.0)  # the last outcomes are written: look once more, then end
        if self._more_expected and not self._stop.requested and self._wanted()[0]:
            waits.append(0.0)
        return max(0.0, min(waits))

    def _database_failed(self, error: Exception) -> None:
        """Back off, on a fresh connection; what was to be written stays in the outbox."""
        self._failures += 1
        self.contact.broken()
        wait = min(SLOWEST_RETRY, QUICKEST_RETRY * 2 ** min(self._failures - 1, 10))
        self._retry_at = time.monotonic() + wait * random.uniform(0.75, 1.25)  # noqa: S311
        self._next_poll = 0.0
        logger.warning(
            "Database error; trying again in %.1f s worker=%s error=%s", wait, self.worker_id, error
        )
        abandon(connections[self.using])


def _one_per_run(outcomes: list[Outcome]) -> list[Outcome]:
    """At the very end a handler may report while its run is being given back: its own outcome counts."""
    chosen: dict[int, Outcome] = {}
    for outcome in outcomes:
        if id(outcome.run) not in chosen or not outcome.verdict.uncharged:
            chosen[id(outcome.run)] = outcome
    return list(chosen.values())
