"""Cases of area A that need no processes: what tests and workers must agree on, and colliding keys."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from bunderstack_django import enqueue_many, retry
from bunderstack_django.compat import TaskResultStatus, task_backends
from bunderstack_django.exceptions import DedupeConflict, InvalidPayload
from bunderstack_django.jobs import maintenance
from bunderstack_django.jobs.store import dialect_of
from bunderstack_django.models import Job
from bunderstack_django.runtime.clock import DatabaseNow
from bunderstack_django.testing import TickResult, advance, drain, tick
from tests.testapp import tasks

pytestmark = pytest.mark.django_db

MODES = ("default", "immediate", "dummy")


@pytest.fixture(autouse=True)
def _doubles(settings):
    settings.TASKS = {
        "default": {"BACKEND": "bunderstack_django.backend.DatabaseBackend", "QUEUES": []},
        "immediate": {"BACKEND": "bunderstack_django.testing.backends.ImmediateBackend", "QUEUES": []},
        "dummy": {"BACKEND": "bunderstack_django.testing.backends.DummyBackend", "QUEUES": []},
    }


def enqueued(task: Any, mode: str, *args: Any, **kwargs: Any) -> Any:
    """What became of the call: the stored arguments, or the refusal as text."""
    try:
        result = task.using(backend=mode).enqueue(*args, **kwargs)
    except InvalidPayload as error:
        return str(error)
    return result.args, result.kwargs


# A13

UNANNOTATED = {
    "datetime": (datetime(2026, 1, 1, tzinfo=UTC), InvalidPayload),
    "date": (date(2026, 1, 1), InvalidPayload),
    "UUID": (UUID(int=1), InvalidPayload),
    "Decimal": (Decimal("0.10"), InvalidPayload),
    "tuple": ((1, 2), [1, 2]),
    "nested tuple": ({"a": ((1,),)}, {"a": [[1]]}),
    "integer key": ({1: "a"}, {"1": "a"}),
    "tuple key": ({(1, 2): "a"}, InvalidPayload),
    "bytes": (b"x", "x"),
    "bytes that are no text": (b"\xff", InvalidPayload),
    "enum": (tasks.Colour.RED, InvalidPayload),
    "set": ({1}, InvalidPayload),
    "NaN": (float("nan"), InvalidPayload),
    "NUL": ("a\0b", InvalidPayload),
    "lone surrogate": ("\ud800", InvalidPayload),
    "text": ("süß ☃ 🎉", "süß ☃ 🎉"),
    "float": (0.1, 0.1),
    "large integer": (2**63, 2**63),
}


@pytest.mark.parametrize(("value", "expected"), UNANNOTATED.values(), ids=UNANNOTATED)
def test_a13_an_unannotated_value_is_refused_or_arrives_alike_in_tests_and_in_a_worker(
    value, expected, calls
):
    outcomes = {mode: enqueued(tasks.echo, mode, value) for mode in MODES}

    assert outcomes["default"] == outcomes["immediate"] == outcomes["dummy"]
    if expected is InvalidPayload:
        assert "'value'" in outcomes["default"]
        assert not Job.objects.exists()
        assert calls == []
        return
    assert outcomes["default"] == ([expected], {})
    assert tick() == TickResult(claimed=1, succeeded=1)
    assert calls == [expected] * 2
    assert [type(each) for each in calls] == [type(expected)] * 2


def test_a13_a_model_instance_is_refused_in_every_mode_naming_the_argument_and_the_cure(calls):
    group = Group.objects.create(name="g")
    outcomes = {enqueued(tasks.echo, mode, group) for mode in MODES}

    (refusal,) = outcomes
    assert "'value'" in refusal
    assert "pk" in refusal
    assert not Job.objects.exists()
    assert calls == []


def test_a13_annotated_values_arrive_as_their_types_in_tests_and_in_a_worker(calls):
    values: tuple[Any, ...] = (
        datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC),
        date(2026, 1, 1),
        UUID(int=1),
        Decimal("0.10"),
        tasks.Colour.RED,
        tasks.Address(street="Main", since=date(2020, 2, 29)),
        1,
        [tasks.Colour.BLUE],
    )
    outcomes = [enqueued(tasks.typed, mode, *values) for mode in MODES]
    assert tick().succeeded == 1

    assert outcomes[0] == outcomes[1] == outcomes[2]
    immediate, worker = calls
    assert immediate == worker == values
    assert [type(each) for each in immediate] == [type(each) for each in worker]
    assert str(worker[3]) == "0.10"


@pytest.mark.parametrize(
    ("position", "wrong"),
    [
        (0, "yesterday"),
        (0, 5),
        (1, datetime(2026, 1, 1, 12, tzinfo=UTC)),
        (2, "no uuid"),
        (3, "a lot"),
        (4, "green"),
        (5, {"street": "Main"}),
        (6, "1.0"),
        (7, ["green"]),
    ],
)
def test_a13_a_mistyped_value_is_refused_alike_and_leaves_no_row(position, wrong, calls):
    good: list[Any] = [datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), UUID(int=1), Decimal(1), "red"]
    good += [None, 1.0, []]
    good[position] = wrong
    outcomes = {enqueued(tasks.typed, mode, *good) for mode in MODES}

    (refusal,) = outcomes
    name = ("moment", "day", "key", "price", "colour", "address", "share", "tags")[position]
    assert repr(name) in refusal
    assert not Job.objects.exists()
    assert calls == []


def test_a13_a_call_that_does_not_fit_the_signature_is_refused_alike(calls):
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"c": 2}), ((1,), {"a": 1})):
        (refusal,) = {enqueued(tasks.add, mode, *args, **kwargs) for mode in MODES}
        assert "add" in refusal

    assert not Job.objects.exists()


def test_a13_results_and_failures_are_alike_in_tests_and_in_a_worker(calls):
    outcomes = []
    for task, args in (
        (tasks.add, (1, 2)),
        (tasks.unstorable_result, ()),
        (tasks.discard, ()),
        (tasks.cyclic_cause, ()),
        (tasks.leave, ("exit 3",)),
    ):
        immediate = task.using(backend="immediate").enqueue(*args)
        stored = task.enqueue(*args)
        tick()
        stored.refresh()
        assert immediate.status == stored.status
        assert [each.exception_class_path for each in immediate.errors] == [
            each.exception_class_path for each in stored.errors
        ]
        if stored.status == TaskResultStatus.SUCCESSFUL:
            assert immediate.return_value == stored.return_value
        outcomes.append(stored.status)

    assert outcomes == [TaskResultStatus.SUCCESSFUL] + [TaskResultStatus.FAILED] * 4


def test_a13_the_dummy_keeps_what_the_database_would(calls):
    result = tasks.echo.using(backend="dummy").enqueue((1, {2: b"x"}))

    assert task_backends["dummy"].results == [result]
    assert result.args == [[1, {"2": "x"}]]
    assert calls == []


# A15


def claim() -> None:
    dialect_of(connection).claim(
        connection, token="theirs", worker="them", queues=None, limit=10, lease=30.0, at_once=True
    )


def test_a15_a_key_is_held_while_its_job_runs_so_its_retry_meets_no_twin(monkeypatch):
    """Unlike queues whose key covers waiting jobs only: there is no J2 to collide with."""
    first = tasks.retry_later.using(dedupe_key="k").enqueue(0)
    twins = []
    from bunderstack_django import testing

    execute = testing.execute

    def execute_while_another_enqueues(run: Any) -> Any:
        twins.append(tasks.retry_later.using(dedupe_key="k").enqueue(0))
        return execute(run)

    monkeypatch.setattr(testing, "execute", execute_while_another_enqueues)
    assert tick().claimed == 1

    assert [each.id for each in twins] == [first.id]
    assert Job.objects.get().status in ("pending", "scheduled")
    advance(1)
    drain()
    assert Job.objects.get().status == "failed"  # its second attempt; nothing is left running


@pytest.mark.parametrize("how", ["crash", "give-back", "failure"])
def test_a15_a_running_job_can_always_go_back_to_waiting_with_its_key(how):
    tasks.fail.using(dedupe_key="k").enqueue()
    match how:
        case "crash":
            claim()
            Job.objects.update(locked_until=DatabaseNow(-timedelta(seconds=1)))
            maintenance.recover(connection)
        case "give-back":
            claim()
            Job.objects.update(locked_until=DatabaseNow(-timedelta(seconds=1)), started_at=None)
            maintenance.recover(connection)
        case "failure":
            tick()
    again = tasks.fail.using(dedupe_key="k").enqueue()

    job = Job.objects.get()
    assert str(job.pk) == again.id
    assert job.status in ("pending", "scheduled")


def test_a15_the_key_is_free_again_once_its_job_has_ended():
    first = tasks.noop.using(dedupe_key="k").enqueue()
    drain()
    second = tasks.noop.using(dedupe_key="k").enqueue()

    assert second.id != first.id
    assert drain() == TickResult(claimed=1, succeeded=1)


def test_a15_a_batch_of_100_due_jobs_two_of_them_with_one_key_is_promoted_whole():
    calls = [tasks.noop.using(delay=10).bind() for _ in range(98)]
    calls += [tasks.noop.using(delay=10, dedupe_key="k").bind()] * 2
    results = enqueue_many(calls)
    assert Job.objects.filter(status="scheduled").count() == 99
    assert results[98].id == results[99].id
    advance(11)

    assert maintenance.promote(connection) == 99
    assert drain() == TickResult(claimed=99, succeeded=99)


def test_a15_an_operator_s_retry_that_collides_changes_neither_job():
    old = tasks.noop.using(dedupe_key="k").enqueue()
    drain()
    new = tasks.noop.using(dedupe_key="k").enqueue()
    claim()
    before = Job.objects.filter(pk=old.id).values().get()

    with pytest.raises(DedupeConflict, match=new.id):
        retry(old.id)
    assert Job.objects.filter(pk=old.id).values().get() == before
    assert Job.objects.get(pk=new.id).status == "running"


def test_the_same_name_may_hold_other_keys_and_other_names_the_same_key():
    ids = {
        tasks.noop.using(dedupe_key="k").enqueue().id,
        tasks.noop.using(dedupe_key="K").enqueue().id,
        tasks.noop.using(dedupe_key="k ").enqueue().id,
        tasks.echo.using(dedupe_key="k").enqueue().id,
    }

    assert len(ids) == 4


class _Unused(Enum):
    """Kept out of the registry of jobs: an enumeration that no annotation names."""

    A = "a"


def test_a13_an_enumeration_that_no_annotation_names_is_refused_in_every_mode():
    (refusal,) = {enqueued(tasks.echo, mode, _Unused.A) for mode in MODES}

    assert "'value'" in refusal
