"""What any worker does for all."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from bunderstack_django import job
from bunderstack_django.jobs import maintenance
from bunderstack_django.jobs.states import TERMINAL, Status
from bunderstack_django.jobs.store import workers
from bunderstack_django.models import Job, WorkerProcess
from bunderstack_django.runtime.clock import DatabaseNow
from bunderstack_django.testing import advance

pytestmark = pytest.mark.django_db


@job(retention=timedelta(hours=1))
def soon_forgotten() -> None: ...


@job(retention={"succeeded": timedelta(days=30)})
def kept_if_succeeded() -> None: ...


def ended(name: str, status: str, ago: timedelta) -> Job:
    return Job.objects.create(name=name, status=status, finished_at=DatabaseNow(-ago))


def left() -> set[tuple[str, str]]:
    return {(job.name.rpartition(".")[2], job.status) for job in Job.objects.all()}


def test_ended_jobs_are_deleted_once_their_retention_is_over():
    for status in TERMINAL:
        ended("old", status.value, timedelta(days=15))
        ended("new", status.value, timedelta(hours=23))
        ended("days", status.value, timedelta(days=2))

    assert maintenance.prune(connection) == 5
    assert left() == {("new", status.value) for status in TERMINAL} | {("days", "failed")}


def test_a_job_may_have_a_retention_of_its_own():
    for name in (soon_forgotten.job_name, kept_if_succeeded.job_name):
        for status in TERMINAL:
            ended(name, status.value, timedelta(days=2))
    maintenance.prune(connection)

    assert left() == {("kept_if_succeeded", "succeeded"), ("kept_if_succeeded", "failed")}


def test_the_retention_of_the_settings_counts_for_the_others(settings):
    settings.BUNDERSTACK = {"RETENTION": {"succeeded": 60}}

    assert maintenance.retention_of("any", Status.SUCCEEDED) == timedelta(seconds=60)
    assert maintenance.retention_of("any", Status.FAILED) == timedelta(days=14)


def test_what_has_not_ended_is_never_deleted():
    Job.objects.create(name="waiting", status="pending")
    Job.objects.create(name="running", status="running")
    advance(timedelta(days=3650))

    assert maintenance.prune(connection) == 0


def test_more_than_a_batch_is_deleted(monkeypatch):
    monkeypatch.setattr(maintenance, "PRUNE_BATCH", 2)
    for _ in range(5):
        ended("old", "succeeded", timedelta(days=2))

    assert maintenance.prune(connection) == 5


def test_more_than_a_batch_is_promoted(monkeypatch):
    monkeypatch.setattr(maintenance, "PROMOTE_BATCH", 2)
    for _ in range(5):
        soon_forgotten.using(delay=10).enqueue()
    advance(11)

    assert maintenance.promote(connection) == 5


def test_a_chore_has_one_turn_per_interval_over_all_workers():
    minute = timedelta(minutes=1)

    assert [workers.take_turn("chore", minute, "default") for _ in range(3)] == [True, False, False]
    advance(61)
    assert [workers.take_turn("chore", minute, "default") for _ in range(2)] == [True, False]


def test_workers_long_silent_are_forgotten():
    for name in ("dead", "alive"):
        workers.register(name, "default", host="h", pid=1, identity="1", queues=[], threads=1)
    WorkerProcess.objects.filter(pk="dead").update(heartbeat_at=DatabaseNow(-timedelta(hours=1)))

    assert workers.forget_dead(timedelta(minutes=5), "default") == 1
    assert [worker.pk for worker in WorkerProcess.objects.all()] == ["alive"]
