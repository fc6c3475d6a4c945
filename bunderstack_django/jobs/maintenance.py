"""What any worker does for all: promote due jobs, recover lapsed leases, prune ended jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from .. import conf
from ..exceptions import WorkerLost
from . import states
from .declare import registry
from .errors import describe
from .execute import Outcome, Run, tally
from .models import WorkerProcess
from .states import TERMINAL, Status
from .store import dialect_of, workers
from .store.rows import Claimed

logger = logging.getLogger("bunderstack_django.jobs")

PROMOTE_BATCH = 1_000
RECOVER_BATCH = 100
PRUNE_BATCH = 1_000
PRUNE_EVERY = timedelta(seconds=60)
PRUNE_TIME = 0.5  # seconds in a row; what is left waits for the next turn
RECOVER_EVERY = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Recovered:
    """A job taken from a dead worker, and how it goes on."""

    outcome: Outcome
    status: str


def promote(connection: BaseDatabaseWrapper, *, until: float = inf) -> int:
    """Make due scheduled jobs pending, batch after batch until this monotonic instant. Returns how many."""
    total = 0
    while (moved := dialect_of(connection).promote(connection, PROMOTE_BATCH)) > 0:
        total += moved
        if moved < PROMOTE_BATCH or time.monotonic() >= until:
            break
    return total


def recover(
    connection: BaseDatabaseWrapper, *, is_own: Callable[[Any, str], bool] = lambda key, token: False
) -> list[Recovered]:
    """Take back jobs whose workers stopped renewing their leases.

    :param is_own: whether (key, token) is a claim of this process, which may still renew it.
    """
    lapsed = dialect_of(connection).lapsed(connection, RECOVER_BATCH)
    outcomes = [
        _lost(claimed, connection) for claimed in lapsed if not is_own(claimed.id, claimed.lease_token)
    ]
    if not outcomes:
        return []
    settlements = []
    for outcome in outcomes:
        settlement = outcome.settlement()
        settlement.recovered += 1
        settlements.append(settlement)
    landed = dict(dialect_of(connection).settle(connection, settlements, lapsed_only=True))
    recovered = [
        Recovered(outcome, landed[outcome.run.claimed.id])
        for outcome in outcomes
        if outcome.run.claimed.id in landed
    ]
    for each in recovered:
        run = each.outcome.run
        logger.warning(
            "Recovered a job from a dead worker name=%s id=%s worker=%s crashes=%d status=%s",
            run.claimed.name,
            run.job_id,
            run.claimed.worker,
            run.claimed.crashes + each.outcome.verdict.crashed,
            each.status,
        )
    return recovered


def prune(connection: BaseDatabaseWrapper, *, until: float = inf) -> int:
    """Delete ended jobs past their retention, batch after batch until this monotonic instant. Returns how many."""
    dialect = dialect_of(connection)
    total = 0
    for status in TERMINAL:
        for name in dialect.ended_names(connection, status.value):
            older_than = retention_of(name, status).total_seconds()
            while True:
                deleted = dialect.prune(
                    connection, status=status.value, name=name, older_than=older_than, limit=PRUNE_BATCH
                )
                total += deleted
                if time.monotonic() >= until:
                    return total
                if deleted < PRUNE_BATCH:
                    break
    return total


def retention_of(name: str, status: Status) -> timedelta:
    """How long a job of this name is kept after it ended as ``status``."""
    task = registry.declared(name)
    own = None if task is None else task.retention
    if isinstance(own, tuple):  # (outcome, duration) pairs
        own = dict(own).get(status.value)
    return conf.retention(status.value) if own is None else own


def chores(
    connection: BaseDatabaseWrapper, *, is_own: Callable[[Any, str], bool], may_recover: bool
) -> list[Recovered]:
    """Do what is due, each chore at most once per interval over all workers of the database."""
    using = connection.alias
    recovered: list[Recovered] = []
    if may_recover and workers.take_turn("recover", min(RECOVER_EVERY, conf.heartbeat()), using):
        recovered = recover(connection, is_own=is_own)
    if workers.take_turn("prune", PRUNE_EVERY, using):
        pruned = prune(connection, until=time.monotonic() + PRUNE_TIME)
        workers.forget_dead(max(conf.lease() * 10, timedelta(minutes=5)), using)
        if pruned:
            logger.info("Pruned ended jobs count=%d", pruned)
    return recovered


def _lost(claimed: Claimed, connection: BaseDatabaseWrapper) -> Outcome:
    """What becomes of a job whose lease lapsed, with the evidence of its worker's death."""
    run = Run(claimed)
    run.task = registry.find(claimed.name)
    verdict = states.after_crash(
        tally(claimed), started=claimed.started_at is not None, max_crashes=conf.value("MAX_CRASHES")
    )
    if not verdict.crashed:
        return Outcome(run, verdict)
    error = WorkerLost(_evidence(claimed, workers.find(claimed.worker, connection.alias)))
    described = describe(error, attempt=claimed.attempts, worker=claimed.worker, at=run.now().isoformat())
    return Outcome(run, verdict, error=described)


def _evidence(claimed: Claimed, process: WorkerProcess | None) -> str:
    if process is None:
        return f"Worker {claimed.worker} stopped renewing its lease; nothing more is known of it."
    return (
        f"Worker {process.pk} (host {process.host}, process {process.pid}) stopped renewing its lease. "
        f"Its last heartbeat was at {process.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC, "
        f"with {process.rss_bytes / 1_048_576:.0f} MiB of memory and {process.running} running jobs."
    )
