"""Settling: each outcome, the fence, and a cancel that came meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from bunderstack_django import cancel
from bunderstack_django.jobs.models import Job, new_id
from bunderstack_django.jobs.states import TERMINAL, FailureReason, Status

from .conftest import same

pytestmark = pytest.mark.django_db

MILLISECOND = timedelta(milliseconds=1)
UNSUCCESSFUL = [status for status in Status if status not in (Status.SUCCEEDED, Status.RUNNING)]


def near(first, second) -> bool:
    """Equal, but for what SQLite's clock rounds away and the time between two statements."""
    return abs(first - second) <= timedelta(milliseconds=300)


@pytest.mark.parametrize("status", [status for status in Status if status != Status.RUNNING])
def test_the_status_given_is_written_and_returned(store, status):
    claimed = store.running()
    (settled,) = store.settle(store.outcome(claimed, status))

    assert (settled.id, settled.status) == (claimed.id, status)
    assert store.row(claimed.id).status == status


@pytest.mark.parametrize("status", TERMINAL)
def test_an_ending_sets_finished_at(store, status):
    row = store.end(status)

    assert near(row.finished_at, row.last_attempted_at)


@pytest.mark.parametrize("status", [Status.PENDING, Status.SCHEDULED])
def test_going_back_leaves_finished_at_empty(store, status):
    assert store.end(status).finished_at is None


@pytest.mark.parametrize("status", [status for status in Status if status != Status.RUNNING])
def test_no_outcome_leaves_a_lease(store, status):
    row = store.end(status)

    assert (row.locked_until, row.lease_token) == (None, "token")


@pytest.mark.parametrize("reason", FailureReason)
def test_every_reason_is_kept(store, reason):
    claimed = store.running()
    store.settle(store.outcome(claimed, Status.FAILED, reason=reason))

    assert store.row(claimed.id).failure_reason == reason


def test_the_counters_given_are_written(store):
    claimed = store.running()
    store.settle(store.outcome(claimed, Status.PENDING, attempts=5, crashes=2, recovered=3))
    row = store.row(claimed.id)

    assert (row.attempts, row.crashes, row.recovered) == (5, 2, 3)


def test_a_delay_counts_from_the_databases_now(store):
    claimed = store.running()
    store.settle(store.outcome(claimed, Status.SCHEDULED, delay=90.5))
    row = store.row(claimed.id)

    assert near(row.run_after, row.last_attempted_at + timedelta(seconds=90.5))


def test_without_a_delay_run_after_stays(store):
    claimed = store.running()
    before = store.row(claimed.id).run_after
    store.settle(store.outcome(claimed, Status.PENDING))

    assert store.row(claimed.id).run_after == before


def test_a_very_small_delay_is_written(store):
    claimed = store.running()
    store.settle(store.outcome(claimed, Status.SCHEDULED, delay=1e-7))

    assert near(store.row(claimed.id).run_after, store.row(claimed.id).last_attempted_at)


def test_started_ago_dates_a_start_that_no_statement_has_seen(store):
    claimed = store.running(at_once=False)
    store.settle(store.outcome(claimed, started_ago=3.5))
    row = store.row(claimed.id)

    assert near(row.started_at, row.finished_at - timedelta(seconds=3.5))


def test_started_ago_does_not_move_a_start_already_written(store):
    claimed = store.running(at_once=True)
    store.settle(store.outcome(claimed, started_ago=500.0))
    row = store.row(claimed.id)

    assert row.started_at == row.last_attempted_at


def test_a_job_that_never_started_has_no_start(store):
    claimed = store.running(at_once=False)
    store.settle(store.outcome(claimed, Status.PENDING))

    assert store.row(claimed.id).started_at is None


def test_ended_ago_dates_the_end(store):
    claimed = store.running(at_once=False)
    store.settle(store.outcome(claimed, started_ago=60.25, ended_ago=10.125))
    row = store.row(claimed.id)

    assert abs(row.finished_at - row.started_at - timedelta(seconds=50.125)) <= MILLISECOND


def test_texts_given_are_written_to_the_last_character(store):
    claimed = store.running()
    store.settle(
        store.outcome(
            claimed,
            result='{"b":1e16,"a":"🐘 \\" \\\\ %s"}',
            errors='[{"message":"it\'s"}]',
            progress='{"fraction":0.5}',
            log='["line 漢"]',
            worker_ids='["x"]',
        )
    )
    row = store.row(claimed.id)

    assert list(row.result) == ["b", "a"]
    assert (row.result["a"], repr(row.result["b"])) == ('🐘 " \\ %s', "1e+16")
    assert (row.errors, row.progress) == ([{"message": "it's"}], {"fraction": 0.5})
    assert (row.log, row.worker_ids) == (["line 漢"], ["x"])


def test_texts_not_given_stay(store):
    claimed = store.running()
    Job.objects.update(errors=["e"], log=["l"], progress={"p": 1})
    store.settle(store.outcome(claimed, Status.PENDING))
    row = store.row(claimed.id)

    assert (row.errors, row.log, row.progress, row.worker_ids) == (["e"], ["l"], {"p": 1}, ["worker"])


