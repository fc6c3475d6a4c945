"""A small table is where a planner likes to read everything, which on MariaDB locks everything it reads.

There, a write that reads rows of others waits for them and deadlocks with those that wait for its own: batches
must be written by primary key however few rows there are.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from bunderstack_django.jobs.models import Job
from bunderstack_django.runtime.clock import DatabaseNow

from .test_plans import watched

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def on_mariadb() -> None:
    if connection.vendor != "mysql":
        pytest.skip("only MariaDB locks what it reads and does not want")


def locking(seen) -> list[str]:
    """The plans of the statements that lock rows found before, but not those that skip locked ones."""
    return [each.plan for each in seen if "SKIP LOCKED" not in each.sql and each.sql.split()[0] != "INSERT"]


def some(claims: list, count: int) -> list:
    return claims if count == len(claims) else claims[::2][:count]


def by_key(plans: list[str]) -> bool:
    lines = [line for plan in plans for line in plan.splitlines() if "'table': 'v'" not in line]
    return bool(lines) and all("'key': 'PRIMARY'" in line and "'type': 'index'" not in line for line in lines)


@pytest.mark.parametrize("count", [1, 5, 20, 40])
def test_outcomes_are_written_by_primary_key(store, count):
    store.fill(40)
    claims = store.claim(40)
    with watched() as seen:
        store.settle(*map(store.outcome, some(claims, count)))

    assert by_key(locking(seen)), locking(seen)


@pytest.mark.parametrize("count", [1, 5, 20, 40])
def test_heartbeats_are_written_by_primary_key(store, count):
    store.fill(40)
    claims = store.claim(40)
    with watched() as seen:
        store.pulse(*some(claims, count))

    assert by_key(locking(seen)), locking(seen)


@pytest.mark.parametrize("count", [1, 20])
def test_recovery_is_written_by_primary_key(store, count):
    store.fill(40)
    claims = store.claim(40)
    store.lapse()
    with watched() as seen:
        store.settle(*map(store.outcome, some(claims, count)), lapsed_only=True)

    assert by_key(locking(seen)), locking(seen)


@pytest.mark.parametrize("count", [1, 20])
def test_claims_are_written_by_primary_key(store, count):
    store.fill(40)
    with watched() as seen:
        store.claim(count)

    assert by_key([each.plan for each in seen if each.sql.startswith("UPDATE")]), locking(seen)


def test_promotions_are_written_by_primary_key(store):
    store.fill(40, delay=timedelta(hours=1))
    Job.objects.update(run_after=DatabaseNow(-timedelta(seconds=1)))
    with watched() as seen:
        assert store.dialect.promote(connection, 20) == 20

    assert by_key(locking(seen)), locking(seen)


def test_prunings_are_written_by_primary_key(store):
    store.fill(40)
    store.settle(*map(store.outcome, store.claim(40)))
    with watched() as seen:
        prune = {"status": "succeeded", "name": "sample", "older_than": -60.0, "limit": 20}
        assert store.dialect.prune(connection, **prune) == 20

    assert by_key(locking(seen)), locking(seen)


def test_looking_keys_up_locks_no_row_of_others(store):
    store.fill(40)
    with watched() as seen:
        store.insert(*[store.new(dedupe_key=f"k{number}") for number in range(20)])

    reads = [each for each in seen if "LOCK IN SHARE MODE" in each.sql or "FOR UPDATE" in each.sql]
    assert all("'key': 'bunderstack_job_dedupe'" in each.plan for each in reads), [
        each.plan for each in reads
    ]
