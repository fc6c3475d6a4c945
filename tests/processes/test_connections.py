"""A database that goes away, and comes back."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from bunderstack_django import enqueue_many
from bunderstack_django.models import Job

from . import tasks
from .harness import SHORT_LEASE, all_ended, cut_connections, has_status, proxied, row, statuses, until
from .saboteur import WAYS

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def _server() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no server")


@pytest.mark.usefixtures("_server")
def test_a06a_an_idle_worker_whose_connections_are_cut_goes_on(workers, evidence):
    first = tasks.start.enqueue("first")
    worker = workers.start(lease=3)
    until(has_status(first, "succeeded"))
    for round_number in range(3):
        assert cut_connections() >= 1
        enqueue_many([tasks.start.bind(f"{round_number}-{number}") for number in range(6)])
        until(all_ended)

    assert statuses() == {"succeeded": 19}
    assert set(evidence.counted().values()) == {1}
    assert worker.is_alive
    assert worker.stop() < 5


@pytest.mark.usefixtures("_server")
def test_a06c_a_cut_while_handlers_run_costs_no_second_start(workers, evidence):
    running = [tasks.hold.enqueue(f"held{number}") for number in range(3)]
    rest = enqueue_many([tasks.start.bind(f"job{number}") for number in range(17)])
    worker = workers.start("--threads", "3", lease=3)
    for number in range(3):
        evidence.wait_for("start", f"held{number}")
    cut_connections()
    worker.wait_for_line("(?i)database error|heartbeat failed")
    evidence.raise_flag()
    until(all_ended)

    assert statuses() == {"succeeded": 20}
    assert set(evidence.counted().values()) == {1}
    assert {row(each).attempts for each in [*running, *rest]} == {1}
    assert worker.stop() < 5


@pytest.mark.parametrize("how", WAYS)
def test_a06_a_connection_cut_at_a_statement_costs_no_second_start(workers, evidence, how):
    """(b) between claim and handler start, (d) at the finishing UPDATE, and answers lost after a commit."""
    tasks.nap.enqueue("slow", 1.3 if how == "heartbeat-before" else 0.3)  # a heartbeat each second
    failing = tasks.fail.enqueue("failing")
    enqueue_many([tasks.start.bind(f"job{number}") for number in range(18)])
    worker = workers.run(
        how, "runworker", "--poll-interval", "0.1", module="tests.processes.saboteur", lease=3
    )
    until(all_ended)
    worker.wait_for_line("SABOTAGE")
    evidence.wait_for("on_failed", failing.id)

    assert statuses() == {"succeeded": 19, "failed": 1}
    assert set(evidence.counted().values()) == {1}
    assert evidence.counted("on_failed") == {failing.id: 1}
    assert set(Job.objects.values_list("attempts", "crashes")) == {(1, 0)}
    assert worker.is_alive
    assert worker.stop() < 5
    assert "Outcome dropped" not in worker.output
    assert "19 succeeded, 0 to be retried, 1 failed" in worker.output


def test_what_an_unanswered_claim_took_is_handed_back_when_the_worker_is_told_to_stop(workers, evidence):
    results = enqueue_many([tasks.start.bind(f"job{number}") for number in range(3)])
    worker = workers.run("claim-unanswered-and-stopped", "runworker", module="tests.processes.saboteur")

    assert worker.wait() == 0
    assert [(row(each).status, row(each).attempts) for each in results] == [("pending", 0)] * 3
    assert evidence.starts() == 0


@pytest.mark.usefixtures("_server")
def test_a06e_an_outage_longer_than_the_lease_costs_no_second_start(workers, evidence):
    held = tasks.hold.enqueue("held")
    with proxied() as (proxy, through):
        two = [workers.start("--threads", "2", lease=SHORT_LEASE, database=through) for _ in range(2)]
        for worker in two:
            worker.is_up()
        evidence.wait_for("start", "held")
        ended = tasks.hold.enqueue("ended-during-the-outage", "early")
        evidence.wait_for("start", "ended-during-the-outage")
        proxy.cut()
        evidence.raise_flag("early")
        evidence.wait_for("end", "ended-during-the-outage")
        results = enqueue_many([tasks.start.bind(f"job{number}") for number in range(18)])
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 1.7 * SHORT_LEASE)
        assert {row(each).status for each in results} == {"pending"}
        proxy.restore()
        until(lambda: all(row(each).status == "succeeded" for each in [*results, ended]))
        evidence.raise_flag()
        until(has_status(held, "succeeded"))

        assert set(evidence.counted().values()) == {1}
        assert set(Job.objects.values_list("attempts", "crashes")) == {(1, 0)}
        assert [worker.is_alive for worker in two] == [True, True]
        for worker in two:
            assert worker.stop() < 5
            assert "Traceback" not in worker.output


@pytest.mark.usefixtures("_server")
def test_a06_failed_reconnects_of_a_worker_are_spaced(workers, evidence):
    with proxied() as (proxy, through):
        worker = workers.start(lease=3, database=through)
        tasks.start.enqueue("before")
        evidence.wait_for("start", "before")
        until(all_ended)
        proxy.cut()
        until(lambda: proxy.refused, "a first attempt")
        began = proxy.refused[0]
        until(lambda: time.monotonic() - began > 2.5)
        attempts = [each for each in proxy.refused if each - began < 2.5]
        proxy.restore()
        tasks.start.enqueue("after")
        evidence.wait_for("start", "after")

        most = max(sum(0 <= other - each < 1 for other in attempts) for each in attempts)
        assert most <= 5
        assert worker.stop() < 5


@pytest.mark.usefixtures("_server")
def test_a_worker_told_to_stop_while_the_database_is_gone_ends_in_time_with_exit_0(workers, evidence):
    result = tasks.hold.enqueue("unsaved")
    with proxied() as (proxy, through):
        worker = workers.start("--shutdown-timeout", "3", lease=SHORT_LEASE, database=through)
        evidence.wait_for("start", "unsaved")
        proxy.cut()
        evidence.raise_flag()
        evidence.wait_for("end", "unsaved")

        assert worker.stop() < 5
        assert "Traceback" not in worker.output
    workers.start(lease=SHORT_LEASE)
    evidence.wait_for("start", "unsaved", 2)  # nothing accepted is lost
    until(has_status(result, "succeeded"))
