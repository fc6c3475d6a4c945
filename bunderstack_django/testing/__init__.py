"""Helpers for testing code that enqueues jobs.

``tick`` and ``drain`` run jobs in the calling thread on its connection, so they work inside ``TestCase``.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from .. import conf
from ..compat import Task
from ..jobs import maintenance
from ..jobs.backends import databases
from ..jobs.declare import JobTask, as_job
from ..jobs.execute import Outcome, Run, execute
from ..jobs.models import Job
from ..jobs.signals import announce_settled
from ..jobs.states import Status
from ..jobs.store import dialect_of
from ..jobs.store.rows import Claimed
from ..runtime import clock

__all__ = ["TickResult", "advance", "assert_enqueued", "drain", "tick"]

logger = logging.getLogger("bunderstack_django.jobs")

_BATCH = 100


@dataclass(frozen=True, slots=True)
class TickResult:
    """What one ``tick`` did."""

    claimed: int = 0
    succeeded: int = 0
    failed: int = 0  # for good
    retried: int = 0  # failed, to be tried again

    def __add__(self, other: TickResult) -> TickResult:
        return TickResult(
            self.claimed + other.claimed,
            self.succeeded + other.succeeded,
            self.failed + other.failed,
            self.retried + other.retried,
        )


def tick(now: datetime | None = None) -> TickResult:
    """Run the jobs that are due, each once.

    :param now: aware; the instant that this process takes for the database's now meanwhile.
    """
    with clock.shifted(fixed=now):
        results = [_tick(using) for using in databases()]
    return sum(results, TickResult())


def drain() -> TickResult:
    """Run due jobs until none is left, those that jobs enqueue too. Retries wait for their backoff."""
    total = TickResult()
    while (result := tick()).claimed:
        total += result
    return total


def advance(delta: timedelta | float) -> None:
    """Let this process's clock run ``delta`` (a ``timedelta``, or seconds) ahead of the database's.

    It holds until ``reset_clock()``, which the pytest plugin's ``jobs`` fixture calls after the test.
    """
    clock.advance(conf.as_timedelta(delta))


def reset_clock() -> None:
    """Back to the database's own clock."""
    clock.reset()


def assert_enqueued(task: Task, *args: Any, count: int | None = None, **kwargs: Any) -> list[Job]:
    """Assert that ``task`` was enqueued with these arguments and has not run; returns the jobs.

    Without arguments, with any. ``count`` asserts how many times.
    """
    job = as_job(task)
    waiting = [
        row
        for using in databases()
        for row in Job.objects.using(using).filter(
            name__in=[job.job_name, *job.aliases], status__in=[Status.SCHEDULED, Status.PENDING]
        )
    ]
    wanted = job.schema.dump(args, kwargs) if args or kwargs else None
    found = [row for row in waiting if wanted is None or _bound(job, row.payload) == _bound(job, wanted)]
    if (not found) if count is None else (len(found) != count):
        expected = f"{job.job_name} with {wanted}" if wanted else job.job_name
        times = "" if count is None else f" {count} times"
        stored = [row for using in databases() for row in Job.objects.using(using).order_by("id")[:20]]
        seen = "\n".join(f"  {row.name} {row.payload}" for row in stored) or "  none"
        raise AssertionError(f"{expected} was not enqueued{times} (found {len(found)}). Jobs:\n{seen}")
    return found


def _bound(job: JobTask, payload: dict[str, Any]) -> dict[str, Any]:
    """The arguments by parameter: whether one was given by position or by name makes no difference."""
    return dict(job.schema.signature.bind(*payload["args"], **payload["kwargs"]).arguments)


def _tick(using: str) -> TickResult:
    connection = connections[using]
    dialect = dialect_of(connection)
    maintenance.promote(connection)
    claimed: list[Claimed] = []
    while True:
        batch = dialect.claim(
            connection,
            token=secrets.token_hex(16),
            worker="testing",
            queues=None,
            limit=_BATCH,
            lease=conf.lease().total_seconds(),
            at_once=True,
        )
        claimed += batch
        if len(batch) < _BATCH:
            break
    result = TickResult(claimed=len(claimed))
    for each in claimed:
        result += _run(each, connection)
    return result


def _run(claimed: Claimed, connection: BaseDatabaseWrapper) -> TickResult:
    run = Run(claimed)
    with _guarded(connection) as guard:
        outcome: Outcome = execute(run)
        guard.failed = outcome.error is not None
    landed = dialect_of(connection).settle(connection, [outcome.settlement()])
    if not landed:
        return TickResult()
    status = landed[0].status
    if outcome.error is not None:
        logger.warning(
            "job.%s name=%s id=%s error=%s", status, claimed.name, run.job_id, outcome.error.traceback
        )
    announce_settled(outcome, status)
    return TickResult(
        succeeded=status == Status.SUCCEEDED,
        failed=status == Status.FAILED,
        retried=status == Status.SCHEDULED and not outcome.verdict.uncharged,
    )


@dataclass(slots=True)
class _Guard:
    failed: bool = False


@contextmanager
def _guarded(connection: BaseDatabaseWrapper) -> Iterator[_Guard]:
    """Keep a test's transaction usable when a handler breaks it; what the handler wrote before stays otherwise."""
    guard = _Guard()
    if not connection.in_atomic_block:
        yield guard
        return
    with transaction.atomic(using=connection.alias):
        yield guard
        if guard.failed and _is_broken(connection):
            transaction.set_rollback(True, using=connection.alias)


def _is_broken(connection: BaseDatabaseWrapper) -> bool:
    if connection.needs_rollback:
        return True
    return connection.vendor == "postgresql" and connection.connection.info.transaction_status == 3  # INERROR