def test_a_result_of_a_mebibyte_is_kept(store):
    claimed = store.running()
    store.settle(store.outcome(claimed, result=f'"{"🐘" * 262_144}"'))

    assert store.row(claimed.id).result == "🐘" * 262_144


def test_another_token_does_not_settle(store):
    claimed = store.running()

    assert store.settle(store.outcome(claimed, token="other")) == []
    assert store.row(claimed.id).status == "running"


@pytest.mark.parametrize("token", ["TOKEN", "token ", "tökén"], ids=ascii)
def test_tokens_differ_by_their_bytes(store, token):
    claimed = store.running(token="token")

    assert store.settle(store.outcome(claimed, token=token)) == []


@pytest.mark.parametrize("status", [status for status in Status if status != Status.RUNNING])
def test_a_row_no_longer_running_is_not_settled_again(store, status):
    claimed = store.running()
    store.settle(store.outcome(claimed, status))

    assert store.settle(store.outcome(claimed, Status.FAILED)) == []
    assert store.row(claimed.id).status == status


def test_the_token_of_the_claim_before_does_not_settle(store):
    first = store.running(token="first")
    store.settle(store.outcome(first, Status.PENDING))
    store.claim(token="second")

    assert store.settle(store.outcome(first)) == []
    assert store.row(first.id).status == "running"


def test_a_deleted_job_is_not_settled(store):
    claimed = store.running()
    Job.objects.all().delete()

    assert store.settle(store.outcome(claimed)) == []


def test_a_batch_lands_but_for_those_that_lost_their_lease(store):
    store.fill(4)
    kept, stolen, ended, gone = claims = store.claim()
    Job.objects.filter(pk=stolen.id).update(lease_token="thief")
    store.settle(store.outcome(ended, Status.FAILED))
    Job.objects.filter(pk=gone.id).delete()

    assert [settled.id for settled in store.settle(*map(store.outcome, claims))] == [kept.id]
    assert store.statuses() == {"succeeded": 1, "running": 1, "failed": 1}


def test_a_batch_may_hold_different_outcomes(store):
    store.fill(3)
    one, two, three = store.claim()
    landed = store.settle(
        store.outcome(one, result='"one"'),
        store.outcome(two, Status.FAILED, reason=FailureReason.ERROR, errors="[1]"),
        store.outcome(three, Status.SCHEDULED, delay=60.0),
    )

    assert {each.id: each.status for each in landed} == {
        one.id: "succeeded",
        two.id: "failed",
        three.id: "scheduled",
    }
    assert (store.row(one.id).result, store.row(two.id).errors) == ("one", [1])


def test_a_hundred_outcomes_land_together(store):
    store.fill(100)

    assert len(store.settle(*map(store.outcome, store.claim(100)))) == 100
    assert store.statuses() == {"succeeded": 100}


@pytest.mark.parametrize("stale_first", [True, False])
def test_of_two_outcomes_of_one_job_in_a_batch_the_one_with_the_live_token_lands(store, stale_first):
    """A worker that lost a job and claimed it again may have both outcomes to write."""
    stale = store.running(token="stale")
    store.settle(store.outcome(stale, Status.PENDING))
    (live,) = store.claim(token="live")
    batch = [store.outcome(stale, Status.FAILED), store.outcome(live)]

    landed = store.settle(*(batch if stale_first else reversed(batch)))

    assert [each.status for each in landed] == ["succeeded"]
    assert store.row(live.id).status == "succeeded"


@pytest.mark.parametrize("stale_first", [True, False])
def test_of_two_pulses_of_one_job_in_a_batch_the_one_with_the_live_token_renews(store, stale_first):
    stale = store.running(token="stale")
    store.settle(store.outcome(stale, Status.PENDING))
    (live,) = store.claim(token="live")
    batch = [stale, live]

    assert store.pulse(*(batch if stale_first else reversed(batch))) == {live.id: False}


@pytest.mark.parametrize("status", UNSUCCESSFUL)
def test_a_cancel_asked_for_wins_over_every_outcome_but_success(store, status):
    claimed = store.running()
    cancel(str(store.row(claimed.id).pk))
    (settled,) = store.settle(
        store.outcome(claimed, status, reason=FailureReason.ERROR, delay=60.0, errors='["kept"]')
    )
    row = store.row(claimed.id)

    assert (settled.status, row.status, row.failure_reason) == ("cancelled", "cancelled", None)
    assert (row.finished_at is not None, row.errors) == (True, ["kept"])


def test_a_success_wins_over_a_cancel_asked_for(store):
    claimed = store.running()
    cancel(str(store.row(claimed.id).pk))
    (settled,) = store.settle(store.outcome(claimed, result="1"))

    assert (settled.status, store.row(claimed.id).result) == ("succeeded", 1)


def test_a_cancel_touches_its_own_job_of_a_batch_only(store):
    store.fill(2)
    one, two = store.claim()
    cancel(str(store.row(one.id).pk))
    landed = store.settle(store.outcome(one, Status.PENDING), store.outcome(two, Status.PENDING))

    assert {each.id: each.status for each in landed} == {one.id: "cancelled", two.id: "pending"}


