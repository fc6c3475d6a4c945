"""Promoting, pruning, looking keys and queues up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from bunderstack_django.jobs.models import Job
from bunderstack_django.jobs.states import TERMINAL, Status
from bunderstack_django.jobs.store import workers
from bunderstack_django.models import WorkerProcess
from bunderstack_django.runtime import clock
from bunderstack_django.runtime.clock import DatabaseNow

from .conftest import same
from .test_insert import WEIRD

pytestmark = pytest.mark.django_db


def promote(store, limit: int = 100) -> int:
    return store.dialect.promote(connection, limit)


def prune(
    store, *, status: str = "succeeded", name: str = "sample", older_than: float = 60.0, limit: int = 100
):
    return store.dialect.prune(connection, status=status, name=name, older_than=older_than, limit=limit)


def age(**seconds: int) -> None:
    """Date the ends of jobs of these names back."""
    for name, back in seconds.items():
        Job.objects.filter(name=name).update(finished_at=DatabaseNow(-timedelta(seconds=back)))


def test_a_due_job_is_promoted(store):
    key = store.put(delay=timedelta(seconds=30))
    with clock.shifted(offset=timedelta(seconds=31)):
        assert promote(store) == 1

    assert store.row(key).status == "pending"


def test_a_job_ahead_is_not_promoted(store):
    key = store.put(delay=timedelta(seconds=30))
    with clock.shifted(offset=timedelta(seconds=29)):
        assert promote(store) == 0

    assert store.row(key).status == "scheduled"


def test_promotion_keeps_when_the_job_was_due(store):
    key = store.put(run_after=datetime(2199, 1, 1, tzinfo=UTC))
    with clock.shifted(fixed=datetime(2199, 1, 1, 0, 0, 1, tzinfo=UTC)):
        promote(store)

    assert store.row(key).run_after == datetime(2199, 1, 1, tzinfo=UTC)


def test_a_job_is_due_at_its_very_instant(store):
    store.put(run_after=datetime(2199, 1, 1, tzinfo=UTC))
    with clock.shifted(fixed=datetime(2199, 1, 1, tzinfo=UTC)):
        assert promote(store) == 1


def test_promotion_takes_the_longest_due_first_up_to_its_limit(store):
    for minutes in (3, 1, 2):
        store.put(name=f"n{minutes}", delay=timedelta(minutes=minutes))
    with clock.shifted(offset=timedelta(hours=1)):
        assert promote(store, 2) == 2

    assert set(Job.objects.filter(status="pending").values_list("name", flat=True)) == {"n1", "n2"}


@pytest.mark.parametrize("status", [status for status in Status if status != Status.SCHEDULED])
def test_only_scheduled_jobs_are_promoted(store, status):
    store.put() if status == Status.PENDING else store.running()
    if status not in (Status.PENDING, Status.RUNNING):
        store.settle(store.outcome(store.dialect.held_by_token(connection, "token")[0], status))
    with clock.shifted(offset=timedelta(hours=1)):
        assert promote(store) == 0


def test_promoting_nothing_is_nothing(store):
    assert promote(store) == 0


@pytest.mark.parametrize("status", TERMINAL)
def test_an_old_job_is_pruned(store, status):
    store.end(status)
    age(sample=61)

    assert prune(store, status=status) == 1
    assert Job.objects.count() == 0


def test_a_recent_job_is_not_pruned(store):
    store.end()
    age(sample=59)

    assert prune(store) == 0


def test_pruning_of_nothing_old_enough_for_a_retention_of_nothing(store):
    store.end()
    age(sample=1)

    assert prune(store, older_than=0.0) == 1


def test_pruning_keeps_other_names_and_outcomes(store):
    store.end(name="other")
    store.end(Status.FAILED)
    age(sample=100, other=100)

    assert prune(store) == 0
    assert Job.objects.count() == 2


@pytest.mark.parametrize("status", ["pending", "scheduled", "running"])
def test_pruning_keeps_unended_jobs(store, status):
    store.put(delay=timedelta(hours=1) if status == "scheduled" else None)
    if status == "running":
        store.claim()

    assert prune(store, status=status, older_than=-3600.0) == 0


def test_pruning_takes_the_oldest_first_up_to_its_limit(store):
    rows = [store.end() for _ in range(3)]
    for row, back in zip(rows, (300, 100, 200), strict=True):
        Job.objects.filter(pk=row.pk).update(finished_at=DatabaseNow(-timedelta(seconds=back)))

    assert prune(store, limit=2) == 2
    assert [job.pk for job in Job.objects.all()] == [rows[1].pk]


@pytest.mark.parametrize("name", WEIRD, ids=ascii)
def test_jobs_of_any_name_are_pruned(store, name):
    store.end(name=name)

    assert store.dialect.ended_names(connection, "succeeded") == [name]
    assert prune(store, name=name, older_than=-3600.0) == 1


@pytest.mark.parametrize("name", ["Sample", "sample ", "sámple"], ids=ascii)
def test_pruning_compares_names_by_their_bytes(store, name):
    store.end(name=name)

    assert prune(store, older_than=-3600.0) == 0


def test_nobody_holds_a_free_key(store):
    store.put(dedupe_key="other")

    assert store.dialect.holder(connection, "sample", "k") is None


def test_the_holder_of_a_key_is_the_unended_job(store):
    store.end(dedupe_key="k")
    key = store.put(dedupe_key="k")

    assert same(store.dialect.holder(connection, "sample", "k"), key)


def test_an_ended_job_holds_no_key(store):
    store.end(dedupe_key="k")

    assert store.dialect.holder(connection, "sample", "k") is None


def test_pending_queues_are_those_with_pending_jobs_once_each(store):
    store.fill(3, queue_name="b")
    store.fill(2, queue_name="a")
    store.put(queue_name="later", delay=timedelta(hours=1))
    store.end(queue_name="done")

    assert store.dialect.pending_queues(connection) == ["a", "b"]


def test_pending_queues_of_an_empty_table_are_none(store):
    assert store.dialect.pending_queues(connection) == []


def test_pending_queues_of_any_names_are_all_found(store):
    for text in [*WEIRD, "a", "A", "a "]:
        store.put(queue_name=text)

    assert set(store.dialect.pending_queues(connection)) == {*WEIRD, "a", "A", "a "}


def test_ended_names_are_those_of_one_outcome(store):
    store.end(name="b")
    store.end(name="a")
    store.end(name="a")
    store.end(Status.FAILED, name="c")
    store.put(name="d")

    assert store.dialect.ended_names(connection, "succeeded") == ["a", "b"]


def test_ended_names_that_differ_by_bytes_are_all_found(store):
    names = {"a", "A", "a ", "á", "🐘"}
    for name in names:
        store.end(name=name)

    assert set(store.dialect.ended_names(connection, "succeeded")) == names


def test_a_chore_is_due_when_it_was_never_done():
    assert workers.take_turn("chore", timedelta(minutes=1), "default")


def test_a_chore_just_done_is_not_due():
    workers.take_turn("chore", timedelta(minutes=1), "default")

    assert not workers.take_turn("chore", timedelta(minutes=1), "default")


def test_a_chore_is_due_again_after_its_interval():
    workers.take_turn("chore", timedelta(minutes=1), "default")
    with clock.shifted(offset=timedelta(seconds=61)):
        assert workers.take_turn("chore", timedelta(minutes=1), "default")
        assert not workers.take_turn("chore", timedelta(minutes=1), "default")


def test_chores_are_due_each_by_itself():
    workers.take_turn("chore", timedelta(minutes=1), "default")

    assert workers.take_turn("other", timedelta(minutes=1), "default")


def register(worker_id: str = "w1") -> None:
    workers.register(worker_id, "default", host="h", pid=1, identity="i", queues=[], threads=2)


def test_a_worker_registers_with_a_heartbeat_of_now():
    register()
    found = WorkerProcess.objects.get()

    assert (found.pk, found.started_at, found.queues) == ("w1", found.heartbeat_at, [])


def test_a_worker_that_registers_again_replaces_its_row():
    register()
    register()

    assert WorkerProcess.objects.count() == 1


def test_a_registered_worker_beats():
    register()

    assert workers.beat("w1", "default", rss_bytes=2**40, running=3)
    assert WorkerProcess.objects.values_list("rss_bytes", "running").get() == (2**40, 3)


def test_a_beat_of_a_forgotten_worker_says_so():
    register()
    workers.unregister("w1", "default")

    assert not workers.beat("w1", "default", rss_bytes=1, running=0)


def test_silent_workers_are_forgotten():
    register("old")
    with clock.shifted(offset=timedelta(minutes=5)):
        register("new")
        assert workers.forget_dead(timedelta(minutes=4), "default") == 1

    assert WorkerProcess.objects.get().pk == "new"
