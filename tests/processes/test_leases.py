"""Leases: renewed by the living, taken over from the dead."""

from __future__ import annotations

import signal
import socket

import pytest

from bunderstack_django.models import Job

from . import tasks
from .harness import SHORT_LEASE, all_ended, has_status, row, stays, until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def test_a01_a_job_longer_than_its_lease_starts_once_and_its_lease_moves_forward(workers, evidence):
    result = tasks.hold.enqueue("long")
    for _ in range(2):
        workers.start(lease=SHORT_LEASE)
    seen = set()

    def renewed_often() -> bool:
        seen.add(row(result).locked_until)
        return len(seen - {None}) > 6  # a renewal each 0.5 s: two leases

    until(renewed_often, "six renewals")
    evidence.raise_flag()
    until(has_status(result, "succeeded"))

    assert evidence.starts("long") == 1
    assert (row(result).attempts, row(result).crashes) == (1, 0)
    assert sorted(seen - {None}) == [each for each in sorted(seen - {None}) if each > row(result).started_at]


def test_a_killed_worker_s_job_is_run_again_by_another_after_the_lease_and_the_crash_is_counted(
    workers, evidence
):
    result = tasks.hold.enqueue("killed")
    first = workers.start(lease=SHORT_LEASE)
    evidence.wait_for("start", "killed")
    first.kill()
    second = workers.start(lease=SHORT_LEASE)
    evidence.wait_for("start", "killed", 2)

    running = row(result)
    assert (running.status, running.attempts, running.crashes) == ("running", 2, 1)
    assert len(running.worker_ids) == 2
    evidence.raise_flag()
    until(has_status(result, "succeeded"))
    assert row(result).crashes == 1
    assert second.stop() < 5
    assert "Recovered a job from a dead worker" in second.output


def test_a_killed_worker_s_job_is_not_taken_before_its_lease_has_run_out(workers, evidence):
    result = tasks.hold.enqueue("leased")
    first = workers.start(lease=3)
    evidence.wait_for("start", "leased")
    workers.start(lease=3).is_up()
    first.kill()
    locked_until = row(result).locked_until
    evidence.wait_for("start", "leased", 2)

    assert row(result).last_attempted_at > locked_until


def test_jobs_claimed_ahead_by_a_worker_that_is_killed_are_charged_nothing(workers, evidence):
    for number in range(30):
        tasks.start.using(priority=2).enqueue(f"quick{number}")
    held = [tasks.hold.enqueue(f"held{number}") for number in range(4)]
    first = workers.start("--threads", "1", lease=SHORT_LEASE)
    evidence.wait_for("start", "held0")
    first.kill()
    evidence.raise_flag()
    workers.start(lease=SHORT_LEASE)
    until(all_ended)

    waited = [row(each) for each in held[1:]]
    assert {(job.status, job.attempts, job.crashes) for job in waited} == {("succeeded", 1, 0)}
    assert [evidence.starts(f"held{number}") for number in (1, 2, 3)] == [1, 1, 1]
    assert row(held[0]).status == "succeeded"


def test_jobs_claimed_ahead_behind_a_slow_one_are_given_back_in_a_moment_uncharged(workers, evidence):
    for number in range(30):
        tasks.start.using(priority=2).enqueue(f"quick{number}")
    held = [tasks.hold.enqueue(f"held{number}") for number in range(4)]
    workers.start("--threads", "1", lease=60)
    evidence.wait_for("start", "held0")
    workers.start("--threads", "3", lease=60)
    for number in (1, 2, 3):
        evidence.wait_for("start", f"held{number}")  # the first still runs, its lease lasts a minute

    assert {(row(each).status, row(each).attempts) for each in held} == {("running", 1)}
    evidence.raise_flag()
    until(all_ended)
    assert set(evidence.counted().values()) == {1}


def test_the_third_kill_fails_the_job_as_lost_with_the_evidence_and_spends_no_retry(workers, evidence):
    result = tasks.watch.enqueue("poison")
    killed = []
    for count in (1, 2, 3):
        worker = workers.start(lease=SHORT_LEASE)
        evidence.wait_for("start", "poison", count)
        killed.append(row(result).worker)
        worker.kill()
    workers.start(lease=SHORT_LEASE)
    until(has_status(result, "failed"))

    job = row(result)
    assert (job.failure_reason, job.attempts, job.crashes, job.max_attempts) == ("lost", 3, 3, 4)
    assert [error["worker"] for error in job.errors] == killed
    for error, worker in zip(job.errors, killed, strict=True):
        assert error["exception_class"] == "bunderstack_django.exceptions.WorkerLost"
        for fact in (worker, socket.gethostname(), worker.split(":")[1], "MiB", "running jobs"):
            assert fact in error["message"]
    assert evidence.starts("poison") == 3


