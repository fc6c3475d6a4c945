"""Connections that race for the same rows."""

# ruff: noqa: B023 - the threads of a round end with it

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from threading import Event

import pytest
from django.db import connection, transaction

from bunderstack_django import cancel, enqueue_many, retry
from bunderstack_django.exceptions import DedupeConflict
from bunderstack_django.jobs import maintenance
from bunderstack_django.jobs.models import Interval, Job
from bunderstack_django.jobs.states import ACTIVE, Status
from bunderstack_django.jobs.store import workers
from bunderstack_django.runtime.clock import DatabaseNow
from tests.testapp import tasks

from .conftest import plain
from .racing import outcomes, race, start, until_blocked

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("seeded")]


def keyed(key: str = "k"):
    return tasks.noop.using(dedupe_key=key)


def errors_of(results) -> list[BaseException]:
    return [each for each in results if isinstance(each, BaseException)]


def claim_all(store, token: str, limit: int = 7, queues=None) -> list[str]:
    found: list[str] = []
    while claimed := store.claim(limit, token=token, worker=token, queues=queues):
        found += [str(each.id) for each in claimed]
    return found


@pytest.mark.parametrize("queues", [None, ["a"], ["a", "b"]], ids=str)
def test_eight_claimers_share_five_hundred_jobs_without_overlap(store, queues):
    store.fill(250, queue_name="a")
    store.fill(250, queue_name="b" if queues != ["a"] else "a")

    claimed = race(*[lambda n=n: claim_all(store, f"t{n}", queues=queues) for n in range(8)])

    counts = Counter(key for each in claimed for key in each)
    left = claim_all(store, "late", queues=queues)  # a claimer may see none while another holds the last ones
    assert set(counts.values()) <= {1}
    assert len(counts) + len(left) == 500
    assert set(Job.objects.values_list("status", "attempts")) == {("running", 1)}


def test_jobs_inserted_while_others_claim_are_claimed_once(store):
    done = Event()

    def insert() -> list[str]:
        for _ in range(20):
            with transaction.atomic():
                store.fill(5)
        return []

    def claim(token: str) -> list[str]:
        found = []
        while not done.is_set():
            found += claim_all(store, token)
        return found

    inserters = start(*[insert] * 3)
    claimers = start(*[lambda n=n: claim(f"t{n}") for n in range(3)])
    try:
        for each in inserters:
            each.result(30)
    finally:
        done.set()
    counts = Counter(key for each in claimers for key in each.result(30))
    counts.update(claim_all(store, "late"))

    assert (len(counts), set(counts.values())) == (300, {1})


def test_claims_that_are_rolled_back_leave_the_jobs_claimable(store):
    store.fill(10)

    def claim_and_fail() -> None:
        with transaction.atomic():
            store.claim(10, token="never")
            transaction.set_rollback(True)

    race(*[claim_and_fail] * 3)
    assert len(store.claim(10)) == 10
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}


def test_two_settles_of_one_claim_land_once(store):
    for _ in range(15):
        claimed = store.running()
        landed = race(
            *[lambda s=s: store.settle(store.outcome(claimed, s)) for s in (Status.SUCCEEDED, Status.FAILED)]
        )

        assert sorted(map(len, landed)) == [0, 1]
        assert store.row(claimed.id).status == (landed[0] or landed[1])[0].status


def test_of_a_heartbeat_and_a_recovery_exactly_one_wins(store):
    winners = Counter()
    for _ in range(15):
        claimed = store.running()
        store.lapse(claimed.id)
        renewed, recovered = race(
            lambda: store.pulse(claimed),
            lambda: store.settle(store.outcome(claimed, Status.PENDING), lapsed_only=True),
        )

        assert bool(renewed) != bool(recovered)
        assert store.row(claimed.id).status == ("running" if renewed else "pending")
        winners["heartbeat" if renewed else "recovery"] += 1
        Job.objects.all().delete()


def test_of_a_settle_and_a_recovery_exactly_one_lands(store):
    for _ in range(15):
        claimed = store.running()
        store.lapse(claimed.id)
        results = race(
            lambda: store.settle(store.outcome(claimed)),
            lambda: store.settle(store.outcome(claimed, Status.PENDING), lapsed_only=True),
        )

        assert sorted(map(len, results)) == [0, 1]
        Job.objects.all().delete()


