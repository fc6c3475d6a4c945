"""The contract of django.tasks, on our backend."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from bunderstack_django import enqueue, enqueue_many
from bunderstack_django.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from bunderstack_django.exceptions import InvalidPayload, UnknownJob
from bunderstack_django.models import Job
from bunderstack_django.testing import assert_enqueued, drain, tick
from tests.testapp import tasks
from tests.testapp.plain import plain_task, plain_with_context

pytestmark = pytest.mark.django_db

LIMITED = {
    "default": {"BACKEND": "bunderstack_django.backend.DatabaseBackend", "QUEUES": ["default", "mail"]},
}


@pytest.fixture
def signals():
    seen: list[tuple[str, TaskResultStatus, type]] = []

    def receiver(name):
        def receive(sender, task_result, **kwargs):
            seen.append((name, task_result.status, sender))

        return receive

    receivers = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    kept = {name: receiver(name) for name in receivers}
    for name, signal in receivers.items():
        signal.connect(kept[name])
    yield seen
    for name, signal in receivers.items():
        signal.disconnect(kept[name])


def test_every_capability_of_a_backend_is_there():
    backend = task_backends["default"]

    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


def test_a_result_can_be_read_by_its_id():
    result = tasks.add.enqueue(1, 2)
    drain()

    found = tasks.add.get_result(result.id)
    assert (found.return_value, found.args, found.attempts) == (3, [1, 2], 1)
    assert found.task == tasks.add


def test_a_result_that_is_not_there_does_not_exist():
    for result_id in ("nonsense", "00000000-0000-0000-0000-000000000000"):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(result_id)


def test_a_result_of_a_job_no_longer_declared_does_not_exist():
    result = tasks.noop.enqueue()
    Job.objects.update(name="old.task")

    with pytest.raises(TaskResultDoesNotExist, match=r"old\.task"):
        tasks.noop.get_result(result.id)


def test_a_row_under_an_earlier_name_still_runs():
    result = tasks.named.enqueue()
    Job.objects.update(name="old.name")
    drain()

    assert tasks.named.get_result(result.id).return_value == "named"


def test_the_result_keeps_the_exceptions():
    result = tasks.discard.enqueue()
    drain()
    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class_path == "bunderstack_django.exceptions.Discard"
    assert "not worth it" in result.errors[0].traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_a_plain_task_runs_unchanged():
    result = plain_task.enqueue(a=5)
    with_context = plain_with_context.enqueue()
    drain()

    assert plain_task.get_result(result.id).return_value == 5
    assert plain_with_context.get_result(with_context.id).return_value == 1


def test_the_signals_tell_of_every_step(signals):
    tasks.add.enqueue(1, 2)
    tasks.discard.enqueue()
    drain()

    backend = type(task_backends["default"])
    assert [step for step in signals if step[0] != "started"] == [
        ("enqueued", TaskResultStatus.READY, backend),
        ("enqueued", TaskResultStatus.READY, backend),
        ("finished", TaskResultStatus.SUCCESSFUL, backend),
        ("finished", TaskResultStatus.FAILED, backend),
    ]
    assert signals.count(("started", TaskResultStatus.RUNNING, backend)) == 2


def test_a_receiver_that_raises_does_not_decide_over_the_job(caplog):
    def receive(sender, task_result, **kwargs):
        raise RuntimeError("receiver")

    task_finished.connect(receive)
    try:
        result = tasks.noop.enqueue()
        drain()
    finally:
        task_finished.disconnect(receive)

    assert Job.objects.get(pk=result.id).status == "succeeded"
    assert "A receiver of a task signal raised" in caplog.text


def test_an_async_handler_runs():
    result = tasks.add_async.enqueue(2, 3)
    drain()

    assert tasks.add_async.get_result(result.id).return_value == 5


@pytest.mark.django_db(transaction=True)
def test_a_job_can_be_enqueued_from_async_code():
    result = async_to_sync(tasks.add.aenqueue)(1, 2)

    assert Job.objects.filter(pk=result.id).exists()


def test_the_context_tells_of_the_job_and_keeps_progress_and_log():
    result = tasks.with_context.enqueue(lines=3)
    drain()

    job = Job.objects.get(pk=result.id)
    assert job.result == {"job_id": result.id, "attempt": 1, "cancelled": False}
    assert job.progress == {"fraction": 0.5, "message": "half way"}
    assert [line["message"] for line in job.log] == ["line 0", "line 1", "line 2"]


def test_only_the_newest_lines_of_a_log_are_kept():
    result = tasks.with_context.enqueue(lines=500)
    drain()

    assert [line["message"] for line in Job.objects.get(pk=result.id).log] == [
        f"line {n}" for n in range(300, 500)
    ]


def test_enqueue_is_one_insert_in_the_callers_transaction():
    with CaptureQueriesContext(
        connection,
    ) as queries:
        tasks.add.enqueue(1, 2)

    assert [query["sql"].split()[0] for query in queries.captured_queries] == ["INSERT"]


def test_a_rolled_back_transaction_takes_its_jobs_along():
    with pytest.raises(RuntimeError), transaction.atomic():
        tasks.noop.enqueue()
        raise RuntimeError
    with transaction.atomic():
        tasks.add.enqueue(1, 2)

    assert [job.name for job in Job.objects.all()] == ["tests.testapp.tasks.add"]


def test_a_job_can_be_enqueued_by_name():
    result = enqueue("custom.name")

    job = Job.objects.get(pk=result.id)
    assert (job.name, job.queue_name, job.priority) == ("custom.name", "mail", 7)
    with pytest.raises(UnknownJob):
        enqueue("custom.other")


def test_many_jobs_are_enqueued_by_one_statement():
    with CaptureQueriesContext(connection) as queries:
        results = enqueue_many([tasks.add.bind(number, 1) for number in range(1000)])

    assert len([query for query in queries.captured_queries if "INSERT" in query["sql"]]) == 1
    assert [result.args[0] for result in results] == list(range(1000))
    assert Job.objects.count() == 1000


def test_many_jobs_run_in_the_order_of_their_enqueue(calls):
    enqueue_many([tasks.echo.bind(number) for number in range(50)])
    tick()

    assert calls == list(range(50))


def test_enqueue_many_takes_plain_tasks_and_gives_a_duplicate_its_holder():
    keyed = tasks.noop.using(dedupe_key="k")
    results = enqueue_many([keyed.bind(), (plain_task, [1], {}), (plain_task, (), {"a": 2}), keyed.bind()])

    assert results[0].id == results[3].id
    assert [result.args for result in results[1:3]] == [[1], []]
    assert Job.objects.count() == 3


def test_one_bad_call_of_many_leaves_no_row():
    with pytest.raises(InvalidPayload):
        enqueue_many([tasks.add.bind(1, 2), tasks.add.bind(1, "2")])

    assert not Job.objects.exists()


def test_enqueue_many_of_nothing_is_nothing():
    assert enqueue_many([]) == []


def test_a_dedupe_key_gives_the_job_that_has_it_until_that_has_ended():
    first = tasks.add.using(dedupe_key="k").enqueue(1, 2)
    second = tasks.add.using(dedupe_key="k").enqueue(3, 4)
    other = tasks.noop.using(dedupe_key="k").enqueue()
    assert (second.id, second.args) == (first.id, [1, 2])
    assert other.id != first.id
    drain()

    assert tasks.add.using(dedupe_key="k").enqueue(3, 4).id != first.id


@override_settings(TASKS=LIMITED)
def test_a_queue_outside_the_list_is_refused_with_the_allowed_ones():
    with pytest.raises(InvalidTask, match="allows default, mail. Did you mean 'mail'"):
        tasks.noop.using(queue_name="mial")


def test_a_naive_run_after_is_refused_with_use_tz(settings):
    settings.USE_TZ = True
    with pytest.raises(InvalidTask, match="aware"):
        tasks.noop.using(run_after=datetime(2030, 1, 1))


def test_a_naive_run_after_is_read_in_time_zone_without_use_tz(settings):
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Berlin"
    timezone.get_default_timezone.cache_clear()
    result = tasks.noop.using(run_after=datetime(2030, 1, 1, 12)).enqueue()
    timezone.get_default_timezone.cache_clear()

    assert Job.objects.get(pk=result.id).run_after.isoformat() == "2030-01-01T11:00:00+00:00"


def test_jobs_run_by_priority_then_by_due_time(calls):
    tasks.echo.enqueue("third")
    tasks.echo.using(priority=-1).enqueue("last")
    tasks.echo.using(priority=5).enqueue("first")
    tasks.echo.using(run_after=timezone.now() - timedelta(hours=1)).enqueue("second")
    tick()

    assert calls == ["first", "second", "third", "last"]


def test_assert_enqueued_finds_a_call_or_says_what_there_is():
    tasks.add.enqueue(1, b=2)

    assert assert_enqueued(tasks.add)
    assert assert_enqueued(tasks.add, 1, b=2, count=1)
    assert_enqueued(tasks.noop, count=0)
    with pytest.raises(AssertionError, match=r"'b': 3.*was not enqueued.*\n.*'b': 2"):
        assert_enqueued(tasks.add, 1, b=3)