def test_a_worker_stopped_past_its_lease_loses_its_job_to_another_and_its_outcome_is_dropped(
    workers, evidence
):
    result = tasks.hold.enqueue("taken")
    first = workers.start(lease=SHORT_LEASE)
    evidence.wait_for("start", "taken")
    first.send(signal.SIGSTOP)
    second = workers.start(lease=SHORT_LEASE)
    evidence.wait_for("start", "taken", 2)
    owner = row(result)
    evidence.raise_flag()  # the second's handler returns; the first's will when it goes on
    until(has_status(result, "succeeded"))
    finished_at = row(result).finished_at
    first.send(signal.SIGCONT)
    first.wait_for_line(r"Outcome dropped|Lease lost")
    first.wait_for_line("Outcome dropped")

    job = row(result)
    assert (job.status, job.attempts, job.crashes) == ("succeeded", 2, 1)
    assert (job.finished_at, job.worker, job.lease_token) == (finished_at, owner.worker, owner.lease_token)
    assert owner.worker.split(":")[1] == str(second.pid)
    first.stop()
    assert "0 succeeded" in first.output


def test_a_resumed_worker_does_not_mistake_the_recovery_of_its_job_for_its_own_outcome(workers, evidence):
    """The row left `running` under its token, but by another's hand: nothing of its own has landed."""
    result = tasks.hold_then_fail.enqueue("failed")
    once = {"MAX_CRASHES": 1}
    first = workers.start(lease=SHORT_LEASE, bunderstack=once)
    evidence.wait_for("start", "failed")
    first.send(signal.SIGSTOP)
    workers.start(lease=SHORT_LEASE, bunderstack=once)
    until(has_status(result, "failed"))
    evidence.wait_for("on_failed", result.id)
    evidence.raise_flag()
    first.send(signal.SIGCONT)
    first.wait_for_line(r"Outcome dropped|job\.failed")
    first.stop()

    assert row(result).failure_reason == "lost"
    assert evidence.counted("on_failed")[result.id] == 1
    assert "Outcome dropped" in first.output
    assert "0 succeeded, 0 to be retried, 0 failed" in first.output


def test_a_worker_stopped_past_its_lease_keeps_the_job_that_nobody_took(workers, evidence):
    result = tasks.hold.enqueue("kept")
    worker = workers.start(lease=SHORT_LEASE)
    evidence.wait_for("start", "kept")
    worker.send(signal.SIGSTOP)
    token, locked_until = row(result).lease_token, row(result).locked_until
    until(lambda: Job.objects.get(pk=result.id).locked_until < _now(), "the lease has run out")
    worker.send(signal.SIGCONT)
    until(lambda: row(result).locked_until > locked_until, "the lease is renewed")
    # Long enough for several recoveries.
    stays(lambda: (row(result).lease_token, row(result).status) == (token, "running"), SHORT_LEASE * 1.5)
    evidence.raise_flag()
    until(has_status(result, "succeeded"))

    assert evidence.starts("kept") == 1
    assert (row(result).attempts, row(result).crashes) == (1, 0)


def test_two_workers_stopped_together_charge_each_other_nothing(workers, evidence):
    """As on a suspended machine: the first to wake must not take the other's jobs before it could renew them."""
    results = [tasks.hold.enqueue("one"), tasks.hold.enqueue("two")]
    both = [workers.start("--threads", "1", lease=SHORT_LEASE) for _ in range(2)]
    for key in ("one", "two"):
        evidence.wait_for("start", key)
    for worker in both:
        worker.send(signal.SIGSTOP)
    until(
        lambda: all(each.locked_until < _now() for each in Job.objects.filter(status="running")),
        "the leases have run out",
    )
    for worker in both:
        worker.send(signal.SIGCONT)
    stays(lambda: not any(each.crashes for each in Job.objects.all()), SHORT_LEASE)
    evidence.raise_flag()
    until(all_ended)

    assert evidence.counted() == {"one": 1, "two": 1}
    assert [(row(each).status, row(each).attempts) for each in results] == [("succeeded", 1)] * 2


def _now():
    from django.db import connection

    from bunderstack_django.runtime import clock

    return clock.read(connection)