def test_heartbeats_and_outcomes_of_the_same_jobs_in_opposite_order_do_not_deadlock(store):
    """A process renews its leases on one connection while it writes its outcomes on another."""
    for _ in range(10):
        store.fill(150)
        claims = store.claim(150)
        results = outcomes(
            lambda: store.pulse(*claims),
            lambda: store.settle(*[store.outcome(each, Status.PENDING) for each in reversed(claims)]),
        )

        assert errors_of(results) == []
        # What the heartbeat had locked just then is passed over, and written when the worker sends it again.
        left = [each for each in claims if each.id not in {settled.id for settled in results[1]}]
        assert len(store.settle(*[store.outcome(each, Status.PENDING) for each in left])) == len(left)
        Job.objects.all().delete()


def test_of_a_cancel_and_a_claim_both_may_win_but_nothing_is_lost(store):
    for _ in range(15):
        key = str(store.put())
        cancelled, claimed = race(lambda: cancel(key), lambda: store.claim(1))
        row = store.row(key)

        assert cancelled
        assert row.status == ("running" if claimed else "cancelled")
        assert row.cancel_requested_at is not None
        Job.objects.all().delete()


def test_of_a_cancel_and_an_outcome_the_row_tells_one_story(store):
    for _ in range(15):
        claimed = store.running()
        key = str(store.row(claimed.id).pk)
        _, landed = race(lambda: cancel(key), lambda: store.settle(store.outcome(claimed, Status.FAILED)))
        landed = landed or store.settle(
            store.outcome(claimed, Status.FAILED)
        )  # the cancel had the row locked
        row = store.row(claimed.id)

        assert [each.status for each in landed] == [row.status]
        assert (row.status == "cancelled") == (row.cancel_requested_at is not None)
        Job.objects.all().delete()


@pytest.mark.parametrize("in_transaction", [False, True])
def test_eight_enqueues_of_one_key_are_one_job(in_transaction):
    def enqueue() -> str:
        if not in_transaction:
            return keyed().enqueue().id
        with transaction.atomic():
            return keyed().enqueue().id

    found = race(*[enqueue] * 8)

    assert (len(set(found)), Job.objects.count()) == (1, 1)
    assert str(Job.objects.get().pk) == found[0]


def test_duplicates_wait_for_the_first_ones_transaction():
    with transaction.atomic():
        first = keyed().enqueue()
        waiters = start(*[lambda: keyed().enqueue().id] * 3)
        until_blocked(3)
        assert not any(each.done() for each in waiters)

    assert {each.result(30) for each in waiters} == {first.id}


def test_when_the_first_ones_transaction_rolls_back_exactly_one_other_stands():
    with transaction.atomic():
        first = keyed().enqueue()
        waiters = start(*[lambda: keyed().enqueue().id] * 4)
        until_blocked(4)
        transaction.set_rollback(True)
    found = {each.result(30) for each in waiters}

    assert len(found) == 1
    assert found == {str(job.pk) for job in Job.objects.all()}
    assert first.id not in found


def test_when_many_transactions_with_one_key_roll_back_one_of_the_others_stands():
    def enqueue(number: int) -> str | None:
        with transaction.atomic():
            found = keyed().enqueue().id
            if number % 2:
                transaction.set_rollback(True)
                return None
        return found

    results = outcomes(*[lambda n=n: enqueue(n) for n in range(8)])

    assert errors_of(results) == []
    assert {each for each in results if each} == {str(job.pk) for job in Job.objects.all()}
    assert Job.objects.count() == 1


def test_a_duplicate_leaves_the_callers_transaction_usable():
    first = keyed().enqueue()

    def work() -> list[str]:
        with transaction.atomic():
            Interval.objects.create(name="before", ran_at=DatabaseNow())
            found = [keyed().enqueue().id, keyed("other").enqueue().id]
            Interval.objects.create(name="after", ran_at=DatabaseNow())
        return found

    ((same, other),) = race(work)

    assert same == first.id
    assert {str(job.pk) for job in Job.objects.all()} == {first.id, other}
    assert Interval.objects.count() == 2


def test_a_duplicate_that_waited_leaves_its_transaction_usable():
    def work() -> str:
        with transaction.atomic():
            found = keyed().enqueue().id
            Interval.objects.create(name="after", ran_at=DatabaseNow())
        return found

    with transaction.atomic():
        first = keyed().enqueue()
        (waiter,) = start(work)
        until_blocked(1)

    assert waiter.result(30) == first.id
    assert Interval.objects.filter(name="after").exists()


