"""``@job``: options, names, registry, pickling, ``using``."""

from __future__ import annotations

import copy
import pickle
from datetime import datetime, timedelta

import pytest
from django import VERSION
from django.test import override_settings

from bunderstack_django import Backoff, job
from bunderstack_django.compat import ImmediateBackend as DjangoImmediateBackend
from bunderstack_django.compat import InvalidTask, Task, task_backends
from bunderstack_django.exceptions import DuplicateJob, InvalidOption, UnknownJob
from bunderstack_django.jobs.backoff import wait_after
from bunderstack_django.jobs.declare import JobTask, Registry, _warn_of_foreign_class, build_task, registry
from tests.testapp import tasks
from tests.testapp.plain import plain_task
from tests.testapp.plain import task as django_task

IMMEDIATE = {"default": {"BACKEND": "bunderstack_django.testing.backends.ImmediateBackend", "QUEUES": []}}


def handler(a: int = 0) -> None: ...


def declare(**options):  # type: ignore[no-untyped-def]
    return JobTask(
        func=handler, run_after=None, priority=0, backend="default", queue_name="default", **options
    )


def test_a_job_is_a_task_of_django():
    assert isinstance(tasks.noop, Task)
    assert tasks.noop.name == "noop"
    assert tasks.noop.job_name == "tests.testapp.tasks.noop"
    assert tasks.add.call(1, 2) == 3


def test_defaults_of_job_come_from_the_settings():
    assert (tasks.noop.retries, tasks.noop.timeout) == (3, timedelta(seconds=60))


def test_a_plain_task_has_no_retries_and_no_timeout():
    assert isinstance(plain_task, JobTask)
    assert (plain_task.retries, plain_task.timeout) == (0, None)


def test_a_job_is_found_by_its_name_and_its_aliases():
    assert registry.get("custom.name") is tasks.named
    assert registry.get("old.name") is tasks.named


def test_an_unknown_name_is_refused_with_a_near_match():
    with pytest.raises(UnknownJob, match=r"Did you mean 'custom\.name'"):
        registry.get("custom.nam")


def test_looking_up_a_path_that_is_no_task_finds_nothing():
    assert registry.find("os.getpid") is None
    assert registry.find("tests.testapp.tasks.Colour") is None
    assert registry.find("no.such.module") is None


def test_two_functions_of_one_name_are_refused_naming_both():
    own = Registry()
    own.add(tasks.named)
    other = declare(job_name="old.name")

    with pytest.raises(
        DuplicateJob, match=r"tests\.testapp\.tasks\.named and tests\.jobs\.test_declare\.handler"
    ):
        own.add(other)