def test_settling_nothing_settles_nothing(store):
    """A worker does not do this; it would be a pity if it broke."""
    store.running()

    assert store.settle(store.outcome(store.running(token="other"), token="none")) == []


def test_recovery_settles_a_lapsed_job(store):
    claimed = store.running()
    store.lapse()

    assert len(store.settle(store.outcome(claimed, Status.PENDING), lapsed_only=True)) == 1


def test_recovery_does_not_settle_a_live_job(store):
    claimed = store.running()

    assert store.settle(store.outcome(claimed, Status.PENDING), lapsed_only=True) == []
    assert store.row(claimed.id).status == "running"


def test_a_lapsed_job_is_still_its_holders(store):
    claimed = store.running()
    store.lapse()

    assert len(store.settle(store.outcome(claimed))) == 1


def test_a_pulse_renews_the_lease(store):
    claimed = store.running()
    store.lapse()
    assert store.pulse(claimed, lease=45.5) == {claimed.id: False}
    row = store.row(claimed.id)

    assert near(row.locked_until, row.last_attempted_at + timedelta(seconds=45.5))
    assert row.status == "running"


def test_a_pulse_says_that_a_cancel_was_asked_for(store):
    claimed = store.running()
    cancel(str(store.row(claimed.id).pk))

    assert store.pulse(claimed) == {claimed.id: True}


def test_a_pulse_marks_the_start(store):
    claimed = store.running(at_once=False)
    store.pulse(claimed, started_ago=2.5)
    row = store.row(claimed.id)

    assert near(row.started_at, row.last_attempted_at - timedelta(seconds=2.5))


def test_a_pulse_does_not_move_a_start(store):
    claimed = store.running(at_once=True)
    store.pulse(claimed, started_ago=500.0)

    assert store.row(claimed.id).started_at == store.row(claimed.id).last_attempted_at


def test_a_pulse_writes_progress_and_log(store):
    claimed = store.running()
    store.pulse(claimed, progress='{"fraction":0.1}', log='["🐘"]')
    store.pulse(claimed)
    row = store.row(claimed.id)

    assert (row.progress, row.log) == ({"fraction": 0.1}, ["🐘"])


def test_a_pulse_with_another_token_does_nothing(store):
    claimed = store.running()
    store.lapse()

    assert store.pulse(claimed, token="other", progress="1") == {}
    assert (store.row(claimed.id).progress, len(store.dialect.lapsed(connection, 10))) == (None, 1)


def test_a_pulse_of_an_ended_job_does_nothing(store):
    claimed = store.running()
    store.settle(store.outcome(claimed))

    assert store.pulse(claimed) == {}
    assert store.row(claimed.id).locked_until is None


def test_a_pulse_renews_the_held_ones_of_many(store):
    store.fill(3)
    one, two, three = store.claim()
    store.settle(store.outcome(two))

    assert store.pulse(one, two, three) == {one.id: False, three.id: False}


def test_lapsed_jobs_come_the_longest_lapsed_first(store):
    from bunderstack_django.runtime.clock import DatabaseNow

    for seconds in (10, 30, 20):
        claimed = store.running(name=f"n{seconds}")
        Job.objects.filter(pk=claimed.id).update(locked_until=DatabaseNow(-timedelta(seconds=seconds)))
    store.running(name="live")

    assert {each.name for each in store.dialect.lapsed(connection, 2)} == {"n30", "n20"}


def test_held_by_token_gives_the_running_jobs_of_one_claim(store):
    store.fill(3)
    one, two = store.claim(2, token="mine")
    store.claim(1, token="theirs")
    store.settle(store.outcome(one))

    assert [each.id for each in store.dialect.held_by_token(connection, "mine")] == [two.id]


def test_ended_by_gives_those_that_left_running_under_their_token(store):
    store.fill(4)
    ended, running, retaken, deleted = claims = store.claim(token="mine")
    store.settle(store.outcome(ended), store.outcome(retaken, Status.PENDING))
    store.claim(token="theirs")
    Job.objects.filter(pk=deleted.id).delete()

    found = store.dialect.ended_by(connection, [(each.id, each.lease_token) for each in claims])

    assert [(each.id, each.status) for each in found] == [(ended.id, "succeeded")]
    assert store.row(running.id).status == "running"


def test_ended_by_takes_ids_as_uuids_too(store):
    row = store.end()

    (found,) = store.dialect.ended_by(connection, [(row.pk, "token")])
    assert same(found.id, row.pk)


def test_ended_by_of_unknown_jobs_gives_nothing(store):
    assert store.dialect.ended_by(connection, [(new_id(), "token")]) == []


def test_settle_and_pulse_take_ids_as_uuids_too(store):
    claimed = store.running()
    by_uuid = claimed._replace(id=store.row(claimed.id).pk)

    assert len(store.pulse(by_uuid)) == 1
    assert len(store.settle(store.outcome(by_uuid))) == 1
