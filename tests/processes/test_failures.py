"""What handlers do to themselves, and not to their worker."""

from __future__ import annotations

import signal

import pytest

from bunderstack_django import enqueue_many
from bunderstack_django.jobs.store import records
from bunderstack_django.models import Job
from tests.testapp import tasks as samples

from . import tasks
from .harness import all_ended, has_status, row, until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

ENDINGS = {
    "exit 0": "builtins.SystemExit",
    "exit 3": "builtins.SystemExit",
    "exit text": "builtins.SystemExit",
    "interrupt": "builtins.KeyboardInterrupt",
    "generator": "builtins.GeneratorExit",
    "recursion": "builtins.RecursionError",
}


def test_a09_a_handler_that_exits_fails_its_job_only(workers, evidence):
    results = {how: samples.leave.enqueue(how) for how in ENDINGS}
    normal = tasks.start.enqueue("normal")
    worker = workers.start("--threads", "1")
    until(all_ended)

    for how, error in ENDINGS.items():
        job = row(results[how])
        assert (job.status, job.failure_reason, job.attempts) == ("failed", "error", 1)
        assert [each["exception_class"] for each in job.errors] == [error]
    assert row(normal).status == "succeeded"
    assert worker.is_alive
    assert worker.stop(signal.SIGINT) < 5  # a real one still counts


def test_a09_a_coroutine_that_exits_fails_its_job_only(workers, evidence):
    endings = {
        "exit": "builtins.SystemExit",
        "interrupt": "builtins.KeyboardInterrupt",
        "generator": "builtins.GeneratorExit",
        "cancelled": "asyncio.exceptions.CancelledError",
    }
    results = {how: tasks.leave_async.enqueue(how) for how in endings}
    normal = samples.add_async.enqueue(1, 2)
    worker = workers.start("--threads", "1")
    until(all_ended)

    found = {
        how: (row(each).status, [e["exception_class"] for e in row(each).errors])
        for how, each in results.items()
    }
    assert found == {how: ("failed", [error]) for how, error in endings.items()}
    assert row(normal).result == 3
    assert worker.stop() < 5


def test_a10_an_exception_that_cannot_be_printed_is_recorded_and_retried(workers, evidence):
    unprintable, cyclic = samples.unprintable.enqueue(), samples.cyclic_cause.enqueue()
    large, normal = samples.large_error.enqueue(), tasks.start.enqueue("normal")
    worker = workers.start()
    until(all_ended)

    job = row(unprintable)
    assert (job.status, job.failure_reason, job.attempts) == ("failed", "error", 2)
    assert [each["exception_class"] for each in job.errors] == ["tests.testapp.tasks.Unprintable"] * 2
    assert job.errors[0]["message"] == "<the message could not be printed>"
    assert (row(cyclic).status, row(cyclic).errors[0]["message"]) == ("failed", "first")
    assert row(large).status == "failed"
    assert row(normal).status == "succeeded"
    assert worker.stop() < 5


def test_a16_a_job_the_worker_does_not_know_waits_uncharged_and_others_run(workers, evidence):
    old, new = tasks.start.enqueue("old"), tasks.start.enqueue("new")
    Job.objects.filter(pk=old.id).update(name="old.task", max_attempts=3)
    worker = workers.start()
    until(has_status(new, "succeeded"))
    until(has_status(old, "scheduled"))

    job = row(old)
    assert (job.attempts, job.crashes, job.worker_ids) == (0, 0, [])
    assert "old.task" in job.errors[0]["message"]
    assert (job.run_after - job.enqueued_at).total_seconds() > 25  # not retried hot
    assert worker.stop() < 5
    records.run_now([old.id], "default")
    workers.start(environment={"PROCESS_HAS_OLD_TASK": "1"})
    until(has_status(old, "succeeded"))
    assert evidence.starts("old") == 1


def test_a16_a_job_unknown_for_too_long_fails_and_succeeds_after_retry_with_its_type_back(workers, evidence):
    old = tasks.start.enqueue("old")
    Job.objects.filter(pk=old.id).update(name="old.task", max_attempts=3)
    worker = workers.start(bunderstack={"UNKNOWN_JOB_GRACE": 0.01})
    until(has_status(old, "scheduled"))
    records.run_now([old.id], "default")
    until(has_status(old, "failed"))

    job = row(old)
    assert (job.failure_reason, job.crashes) == ("unknown_job", 0)
    assert "old.task" in job.errors[-1]["message"]
    worker.stop()
    workers.start(environment={"PROCESS_HAS_OLD_TASK": "1"})
    records.retry(old.id, "default")
    until(has_status(old, "succeeded"))
    assert evidence.starts("old") == 1


@pytest.mark.parametrize("how", ["loop", "sleep", "c-call"])
def test_a20_a_timeout_with_one_allowed_attempt_means_one_start_and_the_next_job_runs(workers, evidence, how):
    result, after = tasks.overrun.enqueue(how), tasks.start.enqueue("after")
    worker = workers.start("--threads", "1", lease=1.5)
    until(has_status(result, "failed"))
    until(has_status(after, "succeeded"))

    job = row(result)
    assert (job.failure_reason, job.attempts, job.crashes) == ("timeout", 1, 0)
    # What is asleep or in C gets its timeout when it comes back to Python, after 1.6 s.
    limits = (0.9, 2.5) if how == "loop" else (1.5, 4.5)
    assert limits[0] < (job.finished_at - job.started_at).total_seconds() < limits[1]
    assert evidence.starts(how) == 1
    assert worker.stop() < 5


def test_on_failed_is_called_once_after_the_last_attempt(workers, evidence):
    result = tasks.fail_twice.enqueue("twice")
    workers.start()
    until(has_status(result, "failed"))
    evidence.wait_for("on_failed", result.id)
    enqueue_many([tasks.start.bind("after")])
    evidence.wait_for("start", "after")

    assert evidence.starts("twice") == 2
    assert evidence.counted("on_failed") == {result.id: 1}
