"""Claiming: which jobs, in which order, and what the claim writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bunderstack_django.jobs.models import Job, new_id
from bunderstack_django.jobs.states import Status
from bunderstack_django.jobs.store.rows import CLAIMED_COLUMNS
from bunderstack_django.runtime import clock

from .conftest import same
from .test_insert import WEIRD

pytestmark = pytest.mark.django_db

PAST = datetime(2001, 1, 1, tzinfo=UTC)


def ids(claimed) -> list[str]:
    return [str(each.id).replace("-", "") for each in claimed]


def hexes(*keys) -> list[str]:
    return [key.hex for key in keys]


def test_the_higher_priority_comes_first(store):
    low, high, middle = (store.put(priority=priority) for priority in (-100, 100, 0))

    assert ids(store.claim()) == hexes(high, middle, low)


def test_at_one_priority_the_earlier_due_comes_first(store):
    late, early = (store.put(run_after=PAST + timedelta(seconds=seconds)) for seconds in (0.000002, 0.000001))

    assert ids(store.claim()) == hexes(early, late)


def test_due_at_the_same_time_the_older_id_comes_first(store):
    first, second = new_id(), new_id()
    store.put(id=second, run_after=PAST)
    store.put(id=first, run_after=PAST)

    assert ids(store.claim()) == hexes(first, second)


def test_a_limit_takes_the_first_in_order(store):
    store.put(run_after=PAST + timedelta(seconds=1))
    second = store.put(run_after=PAST)
    first = store.put(priority=1)

    assert ids(store.claim(2)) == hexes(first, second)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(-3, 3), st.integers(0, 3), st.sampled_from(["a", "b", "c"])), max_size=25
    ),
    limit=st.integers(1, 12),
    queues=st.none() | st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=4, unique=True),
)
def test_claims_follow_the_order_whatever_the_rows(store, rows, limit, queues):
    Job.objects.all().delete()
    jobs = [
        store.new(priority=priority, run_after=PAST + timedelta(seconds=late), queue_name=queue)
        for priority, late, queue in rows
    ]
    if jobs:
        store.insert(*jobs)
    fitting = [job for job in jobs if queues is None or job.queue_name in queues]
    fitting.sort(key=lambda job: (-job.priority, job.run_after, job.id.hex))

    claimed = store.claim(limit, queues=queues)

    assert ids(claimed) == [job.id.hex for job in fitting[:limit]]


def test_nothing_pending_claims_nothing(store):
    assert store.claim() == []


def test_no_row_is_claimed_twice(store):
    store.put()

    assert (len(store.claim(token="one")), store.claim(token="two")) == (1, [])


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED])
def test_an_ended_job_is_not_claimed(store, status):
    store.end(status)

    assert store.claim() == []


def test_a_scheduled_job_is_not_claimed(store):
    store.put(delay=timedelta(hours=1))

    assert store.claim() == []


def test_one_queue_takes_its_own_jobs_only(store):
    mine = store.put(queue_name="mine")
    store.put(queue_name="theirs", priority=100)

    assert ids(store.claim(queues=["mine"])) == hexes(mine)


def test_several_queues_are_merged_in_order(store):
    last = store.put(queue_name="a", priority=-1)
    first = store.put(queue_name="b", priority=9)
    middle = store.put(queue_name="a", priority=3)
    store.put(queue_name="c", priority=100)

    assert ids(store.claim(queues=["a", "b"])) == hexes(first, middle, last)


def test_a_limit_holds_over_several_queues_together(store):
    for queue in ("a", "b", "c"):
        store.fill(5, queue_name=queue)

    assert len(store.claim(7, queues=["a", "b", "c"])) == 7


def test_what_several_queues_did_not_need_stays_claimable(store):
    for queue in ("a", "b"):
        store.fill(5, queue_name=queue)
    store.claim(6, queues=["a", "b"])

    assert len(store.claim(6, queues=["a", "b"])) == 4


def test_no_queue_claims_nothing(store):
    store.put()

    assert store.claim(queues=[]) == []


def test_a_queue_named_twice_is_one_queue(store):
    store.fill(6, queue_name="a")

    assert len(store.claim(4, queues=["a", "a"])) == 4


def test_a_queue_that_does_not_exist_claims_nothing(store):
    store.put()

    assert store.claim(queues=["nowhere"]) == []


@pytest.mark.parametrize("text", WEIRD, ids=ascii)
def test_a_queue_of_any_name_is_served(store, text):
    key = store.put(queue_name=text)

    assert ids(store.claim(queues=[text])) == hexes(key)


@pytest.mark.parametrize("text", WEIRD, ids=ascii)
def test_queues_of_any_names_are_served_together(store, text):
    store.put(queue_name=text)
    store.put(queue_name="other")

    assert len(store.claim(queues=[text, "other"])) == 2


@pytest.mark.parametrize("queue", ["Mail", "mail ", "máil", "mail%"], ids=ascii)
def test_queues_differ_by_their_bytes(store, queue):
    store.put(queue_name=queue)

    assert store.claim(queues=["mail"]) == []


def test_a_claim_says_what_the_row_holds(store):
    store.put(
        name="n",
        queue_name="q",
        priority=3,
        dedupe_key="k",
        max_attempts=9,
        payload='{"args":[1],"kwargs":{}}',
    )
    (claimed,) = store.claim(token="t", worker="w")
    row = store.row(claimed.id)

    assert claimed.payload == '{"args":[1],"kwargs":{}}'
    for name in (
        "name",
        "backend",
        "queue_name",
        "priority",
        "attempts",
        "crashes",
        "recovered",
        "max_attempts",
    ):
        assert getattr(claimed, name) == getattr(row, name)
    assert (claimed.dedupe_key, claimed.worker, claimed.lease_token) == ("k", "w", "t")
    for name in ("run_after", "enqueued_at", "started_at", "last_attempted_at"):
        assert clock.as_utc(getattr(claimed, name)) == getattr(row, name)
    assert claimed.cancel_requested_at is None
    assert (claimed.worker_ids, claimed.errors, claimed.log) == ('["w"]', "[]", "[]")


def test_the_columns_of_a_claim_are_all_in_the_table():
    assert set(CLAIMED_COLUMNS) <= {field.name for field in Job._meta.fields}


def test_a_claim_makes_the_row_running_under_its_token(store):
    key = store.put()
    store.claim(token="t" * 64, worker="w", lease=30.0)
    row = store.row(key)

    assert (row.status, row.attempts, row.lease_token, row.worker) == ("running", 1, "t" * 64, "w")
    assert row.worker_ids == ["w"]
    assert abs(row.locked_until - row.last_attempted_at - timedelta(seconds=30)) <= timedelta(milliseconds=1)


def test_a_lease_may_have_fractions(store):
    row = store.row(store.running().id)
    store.settle(store.outcome(store.dialect.held_by_token(connection, "token")[0], Status.PENDING))
    store.claim(lease=1.25)
    row.refresh_from_db()

    assert abs(row.locked_until - row.last_attempted_at - timedelta(seconds=1.25)) <= timedelta(
        milliseconds=1
    )


def test_each_claim_counts_an_attempt_and_adds_its_worker(store):
    key = store.put()
    for number in range(1, 4):
        (claimed,) = store.claim(token=f"t{number}", worker=f"w{number}")
        store.settle(store.outcome(claimed, Status.PENDING))
    row = store.row(key)

    assert (row.attempts, row.worker_ids, row.worker) == (3, ["w1", "w2", "w3"], "w3")


def test_a_claim_for_idle_threads_has_started_its_jobs(store):
    row = store.row(store.running(at_once=True).id)

    assert row.started_at == row.last_attempted_at


def test_a_prefetched_job_has_not_started(store):
    assert store.row(store.running(at_once=False).id).started_at is None


def test_a_job_that_crashed_before_has_started_even_when_prefetched(store):
    claimed = store.running()
    store.settle(store.outcome(claimed, Status.PENDING, crashes=1))

    assert store.claim(at_once=False)[0].started_at is not None


def test_a_job_that_was_recovered_before_has_started_even_when_prefetched(store):
    claimed = store.running()
    store.settle(store.outcome(claimed, Status.PENDING, recovered=1))

    assert store.claim(at_once=False)[0].started_at is not None


def test_a_prefetch_forgets_when_the_attempt_before_started(store):
    claimed = store.running(at_once=True)
    store.settle(store.outcome(claimed, Status.PENDING))

    assert store.claim(at_once=False)[0].started_at is None


@pytest.mark.parametrize("worker", ["host%d:1", "wörker-🐘", "a'b"], ids=ascii)
def test_a_worker_of_any_name_is_kept(store, worker):
    store.put()
    (claimed,) = store.claim(worker=worker)

    assert (store.row(claimed.id).worker, store.row(claimed.id).worker_ids) == (worker, [worker])


@pytest.mark.parametrize("worker", ['a"b', r"a\b"], ids=ascii)
def test_a_worker_name_with_json_characters_leaves_readable_worker_ids(store, worker):
    store.put()
    (claimed,) = store.claim(worker=worker)

    assert store.row(claimed.id).worker_ids == [worker]


def test_a_claim_leaves_other_rows_alone(store):
    other = store.put(queue_name="other")
    before = Job.objects.filter(pk=other).values().get()
    store.running()

    assert Job.objects.filter(pk=other).values().get() == before


def test_a_job_claimed_by_id_settles_by_that_id(store):
    key = store.put()
    (claimed,) = store.claim()
    (settled,) = store.settle(store.outcome(claimed))

    assert settled.id == claimed.id
    assert same(settled.id, key)