def test_duplicates_of_a_job_that_ends_meanwhile_are_that_job_or_one_new_job(store):
    for _ in range(20):
        first = keyed().enqueue().id
        (claimed,) = store.claim(1)
        *found, landed = outcomes(
            *[lambda: keyed().enqueue().id] * 4,
            lambda: store.settle(store.outcome(claimed)),
        )

        assert errors_of([*found, landed]) == []
        assert len(landed) == 1
        active = {str(job.pk) for job in Job.objects.filter(status__in=ACTIVE)}
        assert len(active) <= 1
        assert set(found) <= {first} | active
        Job.objects.all().delete()


def test_a_held_row_that_ends_does_not_deadlock_with_a_batch_of_duplicates(store):
    keys = [f"k{number}" for number in range(60)]
    for _ in range(8):
        enqueue_many([keyed(key).bind() for key in keys])
        claims = store.claim(60)
        results = outcomes(
            lambda: [each.id for each in enqueue_many([keyed(key).bind() for key in keys])],
            lambda: store.settle(*map(store.outcome, claims)),
            lambda: [each.id for each in enqueue_many([keyed(key).bind() for key in reversed(keys)])],
        )

        assert errors_of(results) == []
        active = Counter(Job.objects.filter(status__in=ACTIVE).values_list("dedupe_key", flat=True))
        assert set(active.values()) <= {1}
        Job.objects.all().delete()


@pytest.mark.parametrize("in_transaction", [False, True])
def test_batches_with_keys_in_opposite_order_do_not_deadlock(in_transaction):
    for number in range(4):
        keys = [f"{number}:{each}" for each in range(120)]

        def enqueue(order) -> set[str]:
            calls = [keyed(key).bind() for key in order]
            if not in_transaction:
                return {each.id for each in enqueue_many(calls)}
            with transaction.atomic():
                return {each.id for each in enqueue_many(calls)}

        forth, back = keys, keys[::-1]
        results = outcomes(*[lambda order=order: enqueue(order) for order in (forth, back) * 2])

        assert errors_of(results) == []
        assert len({frozenset(each) for each in results}) == 1
        Job.objects.all().delete()


def test_a_batch_whose_first_key_is_held_by_an_open_transaction_is_inserted_whole_at_its_end():
    with transaction.atomic():
        first = keyed("a").enqueue()
        (waiter,) = start(lambda: [each.id for each in enqueue_many([keyed(key).bind() for key in "ab"])])
        until_blocked(1)
    a, b = waiter.result(30)

    assert a == first.id
    assert {str(job.pk) for job in Job.objects.all()} == {a, b}


def test_of_an_operators_retry_and_a_new_enqueue_of_its_key_one_stands(store):
    for _ in range(15):
        old = keyed().enqueue().id
        store.settle(*map(store.outcome, store.claim(1)))
        retried, enqueued = outcomes(lambda: retry(old).id, lambda: keyed().enqueue().id)

        active = {str(job.pk) for job in Job.objects.filter(status__in=ACTIVE)}
        assert len(active) == 1
        assert {enqueued} == active
        assert isinstance(retried, DedupeConflict) or {retried} == active
        Job.objects.all().delete()


def test_a_key_that_a_row_made_by_hand_takes_between_look_and_insert_is_no_error(monkeypatch):
    """MariaDB looks keys up, then inserts; a row that did not come through the store takes no lock of its key."""
    if connection.vendor != "mysql":
        pytest.skip("PostgreSQL and SQLite insert and look in one statement")
    from bunderstack_django.jobs.store.mariadb import MariaDB

    look = MariaDB._taken
    made = []

    def taken(self, *given):
        found = look(self, *given)
        monkeypatch.setattr(MariaDB, "_taken", look)
        made.extend(race(lambda: Job.objects.create(name=tasks.noop.job_name, dedupe_key="k").pk))
        return found

    monkeypatch.setattr(MariaDB, "_taken", taken)

    assert keyed().enqueue().id == str(made[0])


def test_a_chore_never_done_before_is_given_to_one_of_eight(store):
    for number in range(5):
        turns = race(*[lambda: workers.take_turn(f"chore{number}", timedelta(minutes=1), "default")] * 8)

        assert turns.count(True) == 1


def test_a_due_chore_is_given_to_one_of_eight():
    for number in range(5):
        name = f"chore{number}"
        Interval.objects.create(name=name, ran_at=DatabaseNow(-timedelta(hours=1)))
        turns = race(*[lambda: workers.take_turn(name, timedelta(minutes=1), "default")] * 8)

        assert turns.count(True) == 1


