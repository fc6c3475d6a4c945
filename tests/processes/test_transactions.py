"""A05: an enqueue is part of the transaction around it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from bunderstack_django.models import Job

from . import tasks
from .harness import all_ended, stays, until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


class Rollback(Exception):
    pass


def view(request: HttpRequest) -> HttpResponse:
    tasks.find_group.enqueue(Group.objects.create(name="from the view").pk)
    raise Rollback


urlpatterns = [path("enqueue/", view)]


@pytest.fixture
def polling(workers):
    return workers.start("--poll-interval", "0.05").is_up()


def test_a05a_a_job_starts_after_the_commit_of_its_enqueue_and_finds_its_object(polling, evidence):
    with transaction.atomic():
        group = Group.objects.create(name="new")
        tasks.find_group.enqueue(group.pk)
        stays(lambda: evidence.starts() == 0, 1)
    until(all_ended)

    assert [line[:2] for line in evidence.lines("start")] == [[str(group.pk), "found"]]


def test_a05b_a_rolled_back_enqueue_leaves_no_job(polling, evidence):
    with pytest.raises(Rollback), transaction.atomic():
        tasks.find_group.enqueue(Group.objects.create(name="gone").pk)
        raise Rollback
    stays(lambda: evidence.starts() == 0, 0.5)

    assert not Job.objects.exists()


def test_a05c_a_rolled_back_savepoint_takes_its_enqueue_with_it(polling, evidence):
    with transaction.atomic():
        kept = Group.objects.create(name="kept")
        with pytest.raises(Rollback), transaction.atomic():
            tasks.find_group.enqueue(Group.objects.create(name="gone").pk)
            raise Rollback
    stays(lambda: evidence.starts() == 0, 0.5)

    assert Group.objects.get() == kept
    assert not Job.objects.exists()


def test_a05d_a_view_that_raises_under_atomic_requests_enqueues_nothing(
    polling, evidence, settings, monkeypatch
):
    settings.ROOT_URLCONF = __name__
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    response = Client(raise_request_exception=False).get("/enqueue/")
    stays(lambda: evidence.starts() == 0, 0.5)

    assert response.status_code == 500
    assert not Job.objects.exists()
    assert not Group.objects.exists()
