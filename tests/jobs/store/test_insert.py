"""Inserting jobs: what stands in the row, and which of them a dedupe key keeps out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from bunderstack_django.jobs.models import Job
from bunderstack_django.jobs.states import Status
from bunderstack_django.runtime import clock

from .conftest import same

pytestmark = pytest.mark.django_db

WEIRD = [
    "it's",
    'say "so"',
    "100%s %(x)s %",
    r"back\slash \n \u0041 \\",
    "🐘 naïve 漢字",
    "trailing  ",
    " leading",
    "line\nbreak\ttab",
    "e\u0301",
    "Straße",
    "x" * 200,
    "漢" * 200,
    "🐘" * 200,
    "null",
    "[1]",
    "$.name",
    "-1",
]


def test_a_job_without_a_time_is_pending_and_due_now(store):
    row = store.row(store.put())

    assert (row.status, row.run_after) == ("pending", row.enqueued_at)


def test_a_job_with_a_time_ahead_is_scheduled(store):
    row = store.row(store.put(run_after=datetime(2199, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)))

    assert (row.status, row.run_after) == ("scheduled", datetime(2199, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC))


def test_a_job_with_a_past_time_is_pending_and_keeps_its_time(store):
    row = store.row(store.put(run_after=datetime(2001, 1, 1, tzinfo=UTC)))

    assert (row.status, row.run_after) == ("pending", datetime(2001, 1, 1, tzinfo=UTC))


def test_a_time_in_another_zone_is_kept_as_its_instant(store):
    moment = datetime(2199, 7, 1, 12, tzinfo=datetime.fromisoformat("2000-01-01T00:00+05:30").tzinfo)

    assert store.row(store.put(run_after=moment)).run_after == moment


def test_a_delay_counts_from_the_databases_now(store):
    row = store.row(store.put(delay=timedelta(hours=1, milliseconds=250)))

    assert row.status == "scheduled"
    assert abs(row.run_after - row.enqueued_at - timedelta(hours=1, milliseconds=250)) <= timedelta(
        milliseconds=1
    )


def test_a_delay_of_nothing_is_pending(store):
    assert store.row(store.put(delay=timedelta(0))).status == "pending"


def test_a_negative_delay_is_pending(store):
    assert store.row(store.put(delay=timedelta(seconds=-5))).status == "pending"


def test_a_delay_of_ten_years_is_scheduled(store):
    row = store.row(store.put(delay=timedelta(days=3660)))

    assert row.status == "scheduled"
    assert abs(row.run_after - row.enqueued_at - timedelta(days=3660)) < timedelta(seconds=1)


def test_a_new_row_has_empty_history(store):
    row = store.row(store.put(max_attempts=7, priority=-100, concurrency_key="tenant"))

    assert (row.attempts, row.crashes, row.recovered, row.max_attempts) == (0, 0, 0, 7)
    assert (row.worker_ids, row.errors, row.log, row.result, row.progress) == ([], [], [], None, None)
    assert (row.started_at, row.finished_at, row.locked_until, row.lease_token) == (None, None, None, None)
    assert (row.priority, row.concurrency_key, row.dedupe_key) == (-100, "tenant", None)


def test_what_was_inserted_is_returned(store):
    now, later = store.new(), store.new(delay=timedelta(hours=1))
    found = {str(each.id).replace("-", ""): each for each in store.insert(now, later)}

    assert {key: each.status for key, each in found.items()} == {
        now.id.hex: "pending",
        later.id.hex: "scheduled",
    }
    assert all(clock.as_utc(each.enqueued_at) == store.row(each.id).enqueued_at for each in found.values())


def test_a_thousand_jobs_go_in_by_one_statement(store, django_assert_num_queries):
    jobs = [store.new() for _ in range(1000)]
    with django_assert_num_queries(1):
        assert len(store.insert(*jobs)) == 1000


def test_a_held_key_keeps_a_job_out(store):
    first = store.put(dedupe_key="k")

    assert store.insert(store.new(dedupe_key="k")) == []
    assert [row.pk for row in Job.objects.all()] == [first]


def test_a_held_key_keeps_only_its_own_job_out_of_a_batch(store):
    store.put(dedupe_key="k")
    other, plain = store.new(dedupe_key="other"), store.new()
    inserted = store.insert(other, store.new(dedupe_key="k"), plain)

    assert set(Job.objects.exclude(dedupe_key="k").values_list("pk", flat=True)) | {plain.id} == {
        other.id,
        plain.id,
    }
    assert len(inserted) == 2


def test_of_two_jobs_with_one_key_in_a_batch_the_first_stands(store):
    first, second = store.new(dedupe_key="k"), store.new(dedupe_key="k")
    (inserted,) = store.insert(first, second)

    assert same(inserted.id, first.id)


def test_one_key_under_two_names_is_two_keys(store):
    assert len(store.insert(store.new(dedupe_key="k"), store.new(name="other", dedupe_key="k"))) == 2


@pytest.mark.parametrize("status", ["scheduled", "pending", "running"])
def test_an_unended_job_holds_its_key(store, status):
    key = store.put(dedupe_key="k", delay=timedelta(hours=1) if status == "scheduled" else None)
    if status == "running":
        store.claim()

    assert store.row(key).status == status
    assert store.insert(store.new(dedupe_key="k")) == []


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED])
def test_an_ended_job_frees_its_key(store, status):
    store.end(status, dedupe_key="k")

    assert len(store.insert(store.new(dedupe_key="k"))) == 1


def test_jobs_without_a_key_are_never_duplicates(store):
    assert len(store.insert(*[store.new() for _ in range(3)])) == 3


@pytest.mark.parametrize("key", ["A", "a ", "á", "a\u0301", " a"], ids=ascii)
def test_keys_differ_by_their_bytes(store, key):
    store.put(dedupe_key="a")

    assert len(store.insert(store.new(dedupe_key=key))) == 1


def test_names_of_held_keys_differ_by_their_bytes(store):
    store.put(name="report", dedupe_key="k")

    assert (
        len(store.insert(*[store.new(name=name, dedupe_key="k") for name in ("Report", "report ", "réport")]))
        == 3
    )


@pytest.mark.parametrize("text", WEIRD, ids=ascii)
def test_any_text_is_kept_in_every_key_column(store, text):
    row = store.row(
        store.put(name=text, queue_name=text, dedupe_key=text, concurrency_key=text, backend=text)
    )

    assert (row.name, row.queue_name, row.dedupe_key, row.concurrency_key, row.backend) == (text,) * 5


@pytest.mark.parametrize("text", WEIRD, ids=ascii)
def test_any_text_as_a_key_keeps_its_duplicate_out(store, text):
    key = store.put(name=text, dedupe_key=text)

    assert store.insert(store.new(name=text, dedupe_key=text)) == []
    assert same(store.dialect.holder(connection, text, text), key)


@pytest.mark.parametrize(
    "payload",
    [
        '{"args":[1e16,0.1,1.0,-0.0,12345678901234567890123],"kwargs":{"b":1,"a":2}}',
        '{"args":["it\'s \\"so\\" \\\\ \\u0041 %s 🐘 漢字 e\u0301"],"kwargs":{}}',
        '{ "args" : [ ] , "kwargs" : { } }',
        '"text"',
        "null",
        "[[[[]]]]",
    ],
    ids=ascii,
)
def test_a_payload_is_kept_to_the_last_character(store, payload):
    store.put(payload=payload)

    assert store.claim()[0].payload == payload


@pytest.mark.parametrize("unit", ["x", "é", "🐘", '\\"', "\\\\"], ids=ascii)
def test_a_payload_of_a_mebibyte_is_kept(store, unit):
    text = unit * (1024 * 1024 // len(unit.encode()))
    payload = f'{{"args":["{text}"],"kwargs":{{}}}}'
    store.put(payload=payload)

    assert store.claim()[0].payload == payload


def test_a_key_can_be_held_by_one_of_many_jobs(store):
    """MariaDB looks keys up in one statement for a whole batch."""
    store.insert(*[store.new(dedupe_key=f"k{number}") for number in range(0, 1000, 2)])

    assert len(store.insert(*[store.new(dedupe_key=f"k{number}") for number in range(1000)])) == 500


def test_the_callers_transaction_goes_on_after_a_duplicate(store):
    store.put(dedupe_key="k")
    store.insert(store.new(dedupe_key="k"))

    assert store.row(store.put(dedupe_key="l")).status == "pending"