def test_tasks_are_hashable_and_pickle_by_path():
    changed = tasks.noop.using(dedupe_key="k", priority=3)

    assert pickle.loads(pickle.dumps(tasks.noop)) == tasks.noop
    assert pickle.loads(pickle.dumps(changed)) == changed
    assert copy.deepcopy(changed) == changed
    assert len({tasks.noop, changed, tasks.noop}) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"job_name": "x" * 201}, "200 characters"),
        ({"job_name": "a\0b"}, "cannot be stored"),
        ({"aliases": ("",)}, "alias must be a text"),
        ({"retries": -1}, "retries must be a whole number"),
        ({"retries": True}, "retries must be a whole number"),
        ({"timeout": timedelta(0)}, "timeout must be longer"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"concurrency_key": "{missing}"}, "names 'missing'; the parameters are a"),
        ({"concurrency_key": "{a"}, "is no format string"),
        ({"concurrency_key": 5}, "format string or a callable"),
        ({"rate_limit": "5/x"}, "'N/s', 'N/m', 'N/h' or 'N/d'"),
        ({"rate_limit": "10001/s"}, "1 to 10,000"),
        ({"rate_limit": "0/s"}, "1 to 10,000"),
        ({"backoff": 5}, "backoff must be callable"),
        ({"on_failed": "name"}, "on_failed must be callable"),
        ({"dedupe_key": "x" * 201}, "dedupe_key may have 200"),
        ({"dedupe_key": ""}, "dedupe_key must be a text"),
    ],
)
def test_an_option_that_is_not_allowed_is_refused_by_name(options, message):
    with pytest.raises(InvalidOption, match=message):
        declare(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry_on": "ValueError"}, "exception classes"),
        ({"discard_on": [int]}, "exception classes"),
        ({"timeout": "60"}, "timedelta or seconds"),
        ({"retention": {"done": 5}}, "succeeded, failed, cancelled"),
        ({"retention": "1 day"}, "timedelta or seconds"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_by_the_decorator(options, message):
    with pytest.raises(InvalidOption, match=message):
        job(handler, **options)


def test_django_refuses_a_priority_out_of_range():
    with pytest.raises(InvalidTask, match="-100 and 100"):
        tasks.noop.using(priority=101)


def test_a_misspelt_option_of_task_is_refused_with_the_allowed_names():
    with pytest.raises(
        InvalidTask, match=r"no option 'retires'\. Did you mean 'retries'\? Allowed: aliases, back"
    ):
        build_task(func=handler, retires=5)


def test_task_takes_the_options_of_job():
    task = build_task(func=tasks.noop.func, name="tests.testapp.tasks.noop", retries=5)

    assert (task.retries, task.timeout) == (5, None)
    registry.add(tasks.noop)


def test_a_delay_and_a_run_after_exclude_each_other():
    with pytest.raises(InvalidOption, match="run_after or delay"):
        tasks.noop.using(delay=5, run_after=datetime.now().astimezone())


def test_seconds_and_timedeltas_are_taken_alike():
    assert tasks.noop.using(delay=1.5).delay == timedelta(seconds=1.5)
    with pytest.raises(InvalidOption, match="ten years"):
        tasks.noop.using(delay=10**10)


@override_settings(TASKS=IMMEDIATE)
def test_a_job_runs_on_a_foreign_backend_without_our_options():
    result = tasks.add.enqueue(1, 2)

    assert result.return_value == 3
    assert task_backends["default"].__class__.__name__ == "ImmediateBackend"


@override_settings(
    TASKS={
        "default": {
            "BACKEND": f"{DjangoImmediateBackend.__module__}.{DjangoImmediateBackend.__qualname__}",
            "QUEUES": [],
        }
    }
)
def test_a_backend_that_is_not_ours_runs_a_job_and_says_once_that_it_passes_over_its_options(caplog):
    _warn_of_foreign_class.cache_clear()
    results = [tasks.add.using(priority=number).enqueue(1, 2) for number in (1, 2)]

    assert [result.return_value for result in results] == [3, 3]
    assert caplog.text.count("runs jobs without their options") == 1


@pytest.mark.skipif(VERSION[:2] == (6, 0), reason="task() of Django 6.0 takes no further options")
def test_djangos_decorator_passes_the_options_on():
    task = django_task(retries=5, timeout=30)(retried)

    assert (task.retries, task.timeout, task.job_name) == (5, timedelta(seconds=30), retried_path)


def retried() -> None: ...


retried_path = "tests.jobs.test_declare.retried"


def test_the_wait_before_a_retry_grows_and_is_bounded():
    backoff = Backoff(jitter=0)

    assert [backoff(attempt).total_seconds() for attempt in (1, 2, 3, 11, 12, 10**6)] == [
        2,
        4,
        8,
        2048,
        3600,
        3600,
    ]


def test_the_wait_varies_by_ten_percent():
    waits = {Backoff()(3).total_seconds() for _ in range(200)}

    assert 7.2 <= min(waits) < max(waits) <= 8.8


@pytest.mark.parametrize("options", [{"base": timedelta(-1)}, {"factor": 0.5}, {"jitter": 2}])
def test_a_backoff_that_makes_no_sense_is_refused(options):
    with pytest.raises(ValueError, match="Backoff"):
        Backoff(**options)


@pytest.mark.parametrize(
    "backoff", [lambda n: timedelta(seconds=2.0**n), lambda n: 2.0**n, lambda n: float("inf")]
)
def test_a_wait_of_the_users_own_that_overflows_is_ten_years(backoff):
    assert wait_after(backoff, 60) == wait_after(backoff, 2000) == timedelta(days=3650)
    assert wait_after(lambda n: -5, 1) == timedelta(0)
