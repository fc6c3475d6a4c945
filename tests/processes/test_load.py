"""Many workers on one table."""

from __future__ import annotations

import sqlite3

import pytest
from django.db import connection

from bunderstack_django import enqueue_many
from bunderstack_django.models import Job

from . import tasks
from .harness import all_ended, statuses, stays, until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def test_four_workers_drain_300_jobs_and_each_job_starts_once(workers, evidence):
    crew = [workers.start(lease=10).is_up() for _ in range(4)]
    enqueue_many([tasks.nap.bind(f"job{number}", 0.005) for number in range(300)])
    until(all_ended)

    assert statuses() == {"succeeded": 300}
    assert evidence.starts() == 300
    assert set(evidence.counted().values()) == {1}
    assert set(Job.objects.values_list("attempts", "crashes")) == {(1, 0)}
    assert len({line[1] for line in evidence.lines("start")}) > 1  # several had a share
    for worker in crew:
        assert worker.stop() < 5
        assert "Outcome dropped" not in worker.output


def test_a18_eight_workers_meet_deadlocks_and_no_job_pays_for_it(workers, evidence):
    if connection.vendor != "mysql":
        pytest.skip("the deadlocks are MariaDB's")
    enqueue_many([tasks.start.bind(f"job{number}") for number in range(500)])
    crew = [workers.start(lease=20) for _ in range(8)]
    web = workers.run("200", "0.005", module="tests.processes.enqueuer")
    accepted = int(web.wait_for_line(r"ACCEPTED (\d+)")[1])
    until(all_ended)

    assert accepted == 200
    assert statuses() == {"succeeded": 700}
    assert evidence.starts() == 700
    assert len(evidence.counted()) == 700
    assert set(Job.objects.values_list("attempts", "crashes")) == {(1, 0)}
    for worker in crew:
        assert worker.stop() < 10
        assert "ERROR" not in worker.output
        assert "Traceback" not in worker.output


@pytest.mark.parametrize("instant", ["claim", "finish"])
def test_a17_a_writer_that_holds_sqlite_s_lock_delays_workers_and_costs_nothing(workers, evidence, instant):
    if connection.vendor != "sqlite":
        pytest.skip("the one writer is SQLite's")
    impatient = {"OPTIONS": {**connection.settings_dict["OPTIONS"], "timeout": 1}}
    crew = [workers.start("--threads", "2", lease=3, database=impatient).is_up() for _ in range(2)]
    web = workers.run("50", "0.05", module="tests.processes.enqueuer", database=impatient)
    web.wait_for_line("READY")
    writer = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None, timeout=20)
    try:
        enqueue_many([tasks.hold.bind(f"job{number}") for number in range(10)])
        if instant == "finish":  # every thread has a job, and may not write its end
            until(lambda: sum(evidence.counted()[f"job{number}"] for number in range(10)) == 4)
        writer.execute("BEGIN IMMEDIATE")
        evidence.raise_flag()
        stays(lambda: all(worker.is_alive for worker in crew), 4)
        writer.execute("COMMIT")
    finally:
        writer.close()
    accepted = int(web.wait_for_line(r"ACCEPTED (\d+)")[1])
    until(all_ended)

    assert statuses() == {"succeeded": 10 + accepted}
    assert evidence.starts() == len(evidence.counted()) == 10 + accepted
    assert set(Job.objects.values_list("attempts", "crashes")) == {(1, 0)}
    for worker in crew:
        assert worker.stop() < 5
        assert "Traceback" not in worker.output
