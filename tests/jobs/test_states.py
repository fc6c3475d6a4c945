"""Every row of the state table, by the helpers that users test with."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from bunderstack_django import cancel, retry
from bunderstack_django.compat import TaskResultStatus
from bunderstack_django.exceptions import DedupeConflict, JobDoesNotExist, JobNotFinished
from bunderstack_django.jobs import maintenance
from bunderstack_django.models import Job
from bunderstack_django.runtime.clock import DatabaseNow
from bunderstack_django.testing import TickResult, advance, drain, tick
from tests.testapp import tasks

pytestmark = pytest.mark.django_db


def row(result) -> Job:
    return Job.objects.get(pk=result.id)


def claim(result=None, *, at_once: bool = True) -> Job:
    """Claim every pending job for a worker that then does nothing."""
    from django.db import connection

    from bunderstack_django.jobs.store import dialect_of

    dialect_of(connection).claim(
        connection, token="their-token", worker="them", queues=None, limit=10, lease=30.0, at_once=at_once
    )
    return row(result) if result else None


def die() -> None:
    """Let the claims of that worker lapse."""
    Job.objects.filter(status="running").update(locked_until=DatabaseNow(-timedelta(seconds=1)))


def recover() -> None:
    from django.db import connection

    maintenance.recover(connection)


def test_an_enqueued_job_is_pending():
    job = row(tasks.noop.enqueue())

    assert (job.status, job.attempts, job.locked_until) == ("pending", 0, None)


def test_an_enqueued_job_with_a_later_run_after_is_scheduled():
    job = row(tasks.noop.using(run_after=timezone.now() + timedelta(hours=1)).enqueue())

    assert job.status == "scheduled"


def test_a_run_after_in_the_past_is_pending():
    job = row(tasks.noop.using(run_after=timezone.now() - timedelta(hours=1)).enqueue())

    assert job.status == "pending"


def test_a_delay_counts_from_the_databases_now():
    job = row(tasks.noop.using(delay=60).enqueue())

    assert job.status == "scheduled"
    assert job.run_after - job.enqueued_at == timedelta(seconds=60)


def test_a_scheduled_job_runs_once_it_is_due():
    result = tasks.noop.using(delay=60).enqueue()

    assert tick() == TickResult()
    advance(61)
    assert tick() == TickResult(claimed=1, succeeded=1)
    assert row(result).status == "succeeded"


def test_tick_at_a_given_instant_runs_what_is_due_then():
    tasks.noop.using(delay=timedelta(days=3)).enqueue()

    assert tick(now=timezone.now() + timedelta(days=4)).succeeded == 1


def test_a_claim_counts_the_attempt_and_takes_a_lease():
    job = claim(tasks.noop.enqueue())

    assert (job.status, job.attempts, job.worker, job.lease_token) == ("running", 1, "them", "their-token")
    assert job.worker_ids == ["them"]
    assert timedelta(seconds=29) < job.locked_until - job.last_attempted_at <= timedelta(seconds=30.01)


def test_a_handler_that_returns_makes_the_job_succeed_with_its_result():
    result = tasks.add.enqueue(1, b=2)
    drain()

    job = row(result)
    assert (job.status, job.result, job.attempts, job.locked_until) == ("succeeded", 3, 1, None)
    assert job.enqueued_at <= job.started_at <= job.finished_at
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 1)


def test_a_failure_with_retries_left_is_scheduled_with_its_backoff(calls):
    result = tasks.fail.enqueue()

    assert tick() == TickResult(claimed=1, retried=1)
    job = row(result)
    assert (job.status, job.attempts, job.failure_reason, job.finished_at) == ("scheduled", 1, None, None)
    assert (
        timedelta(seconds=19) < job.run_after - job.last_attempted_at < timedelta(seconds=21)
    )  # 10 s × 2**1
    assert job.errors[0]["exception_class"] == "tests.testapp.tasks.Boom"
    result.refresh()
    assert result.status == TaskResultStatus.READY


def test_the_last_failure_is_final_and_calls_on_failed_once(calls):
    result = tasks.fail.enqueue("no luck")
    for _ in range(5):
        tick()
        advance(3600)

    job = row(result)
    assert (job.status, job.failure_reason, job.attempts) == ("failed", "error", 3)
    assert [error["attempt"] for error in job.errors] == [1, 2, 3]
    assert calls == ["no luck"] * 3
    (failure,) = tasks.failures
    assert (failure.job_id, failure.args, failure.kwargs) == (result.id, ["no luck"], {})
    assert failure.error.message == "no luck"


def test_an_error_in_on_failed_is_logged_and_changes_nothing(caplog):
    result = tasks.fail_with_broken_on_failed.enqueue()
    drain()
    advance(1)
    drain()

    assert row(result).status == "failed"
    assert "on_failed raised" in caplog.text


def test_retry_counts_as_a_failure_and_sets_the_wait():
    result = tasks.retry_later.enqueue(90)
    tick()

    job = row(result)
    assert (job.status, job.attempts) == ("scheduled", 1)
    assert timedelta(seconds=89) < job.run_after - job.last_attempted_at < timedelta(seconds=91)
    advance(100)
    tick()
    assert (row(result).status, row(result).failure_reason) == ("failed", "error")


def test_snooze_gives_the_attempt_back():
    result = tasks.snooze.enqueue(30)
    for _ in range(3):
        assert tick().claimed == 1
        job = row(result)
        assert (job.status, job.attempts, job.worker_ids, job.errors) == ("scheduled", 0, [], [])
        advance(31)


def test_discard_fails_at_once():
    result = tasks.discard.enqueue()
    tick()

    job = row(result)
    assert (job.status, job.failure_reason, job.attempts) == ("failed", "discarded", 1)
    assert job.errors[0]["message"] == "not worth it"


def test_discard_on_wins_over_retry_on():
    result = tasks.discard_on_boom.enqueue()
    tick()

    assert row(result).failure_reason == "discarded"


def test_an_error_outside_retry_on_is_not_retried():
    other, listed = tasks.retry_on_boom.enqueue("value"), tasks.retry_on_boom.enqueue("boom")
    tick()

    assert (row(other).status, row(other).failure_reason) == ("failed", "error")
    assert row(listed).status != "failed"


def test_a_result_that_cannot_be_stored_fails_without_retries():
    result = tasks.unstorable_result.enqueue()
    tick()

    job = row(result)
    assert (job.status, job.failure_reason, job.attempts) == ("failed", "error", 1)
    assert "not JSON" in job.errors[0]["message"]


def test_a_payload_that_no_longer_fits_fails_without_retries():
    result = tasks.add.enqueue(1, 2)
    Job.objects.filter(pk=result.id).update(payload={"args": [], "kwargs": {"renamed": 1}})
    tick()

    job = row(result)
    assert (job.status, job.failure_reason, job.attempts) == ("failed", "payload", 1)


@pytest.mark.parametrize("payload", ["garbage", [], {"args": 1}, None])
def test_a_broken_payload_fails_its_job_and_no_other(payload):
    broken, good = tasks.add.enqueue(1, 2), tasks.add.enqueue(3, 4)
    Job.objects.filter(pk=broken.id).update(payload=payload or {})
    drain()

    assert (row(broken).status, row(broken).failure_reason) == ("failed", "payload")
    assert row(good).status == "succeeded"


def test_a_job_of_an_unknown_name_goes_back_uncharged_and_fails_after_its_grace():
    result = tasks.noop.enqueue()
    Job.objects.filter(pk=result.id).update(name="old.task")

    tick()
    job = row(result)
    assert (job.status, job.attempts) == ("scheduled", 0)
    assert timedelta(seconds=29) < job.run_after - job.last_attempted_at < timedelta(seconds=31)
    advance(1800)
    tick()
    assert row(result).status == "scheduled"
    assert len(row(result).errors) == 1
    advance(1830)
    tick()
    job = row(result)
    assert (job.status, job.failure_reason) == ("failed", "unknown_job")
    assert "old.task" in job.errors[-1]["message"]


def test_an_operators_retry_of_an_unknown_job_has_its_grace_anew():
    result = tasks.noop.enqueue()
    Job.objects.filter(pk=result.id).update(name="old.task")
    tick()
    advance(4000)
    tick()
    assert row(result).failure_reason == "unknown_job"
    Job.objects.filter(pk=result.id).update(status="pending", failure_reason=None, finished_at=None)
    tick()

    assert row(result).status == "scheduled"


def test_a_crash_is_charged_apart_from_the_attempts_if_the_handler_had_started():
    result = tasks.fail.enqueue()
    for crashes in (1, 2):
        claim()
        die()
        recover()
        job = row(result)
        assert (job.status, job.crashes, job.attempts) == ("pending", crashes, crashes)
    tick()
    advance(3600)

    assert row(result).status == "scheduled"  # two crashes spent none of its two retries
    assert row(result).attempts == 3


def test_the_third_crash_fails_the_job_with_the_evidence_and_calls_on_failed(calls):
    result = tasks.noop.enqueue()
    for _ in range(3):
        claim()
        die()
        recover()

    job = row(result)
    assert (job.status, job.failure_reason, job.crashes) == ("failed", "lost", 3)
    assert "them" in job.errors[-1]["message"]


def test_a_job_without_retries_survives_two_crashes():
    result = tasks.with_context.enqueue()
    for _ in range(2):
        claim()
        die()
        recover()
    tick()

    job = row(result)
    assert (job.status, job.attempts, job.crashes) == ("succeeded", 3, 2)


def test_a_job_whose_handler_never_started_is_returned_uncharged():
    result = tasks.noop.enqueue()
    claim(at_once=False)
    die()
    recover()

    job = row(result)
    assert (job.status, job.attempts, job.crashes, job.worker_ids) == ("pending", 0, 0, [])


def test_a_job_returned_by_a_dead_worker_counts_as_started_from_its_next_claim():
    result = tasks.noop.enqueue()
    claim(at_once=False)
    die()
    recover()
    claim(at_once=False)
    die()
    recover()

    assert row(result).crashes == 1


def test_a_live_lease_is_not_recovered():
    result = tasks.noop.enqueue()
    claim()
    recover()

    assert row(result).status == "running"


def test_cancel_ends_a_waiting_job_at_once():
    pending, scheduled = tasks.noop.enqueue(), tasks.noop.using(delay=60).enqueue()

    assert cancel(pending.id) is True
    assert cancel(scheduled.id) is True
    assert {row(pending).status, row(scheduled).status} == {"cancelled"}
    assert row(pending).finished_at is not None
    pending.refresh()
    assert pending.status == TaskResultStatus.FAILED
    assert tick().claimed == 0


def test_cancel_of_an_ended_or_unknown_job_is_false():
    result = tasks.noop.enqueue()
    drain()

    assert cancel(result.id) is False
    assert cancel("00000000-0000-0000-0000-000000000000") is False
    assert cancel("no id") is False


def test_cancel_of_a_running_job_asks_it():
    result = tasks.noop.enqueue()
    claim()

    assert cancel(result.id) is True
    assert (row(result).status, row(result).cancel_requested_at is not None) == ("running", True)


@pytest.mark.parametrize(
    ("name", "status"), [("noop", "succeeded"), ("fail", "cancelled"), ("snooze", "cancelled")]
)
def test_a_job_cancelled_while_it_ran_ends_cancelled_unless_it_returned(name, status, calls, monkeypatch):
    args = {"snooze": (5,)}.get(name, ())
    result = getattr(tasks, name).enqueue(*args)
    from bunderstack_django import testing

    execute = testing.execute

    def execute_while_someone_cancels(run):
        cancel(result.id)
        return execute(run)

    monkeypatch.setattr(testing, "execute", execute_while_someone_cancels)
    tick()

    assert (row(result).status, row(result).failure_reason) == (status, None)
    assert tasks.failures == []  # on_failed is not called on cancel


def test_a_cancelled_job_of_a_dead_worker_is_cancelled_not_run_again():
    result = tasks.noop.enqueue()
    claim()
    cancel(result.id)
    die()
    recover()

    assert row(result).status == "cancelled"


def test_an_operators_retry_starts_the_attempts_anew_and_keeps_the_history(calls):
    result = tasks.discard.enqueue()
    tick()

    again = retry(result.id)
    job = row(result)
    assert again.status == TaskResultStatus.READY
    assert (job.status, job.attempts, job.worker_ids, job.finished_at, job.failure_reason) == (
        "pending",
        0,
        [],
        None,
        None,
    )
    assert len(job.errors) == 1
    tick()
    assert len(row(result).errors) == 2


def test_retry_refuses_what_has_not_ended():
    result = tasks.noop.enqueue()

    with pytest.raises(JobNotFinished, match="pending"):
        retry(result.id)
    with pytest.raises(JobDoesNotExist):
        retry("00000000-0000-0000-0000-000000000000")
    with pytest.raises(JobDoesNotExist):
        retry("no id")


def test_retry_names_the_newer_job_that_holds_its_key():
    old = tasks.noop.using(dedupe_key="k").enqueue()
    drain()
    new = tasks.noop.using(dedupe_key="k").enqueue()

    with pytest.raises(DedupeConflict, match=new.id):
        retry(old.id)
    assert row(old).status == "succeeded"
    assert row(new).status == "pending"  # the caller's transaction goes on
