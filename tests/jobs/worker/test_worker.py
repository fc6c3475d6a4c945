"""A worker in this process, on real connections; its threads are its own."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.utils import timezone, translation

from bunderstack_django import Snooze, cancel, enqueue_many, job
from bunderstack_django.compat import task_finished
from bunderstack_django.jobs.execute import Run
from bunderstack_django.jobs.worker import Selection, Settings, Worker
from bunderstack_django.jobs.worker import dispatcher as dispatching
from bunderstack_django.jobs.worker.hygiene import Hygiene
from bunderstack_django.jobs.worker.threads import _execute
from bunderstack_django.models import Job, WorkerProcess
from bunderstack_django.runtime.stopping import Stop
from tests.testapp import tasks

pytestmark = pytest.mark.django_db(transaction=True)

seen: list[object] = []


@job(retries=0)
def leave_language_and_zone() -> None:
    seen.append((translation.get_language(), timezone.get_current_timezone_name()))
    translation.activate("de")
    timezone.activate("Asia/Tokyo")


@job(retries=0)
def leave_transaction_open() -> None:
    transaction.set_autocommit(False)
    Job.objects.update(priority=99)


@job(retries=0)
def break_connection() -> None:
    connection.ensure_connection()
    connection.connection.close()
    Job.objects.count()


@job(retries=0)
def count_jobs() -> int:
    return Job.objects.count()


@job(retries=0)
def wait_for(name: str) -> None:
    seen.append(name)
    assert events[name].wait(20)


@job(retries=0, durable=True)
def durable() -> None: ...


events: dict[str, threading.Event] = {}


@pytest.fixture(autouse=True)
def _clean():
    seen.clear()
    events.clear()
    yield
    connections.close_all()


def drain(**settings) -> Worker:
    worker = Worker(Settings(drain=True, poll_interval=0.05, **{"threads": 2, **settings}), Stop())
    worker.run()
    return worker


def statuses() -> dict[str, int]:
    found: dict[str, int] = {}
    for status in Job.objects.values_list("status", flat=True):
        found[status] = found.get(status, 0) + 1
    return found


def test_a_draining_worker_runs_all_there_is_and_leaves_no_trace():
    enqueue_many([tasks.add.bind(number, 1) for number in range(250)])
    worker = drain()

    assert worker.counts.succeeded == 250
    assert statuses() == {"succeeded": 250}
    assert {job.attempts for job in Job.objects.all()} == {1}
    assert not WorkerProcess.objects.exists()


def test_a_worker_stops_at_its_number_of_jobs():
    enqueue_many([tasks.noop.bind() for _ in range(30)])
    worker = Worker(Settings(max_jobs=7, poll_interval=0.05), Stop())
    worker.run()

    assert statuses() == {"succeeded": 7, "pending": 23}


def test_a_worker_serves_its_queues_only():
    mail = tasks.named.enqueue()
    other = tasks.noop.enqueue()
    drain(selection=Selection(only=("mail",)))
    assert (Job.objects.get(pk=mail.id).status, Job.objects.get(pk=other.id).status) == (
        "succeeded",
        "pending",
    )

    mail = tasks.named.enqueue()
    drain(selection=Selection(excluded=frozenset({"mail"})))
    assert (Job.objects.get(pk=mail.id).status, Job.objects.get(pk=other.id).status) == (
        "pending",
        "succeeded",
    )


def test_language_and_time_zone_are_the_defaults_again_for_each_job():
    for _ in range(3):
        leave_language_and_zone.enqueue()
    drain(threads=1)

    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_a_transaction_left_open_is_rolled_back(caplog):
    leave_transaction_open.enqueue()
    result = count_jobs.enqueue()
    drain(threads=1)

    assert {job.priority for job in Job.objects.all()} == {0}
    assert Job.objects.get(pk=result.id).result == 2
    assert "left a transaction open" in caplog.text


def test_a_broken_connection_fails_its_job_and_no_other():
    broken = break_connection.enqueue()
    good = count_jobs.enqueue()
    drain(threads=1)

    assert Job.objects.get(pk=good.id).status == "succeeded"
    assert Job.objects.get(pk=broken.id).status in (
        "failed",
        "succeeded",
    )  # a backend may reconnect by itself


def test_an_outcome_whose_write_fails_is_sent_again(monkeypatch):
    dialect = type(dispatching.dialect_of(connection))
    settle, failures = dialect.settle, [OperationalError("gone"), OperationalError("still gone")]

    def flaky(self, *args, **kwargs):
        if failures:
            raise failures.pop()
        return settle(self, *args, **kwargs)

    monkeypatch.setattr(dialect, "settle", flaky)
    monkeypatch.setattr(dispatching, "QUICKEST_RETRY", 0.01)
    tasks.noop.enqueue()
    worker = drain()

    assert (worker.counts.succeeded, statuses(), failures) == (1, {"succeeded": 1}, [])


def test_an_outcome_that_landed_before_its_answer_was_lost_counts_once(monkeypatch):
    dialect = type(dispatching.dialect_of(connection))
    settle, lose = dialect.settle, [True]

    def answer_lost(self, *args, **kwargs):
        landed = settle(self, *args, **kwargs)
        if lose:
            lose.pop()
            raise OperationalError("connection cut after the commit")
        return landed

    monkeypatch.setattr(dialect, "settle", answer_lost)
    monkeypatch.setattr(dispatching, "QUICKEST_RETRY", 0.01)
    tasks.noop.enqueue()
    worker = drain()

    assert (worker.counts.succeeded, worker.counts.lost) == (1, 0)


def test_a_claim_whose_answer_was_lost_is_given_back_uncharged(monkeypatch):
    dialect = type(dispatching.dialect_of(connection))
    claim, lose = dialect.claim, [True]

    def answer_lost(self, *args, **kwargs):
        claimed = claim(self, *args, **kwargs)
        if claimed and lose:
            lose.pop()
            raise OperationalError("connection cut after the commit")
        return claimed

    monkeypatch.setattr(dialect, "claim", answer_lost)
    monkeypatch.setattr(dispatching, "QUICKEST_RETRY", 0.01)
    result = tasks.noop.enqueue()
    drain()

    job = Job.objects.get(pk=result.id)
    assert (job.status, job.attempts, job.crashes) == ("succeeded", 1, 0)


def test_an_outcome_is_dropped_when_the_lease_was_lost(caplog):
    events["go"] = threading.Event()
    result = wait_for.enqueue("go")
    worker, thread = start()
    until(lambda: "go" in seen)
    Job.objects.filter(pk=result.id).update(lease_token="another's", worker="another")
    events["go"].set()
    until(lambda: worker.counts.lost == 1)
    worker._stop.request()
    thread.join(20)

    job = Job.objects.get(pk=result.id)
    assert (job.status, job.worker, job.result) == ("running", "another", None)
    assert "Outcome dropped" in caplog.text


def test_a_worker_that_is_asked_to_stop_finishes_what_runs_and_claims_nothing_more():
    events["go"] = threading.Event()
    running = wait_for.enqueue("go")
    worker, thread = start(threads=1)
    until(lambda: "go" in seen)
    waiting = tasks.noop.enqueue()
    worker._stop.request()
    time.sleep(0.1)  # it looks again in this time, and must not claim
    events["go"].set()
    thread.join(20)

    assert not thread.is_alive()
    assert Job.objects.get(pk=running.id).status == "succeeded"
    assert Job.objects.get(pk=waiting.id).status == "pending"


def test_a_handler_that_does_not_end_is_given_back_uncharged_when_the_time_is_up():
    events["never"] = threading.Event()
    result = wait_for.enqueue("never")
    worker, thread = start(shutdown_timeout=0.4)
    until(lambda: "never" in seen)
    worker._stop.request()
    thread.join(20)
    events["never"].set()

    job = Job.objects.get(pk=result.id)
    assert (job.status, job.attempts, job.crashes, job.locked_until) == ("pending", 0, 0, None)
    assert worker.abandoned == 1


def test_jobs_claimed_ahead_that_find_no_thread_are_given_back(monkeypatch):
    events["go"] = threading.Event()
    monkeypatch.setattr(dispatching, "STALE", 0.2)
    blocked = enqueue_many([wait_for.bind("go"), tasks.noop.bind(), tasks.noop.bind()])
    worker = Worker(Settings(threads=1, poll_interval=0.05), Stop())
    worker.dispatcher._pace.add(0.001)  # as after many short jobs: it claims ahead
    thread = threading.Thread(target=run, args=(worker,))
    thread.start()
    until(lambda: worker.counts.given_back >= 2)
    held = statuses()
    worker._stop.request()
    events["go"].set()
    thread.join(20)

    assert held.get("running", 0) <= 3
    assert Job.objects.get(pk=blocked[0].id).status == "succeeded"
    assert {job.crashes for job in Job.objects.all()} == {0}


def test_a_job_that_crashed_before_is_never_claimed_ahead():
    results = enqueue_many([tasks.noop.bind() for _ in range(40)])
    Job.objects.filter(pk__in=[result.id for result in results[20:]]).update(crashes=1)
    worker = drain(threads=1)

    assert worker.counts.succeeded == 40


def test_a_durable_job_is_written_in_a_commit_of_its_own(monkeypatch):
    batches: list[int] = []
    dialect = type(dispatching.dialect_of(connection))
    settle = dialect.settle

    def counted(self, connection, settlements, **kwargs):
        batches.append(len(settlements))
        return settle(self, connection, settlements, **kwargs)

    monkeypatch.setattr(dialect, "settle", counted)
    enqueue_many([durable.bind() for _ in range(5)])
    drain(threads=1)

    assert batches == [1] * 5


def test_heartbeats_renew_the_lease_of_a_long_job_and_write_its_progress(settings):
    settings.BUNDERSTACK = {"LEASE": 1.5}
    result = report_and_wait.enqueue()
    events["go"] = threading.Event()
    worker, thread = start()
    until(lambda: Job.objects.get(pk=result.id).progress is not None)
    first = Job.objects.get(pk=result.id).locked_until
    until(lambda: Job.objects.get(pk=result.id).locked_until > first)
    running = Job.objects.get(pk=result.id)
    events["go"].set()
    until(lambda: worker.counts.succeeded == 1)
    worker._stop.request()
    thread.join(20)

    assert running.progress == {"fraction": 0.25, "message": "a quarter"}
    assert [line["message"] for line in running.log] == ["began"]


@job(retries=0, takes_context=True)
def report_and_wait(context) -> None:
    context.log("began")
    context.progress(0.25, "a quarter")
    assert events["go"].wait(20)


def start(**settings) -> tuple[Worker, threading.Thread]:
    worker = Worker(Settings(poll_interval=0.05, **{"threads": 2, **settings}), Stop())
    thread = threading.Thread(target=run, args=(worker,))
    thread.start()
    return worker, thread


def run(worker: Worker) -> None:
    """As a process would: its connection goes with it."""
    try:
        worker.run()
    finally:
        connections.close_all()


def until(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


@job(retries=0)
def begin_by_hand() -> None:
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION" if connection.vendor == "mysql" else "BEGIN")
    Job.objects.update(priority=99)


@job(retries=0, on_failed=lambda *args: (time.sleep(0.02), seen.append(args[0])))
def fail_and_tell() -> None:
    raise ValueError("told")


@job(retries=0)
def snooze_for_ever() -> None:
    raise Snooze(timedelta.max)


def test_a_transaction_begun_by_hand_is_rolled_back_too():
    begin_by_hand.enqueue()
    result = count_jobs.enqueue()
    drain(threads=1)

    assert {job.priority for job in Job.objects.all()} == {0}
    assert Job.objects.get(pk=result.id).status == "succeeded"


def test_a_draining_worker_ends_once_every_failure_is_told():
    enqueue_many([fail_and_tell.bind() for _ in range(60)])
    drain()

    assert len(seen) == 60


def test_an_endless_snooze_is_ten_years():
    result = snooze_for_ever.enqueue()
    drain()

    assert Job.objects.get(pk=result.id).status == "scheduled"


def test_an_outcome_that_the_database_refuses_fails_its_job_and_no_other(monkeypatch):
    dialect = type(dispatching.dialect_of(connection))
    settle = dialect.settle
    refused = tasks.add.enqueue(1, 2)
    others = enqueue_many([tasks.noop.bind() for _ in range(5)])

    def refusing(self, connection, settlements, **kwargs):
        if any(each.result == "3" for each in settlements):
            raise IntegrityError("not this one")
        return settle(self, connection, settlements, **kwargs)

    monkeypatch.setattr(dialect, "settle", refusing)
    drain()

    assert {Job.objects.get(pk=each.id).status for each in others} == {"succeeded"}
    job = Job.objects.get(pk=refused.id)
    assert (job.status, job.failure_reason) == ("failed", "error")
    assert "not this one" in job.errors[-1]["message"]


@pytest.mark.parametrize("column", ["errors", "log", "worker_ids"])
def test_a_row_that_holds_no_storable_json_does_not_end_the_worker(column):
    broken, good = tasks.discard.enqueue(), tasks.noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {Job._meta.db_table} SET {column} = '[NaN]' WHERE name LIKE %s", ["%discard"])
    drain()

    assert Job.objects.get(pk=good.id).status == "succeeded"
    assert Job.objects.get(pk=broken.id).status == "failed"


def test_a_cache_that_cannot_be_made_keeps_no_worker_from_working(settings):
    settings.CACHES = {**settings.CACHES, "old": {"BACKEND": "no.such.Backend"}}
    tasks.noop.enqueue()

    assert drain().counts.succeeded == 1


def test_a_job_whose_lease_may_have_lapsed_before_its_start_is_not_started(settings):
    settings.BUNDERSTACK = {"LEASE": 5}
    tasks.echo.enqueue("never")
    dialect = dispatching.dialect_of(connection)
    (claimed,) = dialect.claim(
        connection, token="t", worker="w", queues=None, limit=1, lease=5.0, at_once=True
    )
    late = Run(claimed, leased_at=time.monotonic() - 6)
    tasks.calls.clear()

    assert _execute(late, Hygiene()).verdict.uncharged
    assert tasks.calls == []


def test_a_row_that_someone_has_locked_holds_up_no_other_lease():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite locks no rows")
    enqueue_many([tasks.noop.bind() for _ in range(2)])
    dialect = dispatching.dialect_of(connection)
    locked, other = dialect.claim(
        connection, token="t", worker="w", queues=None, limit=2, lease=30.0, at_once=True
    )
    pulses = [Run(locked).pulse(), Run(other).pulse()]
    renewed: list[object] = []

    def renew() -> None:
        renewed.append(set(dialect.pulse(connections["default"], pulses, 30.0)))
        held = [(each.id, each.token) for each in pulses]
        renewed.append(dialect.still_held(connections["default"], held) >= {locked.id})
        connections.close_all()

    with transaction.atomic():
        cancel(str(locked.id))
        thread = threading.Thread(target=renew)
        thread.start()
        thread.join(10)
        transaction.set_rollback(True)

    assert renewed == [{other.id}, True]


def test_a_cancel_that_is_rolled_back_is_told_to_nobody():
    told: list[object] = []

    def receive(sender, task_result, **kwargs):
        told.append(task_result.id)

    result = tasks.noop.enqueue()
    task_finished.connect(receive)
    try:
        with transaction.atomic():
            cancel(result.id)
            transaction.set_rollback(True)
        assert told == []
        cancel(result.id)
    finally:
        task_finished.disconnect(receive)

    assert told == [result.id]


def test_outcomes_written_singly_after_a_refusal_are_told_once_though_the_database_fails_between(monkeypatch):
    dialect = type(dispatching.dialect_of(connection))
    settle, failures = dialect.settle, [OperationalError("gone")]
    enqueue_many([fail_and_tell.bind() for _ in range(4)])
    done: list[int] = []

    def refusing(self, connection, settlements, **kwargs):
        if len(settlements) > 1:
            raise IntegrityError("not together")
        if len(done) == 2 and failures:
            raise failures.pop()
        done.append(1)
        return settle(self, connection, settlements, **kwargs)

    monkeypatch.setattr(dialect, "settle", refusing)
    monkeypatch.setattr(dispatching, "QUICKEST_RETRY", 0.01)
    worker = drain(threads=4)

    assert worker.counts.failed == 4
    assert len(seen) == len(set(seen)) == 4