def test_four_recoveries_at_once_recover_each_job_once(store):
    store.fill(60)
    store.claim(60)
    store.lapse()

    recovered = race(*[lambda: maintenance.recover(connection)] * 4)

    assert Counter(each.outcome.run.job_id for batch in recovered for each in batch) == Counter(
        {str(job.pk): 1 for job in Job.objects.all()}
    )
    assert set(Job.objects.values_list("status", "crashes", "recovered")) == {("pending", 1, 1)}


def test_four_promotions_at_once_promote_each_job_once(store):
    store.fill(300, delay=timedelta(hours=1))
    Job.objects.update(run_after=DatabaseNow(-timedelta(seconds=1)))

    moved = race(*[lambda: store.dialect.promote(connection, 1000)] * 4)

    assert (sum(moved), store.statuses()) == (300, {"pending": 300})


def test_four_prunings_at_once_delete_each_job_once(store):
    store.fill(200)
    store.settle(*map(store.outcome, store.claim(200)))
    prune = {"status": "succeeded", "name": "sample", "older_than": -60.0, "limit": 1000}

    deleted = race(*[lambda: store.dialect.prune(connection, **prune)] * 4)

    assert (sum(deleted), Job.objects.count()) == (200, 0)


def test_enqueue_claim_renew_settle_and_prune_run_side_by_side_without_error(store):
    finished = Event()

    def produce() -> None:
        for number in range(25):
            enqueue_many([keyed(f"{number % 5}:{each}").bind() for each in range(6)])
            tasks.noop.enqueue()

    def work(token: str) -> None:
        while not finished.is_set() or Job.objects.filter(status="pending").exists():
            claims = store.claim(5, token=token)
            if claims:
                store.pulse(*reversed(claims))
                store.settle(*map(store.outcome, claims))

    def tidy() -> None:
        while not finished.is_set():
            store.dialect.promote(connection, 100)
            maintenance.recover(connection)
            for name in store.dialect.ended_names(connection, "succeeded"):
                store.dialect.prune(connection, status="succeeded", name=name, older_than=-60.0, limit=20)

    producers = start(produce, produce)
    rest = start(*[lambda n=n: work(f"t{n}") for n in range(3)], tidy)
    try:
        found = [each.exception(30) for each in producers]
    finally:
        finished.set()
    found += [each.exception(30) for each in rest]

    assert [each for each in found if each] == []
    assert Job.objects.exclude(status="succeeded").count() == 0


def test_an_enqueue_is_visible_to_others_only_after_the_commit(store):
    with transaction.atomic():
        tasks.noop.enqueue()
        seen = race(Job.objects.count, lambda: len(store.claim(1)) if connection.vendor != "sqlite" else 0)

    assert seen == [0, 0]
    assert race(lambda: len(store.claim(1))) == [1]


def test_a_claim_does_not_wait_for_an_open_enqueue(store):
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer")
    ready = store.put()
    with transaction.atomic():
        tasks.noop.using(priority=100).enqueue()
        (claimed,) = race(lambda: [plain(each.id) for each in store.claim(5)])

    assert claimed == [ready.hex]


def test_a_rollback_takes_the_enqueue_with_it():
    with transaction.atomic():
        tasks.noop.enqueue()
        transaction.set_rollback(True)

    assert race(Job.objects.count) == [0]


def test_a_savepoint_rolled_back_takes_its_enqueue_only():
    with transaction.atomic():
        kept = keyed("a").enqueue()
        with transaction.atomic():
            keyed("b").enqueue()
            transaction.set_rollback(True)
        again = keyed("b").enqueue()

    assert {str(job.pk) for job in Job.objects.all()} == {kept.id, again.id}


def test_a_batch_over_several_statements_is_inserted_whole_or_not_at_all(monkeypatch):
    from bunderstack_django.jobs import operations

    monkeypatch.setattr(operations, "BATCH_ROWS", 2)
    inserted = operations._insert
    calls = []

    def insert(*given):
        calls.append(given)
        if len(calls) == 3:
            raise RuntimeError("the third statement")
        return inserted(*given)

    monkeypatch.setattr(operations, "_insert", insert)
    with pytest.raises(RuntimeError, match="the third statement"):
        enqueue_many([tasks.noop.bind() for _ in range(6)])

    assert Job.objects.count() == 0
