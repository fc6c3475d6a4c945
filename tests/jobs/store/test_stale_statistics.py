"""A queue fills faster than statistics follow: plans made for an almost empty table must stay right and quick.

``UPDATE … WHERE id IN (SELECT … LIMIT 10 FOR UPDATE SKIP LOCKED)`` then runs its sub-select per row and claims
everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from django.db import connection

from bunderstack_django.jobs.models import Job
from bunderstack_django.jobs.states import Status

from .test_plans import TABLE, fill, watched

pytestmark = pytest.mark.django_db


@pytest.fixture
def stale(store) -> Iterator[None]:
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL alone plans by row counts that may be this wrong")
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} SET (autovacuum_enabled = off)")
        store.fill(3)
        cursor.execute(f"ANALYZE {TABLE}")
    fill("succeeded", 40_000)
    fill("scheduled", 5_000, run_after="3600 + n")
    fill("pending", 300)
    fill("pending", 300, queue="'mail'")
    yield
    with connection.cursor() as cursor:  # the counts in pg_class outlive the rollback
        cursor.execute(f"DELETE FROM {TABLE}")
        cursor.execute(f"ANALYZE {TABLE}")


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize("queues", [None, ["mail"], ["mail", "default"], ["mail", "nowhere"]], ids=str)
def test_a_claim_of_ten_claims_ten(store, queues):
    claimed = store.claim(10, queues=queues)

    assert len(claimed) == 10
    assert Job.objects.filter(status="running").count() == 10


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize("queues", [None, ["mail"], ["mail", "default"]], ids=str)
def test_a_prepared_claim_of_ten_goes_on_claiming_ten(store, queues):
    for _ in range(12):
        assert len(store.claim(10, queues=queues)) == 10


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize("enabled", [True, False])
def test_a_claim_of_ten_claims_ten_by_any_join(store, enabled):
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL enable_hashjoin = {'on' if enabled else 'off'}")
        cursor.execute("SET LOCAL enable_mergejoin = off")
        cursor.execute(f"SET LOCAL enable_material = {'off' if enabled else 'on'}")

    assert len(store.claim(10)) == 10


@pytest.mark.usefixtures("stale")
def test_promotion_keeps_its_limit(store):
    fill("scheduled", 300, run_after="-n")

    assert store.dialect.promote(connection, 20) == 20


@pytest.mark.usefixtures("stale")
def test_pruning_keeps_its_limit(store):
    deleted = store.dialect.prune(connection, status="succeeded", name="even", older_than=0.0, limit=20)

    assert deleted == 20


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize("count", [1, 50])
def test_outcomes_and_heartbeats_do_not_scan_the_table(store, count):
    claims = store.claim(count)
    with watched() as seen:
        store.pulse(*claims)
        store.settle(*[store.outcome(each, Status.SUCCEEDED) for each in claims])

    assert [len(json.loads(each.plan)) for each in seen] == [1, 1]
    assert not any("Seq Scan" in each.plan for each in seen), [each.plan for each in seen]
    assert max(each.touched for each in seen) <= 50 * count + 200


@pytest.mark.usefixtures("stale")
def test_recovery_does_not_scan_the_table(store):
    claims = store.claim(5)
    store.lapse()
    with watched() as seen:
        assert len(store.dialect.lapsed(connection, 100)) == 5
        assert len(store.settle(*map(store.outcome, claims), lapsed_only=True)) == 5

    assert not any("Seq Scan" in each.plan for each in seen), [each.plan for each in seen]
