"""The store by hand: rows in, claims out, without a worker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from bunderstack_django.jobs.models import DedupeLock, Job, new_id
from bunderstack_django.jobs.states import Status
from bunderstack_django.jobs.store import dialect_of
from bunderstack_django.jobs.store.dialect import Dialect
from bunderstack_django.jobs.store.rows import Claimed, Inserted, NewJob, Pulse, Settled, Settlement
from bunderstack_django.runtime.clock import DatabaseNow


class Store:
    """The dialect of the default database on the calling thread's connection, with short calls."""

    @property
    def dialect(self) -> Dialect:
        return dialect_of(connection)

    def new(self, **values: Any) -> NewJob:
        return NewJob(
            **{
                "id": new_id(),
                "name": "sample",
                "backend": "default",
                "queue_name": "default",
                "priority": 0,
                "payload": '{"args":[],"kwargs":{}}',
                "max_attempts": 4,
                "run_after": None,
                "delay": None,
                "dedupe_key": None,
                "concurrency_key": None,
            }
            | values
        )

    def insert(self, *jobs: NewJob) -> list[Inserted]:
        return self.dialect.insert(connection, jobs)

    def put(self, **values: Any) -> Any:
        """Insert one job; its id."""
        job = self.new(**values)
        self.insert(job)
        return job.id

    def fill(self, count: int, **values: Any) -> list[Any]:
        """Insert many jobs at once; their ids in order."""
        jobs = [self.new(**values) for _ in range(count)]
        self.insert(*jobs)
        return [job.id for job in jobs]

    def claim(self, limit: int = 10, *, token: str = "token", **options: Any) -> list[Claimed]:
        given = {"worker": "worker", "queues": None, "lease": 30.0, "at_once": True} | options
        return self.dialect.claim(connection, token=token, limit=limit, **given)

    def running(self, *, token: str = "token", at_once: bool = True, **values: Any) -> Claimed:
        """Insert one job and claim it."""
        key = self.put(**values)
        (claimed,) = (
            each
            for each in self.claim(
                1, token=token, at_once=at_once, queues=[values.get("queue_name", "default")]
            )
            if same(each.id, key)
        )
        return claimed

    def outcome(self, claimed: Claimed, status: Status = Status.SUCCEEDED, **values: Any) -> Settlement:
        return Settlement(
            **{
                "id": claimed.id,
                "token": claimed.lease_token,
                "status": status,
                "attempts": claimed.attempts,
                "crashes": claimed.crashes,
                "recovered": claimed.recovered,
            }
            | values
        )

    def settle(self, *settlements: Settlement, lapsed_only: bool = False) -> list[Settled]:
        return self.dialect.settle(connection, settlements, lapsed_only=lapsed_only)

    def end(self, status: Status = Status.SUCCEEDED, **values: Any) -> Job:
        """Insert a job, claim it and settle it."""
        claimed = self.running(**values)
        self.settle(self.outcome(claimed, status))
        return self.row(claimed.id)

    def pulse(self, *claims: Claimed, lease: float = 30.0, **values: Any) -> dict[Any, bool]:
        pulses = [Pulse(**({"id": each.id, "token": each.lease_token} | values)) for each in claims]
        return self.dialect.pulse(connection, pulses, lease)

    def lapse(self, *keys: Any) -> None:
        """Let leases run out: all, or those of these jobs."""
        rows = Job.objects.filter(pk__in=keys) if keys else Job.objects.filter(status="running")
        rows.update(locked_until=DatabaseNow(-timedelta(seconds=1)))

    def row(self, key: Any) -> Job:
        return Job.objects.get(pk=key)

    def statuses(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for status in Job.objects.values_list("status", flat=True):
            found[status] = found.get(status, 0) + 1
        return found


def same(first: Any, second: Any) -> bool:
    """Whether two ids, each a UUID or as a database gives it, are one."""
    return plain(first) == plain(second)


def plain(key: Any) -> str:
    return str(key).replace("-", "")


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def seeded() -> None:
    """The rows that a flush between tests took."""
    if connection.vendor == "mysql":
        DedupeLock.objects.bulk_create(
            [DedupeLock(id=number) for number in range(DedupeLock.COUNT)], ignore_conflicts=True
        )
