"""Being asked to stop: by SIGTERM, by SIGINT, twice."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from . import tasks
from .harness import has_status, row, until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def test_a08a_sigterm_lets_the_running_job_finish_and_leaves_the_waiting_one_queued(workers, evidence):
    running, waiting = tasks.watch.enqueue("running"), tasks.start.enqueue("waiting")
    worker = workers.start("--threads", "1", "--shutdown-timeout", "20")
    evidence.wait_for("start", "running")
    worker.send(signal.SIGTERM)
    evidence.wait_for("stopping", "running")
    evidence.raise_flag()
    raised = time.monotonic()

    assert worker.wait() == 0
    assert time.monotonic() - raised < 3  # not the rest of the shutdown timeout
    assert (row(running).status, row(running).attempts) == ("succeeded", 1)
    assert (row(waiting).status, row(waiting).attempts, row(waiting).worker_ids) == ("pending", 0, [])
    assert evidence.starts("waiting") == 0


def test_a08b_a_handler_that_ignores_sigterm_is_given_back_at_the_end_of_the_grace_uncharged(
    workers, evidence
):
    result = tasks.watch.enqueue("ignores")
    worker = workers.start("--shutdown-timeout", "1", lease=60)
    evidence.wait_for("start", "ignores")
    took = worker.stop()

    assert took < 2.5
    job = row(result)
    assert (job.status, job.attempts, job.crashes, job.worker_ids, job.locked_until) == (
        "pending",
        0,
        0,
        [],
        None,
    )
    workers.start(lease=60)
    evidence.wait_for("start", "ignores", 2)  # at once: its lease would last a minute
    evidence.raise_flag()
    until(has_status(result, "succeeded"))
    assert row(result).attempts == 1


def test_a_given_back_job_s_handler_does_not_run_on(workers, evidence):
    tasks.hold.enqueue("gone")
    worker = workers.start("--shutdown-timeout", "1")
    evidence.wait_for("start", "gone")
    worker.stop()
    evidence.raise_flag()
    until(lambda: not psutil.pid_exists(worker.pid))

    assert evidence.lines("end") == []
    assert "1 given back" in worker.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a08c_an_idle_worker_stops_at_once_with_exit_0(workers, number):
    took = 60.0
    for _ in range(3):  # a loaded machine may be slow once, not each time
        worker = workers.start("--poll-interval", "60").is_up()
        took = min(took, worker.stop(number))
        if took < 1:
            break

    assert took < 1
    assert "Traceback" not in worker.output
    assert "stopped: 0 succeeded" in worker.output.splitlines()[-1]


def test_a08d_a_second_sigterm_ends_the_worker_at_once_and_gives_the_job_back(workers, evidence):
    result = tasks.watch.enqueue("twice")
    worker = workers.start("--shutdown-timeout", "60")
    evidence.wait_for("start", "twice")
    worker.send(signal.SIGTERM)
    evidence.wait_for("stopping", "twice")

    assert worker.stop() < 2.5
    assert (row(result).status, row(result).attempts) == ("pending", 0)


def test_a_worker_that_waits_for_its_last_job_leaves_the_processor_to_it(workers, evidence):
    tasks.watch.enqueue("last")
    worker = workers.start("--threads", "1", "--poll-interval", "0.05", "--shutdown-timeout", "20")
    evidence.wait_for("start", "last")
    worker.send(signal.SIGTERM)
    evidence.wait_for("stopping", "last")
    process = psutil.Process(worker.pid)
    began, before = time.monotonic(), process.cpu_times()
    until(lambda: time.monotonic() - began > 1.5)
    after, took = process.cpu_times(), time.monotonic() - began
    evidence.raise_flag()
    worker.wait()

    used = after.user + after.system - before.user - before.system
    assert used < took * 0.4


def test_a_stopping_worker_writes_its_outcome_within_a_moment_not_at_its_end(workers, evidence):
    short, long = tasks.hold.enqueue("short", "short"), tasks.watch.enqueue("long", "long")
    worker = workers.start("--threads", "2", "--shutdown-timeout", "30")
    for key in ("short", "long"):
        evidence.wait_for("start", key)
    worker.send(signal.SIGTERM)
    evidence.wait_for("stopping", "long")
    evidence.raise_flag("short")
    until(has_status(short, "succeeded"), timeout=10)

    assert worker.is_alive
    evidence.raise_flag("long")
    assert worker.wait() == 0
    assert row(long).status == "succeeded"


def test_a_stopping_worker_keeps_renewing_the_lease_of_its_last_job(workers, evidence):
    result = tasks.watch.enqueue("last")
    worker = workers.start("--shutdown-timeout", "40", lease=1.5)
    evidence.wait_for("start", "last")
    worker.send(signal.SIGTERM)
    evidence.wait_for("stopping", "last")
    workers.start(lease=1.5).is_up()
    seen = set()
    until(lambda: seen.add(row(result).locked_until) or len(seen) > 6, "six renewals")
    evidence.raise_flag()

    assert worker.wait() == 0
    assert (row(result).status, row(result).attempts) == ("succeeded", 1)
    assert evidence.starts("last") == 1


def test_a_thread_that_a_handler_left_behind_does_not_keep_the_worker_from_ending(workers, evidence):
    result = tasks.leave_a_thread.enqueue("left")
    worker = workers.start("--shutdown-timeout", "4")
    until(has_status(result, "succeeded"))
    worker.send(signal.SIGTERM)

    assert worker.wait(10) == 0


def test_a_worker_can_be_stopped_politely_from_the_moment_it_says_that_it_runs(workers):
    worker = workers.run("slow-signals", "runworker", module="tests.processes.saboteur")
    worker.wait_for_line(r"Worker \S+ runs ")

    assert worker.stop() < 5
