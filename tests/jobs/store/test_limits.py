"""Large batches, and connections that are set up otherwise than Django's default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from bunderstack_django import cancel, enqueue_many
from bunderstack_django.jobs import operations
from bunderstack_django.jobs.models import Job
from bunderstack_django.jobs.states import Status
from tests.testapp import tasks

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("unit", ["x", "漢", '"', "\\"], ids=ascii)
def test_a_batch_of_large_payloads_is_stored(unit):
    """MariaDB refuses a statement over ``max_allowed_packet``, 16 MiB by default; JSON and the driver both escape."""
    size = 1_900_000 // len(f"{unit}".encode()) // (2 if unit in '"\\' else 1)
    enqueue_many([tasks.echo.bind(unit * size) for _ in range(6)])

    assert Job.objects.count() == 6


@pytest.mark.parametrize("unit", ["x", "漢", '\\"'], ids=ascii)
def test_a_batch_of_large_results_lands(store, unit):
    """A worker writes the outcomes of 50 ms together; one that cannot be written is tried again and again."""
    store.fill(12)
    result = f'"{unit * (1_500_000 // len(unit.encode()))}"'

    assert len(store.settle(*[store.outcome(each, result=result) for each in store.claim(12)])) == 12


def test_batches_are_cut_by_their_bytes(monkeypatch, django_assert_num_queries):
    """``BATCH_BYTES`` says bytes; a character may be four."""
    monkeypatch.setattr(operations, "BATCH_BYTES", 1000)
    seen = []
    insert = operations._insert
    monkeypatch.setattr(
        operations, "_insert", lambda using, jobs: seen.append(len(jobs)) or insert(using, jobs)
    )
    enqueue_many([tasks.echo.bind("🐘" * 100) for _ in range(4)])  # of some 430 bytes each

    assert max(seen) == 2


def test_a_batch_of_more_than_a_thousand_goes_in_by_several_statements(monkeypatch):
    seen = []
    insert = operations._insert
    monkeypatch.setattr(
        operations, "_insert", lambda using, jobs: seen.append(len(jobs)) or insert(using, jobs)
    )
    results = enqueue_many([tasks.echo.bind(number) for number in range(2001)])

    assert seen == [1000, 1000, 1]
    assert [result.args for result in results[::1000]] == [[0], [1000], [2000]]
    assert Job.objects.count() == 2001


def test_results_of_a_batch_with_duplicates_are_in_the_order_of_the_calls():
    held = tasks.echo.using(dedupe_key="a").enqueue("held")
    results = enqueue_many(
        [
            tasks.echo.using(dedupe_key="b").bind(1),
            tasks.echo.using(dedupe_key="a").bind(2),
            tasks.echo.bind(3),
            tasks.echo.using(dedupe_key="b").bind(4),
        ]
    )

    assert [result.args for result in results] == [[1], ["held"], [3], [1]]
    assert results[1].id == held.id
    assert results[3].id == results[0].id


@pytest.fixture(params=["utf8mb4_unicode_ci", "utf8mb4_bin", "utf8mb4_general_ci"])
def collation(request) -> Iterator[str]:
    if connection.vendor != "mysql":
        pytest.skip("MariaDB alone has a collation per connection")
    with connection.cursor() as cursor:
        cursor.execute(f"SET NAMES utf8mb4 COLLATE {request.param}")
    yield request.param
    with connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4")


@pytest.mark.usefixtures("collation")
def test_every_statement_runs_whatever_the_collation_of_the_connection(store):
    held = store.put(name="n", queue_name="Q", dedupe_key="K")
    assert store.insert(store.new(name="n", dedupe_key="K")) == []
    assert len(store.insert(store.new(name="n", dedupe_key="k", queue_name="q"))) == 1
    (claimed,) = store.claim(queues=["Q"])
    assert store.pulse(claimed, progress="1") != {} or connection.vendor == "sqlite"
    assert store.dialect.holder(connection, "n", "K") is not None
    cancel(str(held))
    assert [each.status for each in store.settle(store.outcome(claimed, Status.FAILED))] == ["cancelled"]
    assert len(store.dialect.ended_by(connection, [(claimed.id, "token")])) == 1
    assert store.dialect.ended_names(connection, "cancelled") == ["n"]
    assert store.dialect.pending_queues(connection) == ["q"]
    assert store.dialect.promote(connection, 10) == 0
    assert store.dialect.prune(connection, status="cancelled", name="n", older_than=-60.0, limit=10) == 1


@pytest.mark.usefixtures("collation")
def test_keys_differ_by_their_bytes_whatever_the_collation_of_the_connection(store):
    store.put(dedupe_key="a", queue_name="mail")

    assert len(store.insert(*[store.new(dedupe_key=key) for key in ("A", "a ", "á")])) == 3
    assert store.claim(queues=["Mail", "mail "]) == []
