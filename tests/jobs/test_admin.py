"""The admin pages of jobs and worker processes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from bunderstack_django import enqueue_many
from bunderstack_django.jobs.admin import display, listing
from bunderstack_django.jobs.models import Job, WorkerProcess
from bunderstack_django.jobs.store import records
from bunderstack_django.testing import tick
from tests.testapp import tasks

pytestmark = pytest.mark.django_db

LIST = "/admin/bunderstack_django/job/"
WORKERS = "/admin/bunderstack_django/workerprocess/"
TABLE = Job._meta.db_table


@pytest.fixture
def admin_user(db: None) -> User:
    return User.objects.create_superuser("admin")  # without a password, whose hash would take its time


@pytest.fixture
def viewer(client: Client) -> Client:
    return _staff(client, "view_job", "view_workerprocess")


@pytest.fixture
def operator(client: Client) -> Client:
    return _staff(client, "change_job", "change_workerprocess")


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin.site._registry[Job], "list_per_page", 3)


# The list.


def test_the_list_shows_jobs_in_every_state(admin_client):
    tasks.add.enqueue(1, 2)
    tasks.discard.enqueue()
    tick()
    tasks.add.enqueue(3, 4)
    tasks.add.using(delay=3600).enqueue(3, 4)

    page = _text(admin_client.get(LIST))

    for badge in ("succeeded", "failed", "pending", "scheduled"):
        assert f'<span class="bunderstack-badge bunderstack-{badge}">' in page
    assert "Discarded" in page
    assert "1 of 3" in page
    assert re.search(r'title="\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"', page)
    assert "in 59 min" in page or "in 1 h" in page


def test_no_page_and_no_action_counts_the_jobs(admin_client, small_pages):
    enqueue_many([tasks.add.bind(1, 1)] * 8)
    tick()
    key = Job.objects.values_list("pk", flat=True)[0]
    chosen = {"_selected_action": [key], "select_across": "1", "index": "0"}

    with CaptureQueriesContext(connection) as queries:
        for query in ("", "?p=2", "?status=succeeded", "?q=add", f"?q={key}", "?all="):
            assert admin_client.get(LIST + query).status_code == 200
        assert admin_client.get(f"{LIST}{key}/change/").status_code == 200
        assert admin_client.post(LIST, {**chosen, "action": "delete_selected"}).status_code == 200
        for action in ("retry_selected", "cancel_selected", "run_now_selected"):
            assert admin_client.post(LIST, {**chosen, "action": action}).status_code == 302
        admin_client.post(LIST, {**chosen, "action": "delete_selected", "post": "yes"})

    counts = [sql["sql"] for sql in queries if "COUNT(" in sql["sql"].upper() and TABLE in sql["sql"]]
    assert counts == []
    assert any(TABLE in sql["sql"] for sql in queries)


def test_the_list_does_not_read_the_bulky_columns(admin_client):
    tasks.add.enqueue(1, 1)

    with CaptureQueriesContext(connection) as queries:
        admin_client.get(LIST)

    assert not [sql["sql"] for sql in queries if f'{TABLE}"."payload' in sql["sql"].replace("`", '"')]


def test_pages_lead_on_while_there_are_more_jobs(admin_client, small_pages):
    enqueue_many([tasks.noop.bind()] * 7)

    first, second, last = (_text(admin_client.get(f"{LIST}?p={number}")) for number in (1, 2, 3))

    assert "more than 3 jobs" in first
    assert 'href="?p=2"' in first
    assert "more than 6 jobs" in second
    assert 'href="?p=3"' in second
    assert "more than" not in last
    assert "7 jobs" in last


@pytest.mark.parametrize("page", ["9", "-1", "0", "99999999999999999999", "x"])
def test_a_page_that_is_not_there_shows_the_first(admin_client, small_pages, page):
    enqueue_many([tasks.noop.bind()] * 4)

    assert "more than 3 jobs" in _text(admin_client.get(f"{LIST}?p={page}"))


def test_the_newest_jobs_come_first(admin_client):
    ids = [tasks.noop.enqueue().id for _ in range(3)]

    assert _listed(admin_client) == [UUID(each) for each in reversed(ids)]


@pytest.mark.parametrize("form", ["{}", "  {}\n", "{.hex}", "{.urn}"])
def test_search_finds_a_job_by_its_id_through_the_primary_key(admin_client, form):
    tasks.noop.enqueue()
    wanted = UUID(tasks.noop.enqueue().id)

    with CaptureQueriesContext(connection) as queries:
        assert _listed(admin_client, q=form.format(wanted)) == [wanted]

    assert not [sql for sql in queries if TABLE in sql["sql"] and "LIKE" in sql["sql"]]


def test_search_finds_jobs_by_part_of_their_name(admin_client):
    tasks.noop.enqueue()
    wanted = tasks.add.enqueue(1, 1)

    assert _listed(admin_client, q=" tasks.add") == [UUID(wanted.id)]
    assert _listed(admin_client, q="nothing has this name") == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "failed"}, ["discard"]),
        ({"status": "scheduled"}, ["later"]),
        ({"status": "nonsense"}, []),
        ({"failure_reason": "discarded"}, ["discard"]),
        ({"failure_reason": "timeout"}, []),
        ({"queue": "mail"}, ["named"]),
        ({"name": "custom.name"}, ["named"]),
        ({"enqueued": "hour"}, ["later", "discard", "named"]),
        ({"enqueued": "nonsense"}, ["later", "discard", "named"]),
        ({"status": "succeeded", "queue": "mail"}, ["named"]),
    ],
)
def test_filters_narrow_the_list(admin_client, query, expected):
    named, discard = tasks.named.enqueue(), tasks.discard.enqueue()
    tick()
    later = tasks.noop.using(delay=60).enqueue()
    ids = {UUID(named.id): "named", UUID(discard.id): "discard", UUID(later.id): "later"}

    assert [ids[each] for each in _listed(admin_client, **query)] == expected


def test_the_enqueued_filter_leaves_out_older_jobs(admin_client):
    old = tasks.noop.enqueue()
    Job.objects.filter(pk=old.id).update(enqueued_at=datetime.now(UTC) - timedelta(minutes=61))

    assert _listed(admin_client, enqueued="hour") == []
    assert _listed(admin_client, enqueued="day") == [UUID(old.id)]


def test_filtering_by_a_name_finds_rows_from_before_it_was_renamed(admin_client):
    job = tasks.named.enqueue()
    Job.objects.update(name="old.name")

    assert _listed(admin_client, name="custom.name") == [UUID(job.id)]


def test_queues_to_filter_by_come_from_declarations_and_from_pending_jobs(admin_client):
    tasks.noop.using(queue_name="by-hand").enqueue()

    with CaptureQueriesContext(connection) as queries:
        page = _text(admin_client.get(LIST))

    assert 'href="?queue=by-hand"' in page
    assert 'href="?queue=mail"' in page
    assert not [sql for sql in queries if "DISTINCT" in sql["sql"]]


def test_a_value_that_is_filtered_by_is_shown_as_chosen(admin_client):
    assert "retired-queue" in _text(admin_client.get(f"{LIST}?queue=retired-queue"))


# The page of one job.


def test_a_failed_job_shows_every_attempt_with_its_traceback(admin_client):
    job = tasks.fail.enqueue("<b>bold</b>")
    tick()
    Job.objects.update(status="pending")
    tick()

    page = _text(_page(admin_client, job.id))

    assert "Attempt 1" in page
    assert "Attempt 2" in page
    assert page.count("tests.testapp.tasks.Boom") >= 2
    assert page.count("<summary>Traceback</summary>") == 2
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold</b>" not in page
    assert "on testing" in page


def test_a_job_shows_arguments_result_progress_log_and_keys(admin_client):
    job = tasks.with_context.using(dedupe_key="receipt:42").enqueue(lines=2)
    tick()

    page = _text(_page(admin_client, job.id))

    assert "&quot;lines&quot;: 2" in page
    assert "&quot;attempt&quot;: 1" in page
    assert '<progress max="1" value="0.5">' in page
    assert "half way" in page
    assert "line 0" in page
    assert "receipt:42" in page
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]{3,4}<", page)


def test_a_value_too_long_for_a_page_is_cut(admin_client):
    job = tasks.echo.enqueue("x" * 200_000)

    response = _page(admin_client, job.id)

    assert "characters more" in _text(response)
    assert len(response.content) < 100_000


@pytest.mark.parametrize(
    "text",
    [
        "{not json",
        "5",
        '"text"',
        "null",
        "[]",
        '[1, null, [], "x", {"at": 5, "message": {}, "attempt": [1], "traceback": 7}]',
        '{"fraction": "half", "message": 3}',
        '{"fraction": NaN}',
        '{"fraction": 1e400}',
        '["<script>alert(1)</script>", "\\ud800", "\\u0000"]',
        '{"args": "x", "kwargs": 1}',
    ],
)
def test_a_row_of_garbage_breaks_neither_list_nor_page(admin_client, text):
    job = tasks.noop.enqueue()
    columns = ("payload", "errors", "result", "progress", "log", "worker_ids")
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {TABLE} SET {', '.join(f'{each} = %s' for each in columns)}, "
            "status = 'succeeded', worker = 'x'",
            [text] * len(columns),
        )

    assert _listed(admin_client) == [UUID(job.id)]
    page = _page(admin_client, job.id)
    assert page.status_code == 200
    assert "<script>alert" not in _text(page)


def test_an_unknown_status_breaks_neither_list_nor_page(admin_client):
    job = tasks.noop.enqueue()
    Job.objects.update(status='"><x', failure_reason="odd")

    assert "<x" not in _text(admin_client.get(LIST))
    assert _page(admin_client, job.id).status_code == 200
    assert "left alone: its status is not a known one" in _act(admin_client, "retry_selected", job.id)


def test_a_job_links_to_its_worker_while_the_worker_is_known(admin_client):
    worker = _worker("host:1:aa")
    job = _running(worker.pk)
    url = reverse("admin:bunderstack_django_workerprocess_change", args=["host_3A1_3Aaa"])

    assert f'<a href="{url}">host:1:aa</a>' in _text(_page(admin_client, job.pk))
    worker.delete()
    page = _text(_page(admin_client, job.pk))
    assert url not in page
    assert "host:1:aa" in page


def test_the_page_of_a_job_that_is_gone_says_so(admin_client):
    response = admin_client.get(f"{LIST}{UUID(int=1)}/change/", follow=True)

    assert "Perhaps it was deleted?" in _text(response)


def test_a_job_can_be_neither_added_nor_edited(admin_client):
    job = tasks.noop.enqueue()

    assert admin_client.get(f"{LIST}add/").status_code == 403
    assert admin_client.post(f"{LIST}{job.id}/change/", {"name": "x"}).status_code == 403
    assert 'name="_save"' not in _text(_page(admin_client, job.id))


# Actions.


def test_retrying_tells_how_many_and_why_others_were_left_alone(admin_client):
    done = [tasks.noop.enqueue().id for _ in range(2)]
    tick()
    running = _running().pk
    ended, holder = _pair_with_one_key()

    text = _act(admin_client, "retry_selected", *done, running, ended)

    assert "2 retried; " in text
    assert "1 left alone: it is still running" in text
    assert f"1 left alone: job {holder} holds its dedupe key" in text
    assert Job.objects.get(pk=done[0]).status == "pending"


def test_several_left_alone_for_one_reason_are_told_together(admin_client):
    ids = [tasks.noop.enqueue().id for _ in range(3)]

    assert "3 left alone: they are waiting for a worker" in _act(admin_client, "retry_selected", *ids)


def test_cancelling_ends_waiting_jobs_and_asks_running_ones(admin_client):
    waiting, ended = tasks.noop.using(delay=60).enqueue().id, tasks.noop.enqueue().id
    tick()
    running = _running().pk

    text = _act(admin_client, "cancel_selected", waiting, running, ended)

    assert "1 cancelled" in text
    assert "1 asked to stop" in text
    assert "1 left alone: it has succeeded" in text
    assert Job.objects.get(pk=waiting).status == "cancelled"
    assert Job.objects.get(pk=running).cancel_requested_at is not None


def test_scheduled_jobs_can_be_run_now(admin_client):
    later, pending = tasks.noop.using(delay=3600).enqueue().id, tasks.noop.enqueue().id

    text = _act(admin_client, "run_now_selected", later, pending)

    assert "1 due now; 1 left alone: it is waiting for a worker" in text
    assert tick().succeeded == 2


def test_deleting_is_confirmed_and_takes_only_ended_jobs(admin_client):
    ended, running = tasks.noop.enqueue().id, _running().pk
    tick()
    post = {"action": "delete_selected", "_selected_action": [ended, running]}

    confirmation = _text(admin_client.post(LIST, post))
    assert "1 left alone: it is still running" in confirmation
    assert f'value="{ended}"' in confirmation
    assert f'value="{running}"' not in confirmation
    assert Job.objects.count() == 2

    text = _text(admin_client.post(LIST, {**post, "post": "yes"}, follow=True))
    assert "1 deleted; 1 left alone: it is still running" in text
    assert list(Job.objects.values_list("pk", flat=True)) == [running]


def test_there_is_nothing_to_confirm_when_no_selected_job_has_ended(admin_client):
    job = tasks.noop.enqueue()

    assert "1 left alone: it is waiting for a worker" in _act(admin_client, "delete_selected", job.id)
    assert Job.objects.count() == 1


def test_an_action_on_all_that_match_keeps_to_the_filter(admin_client, small_pages):
    enqueue_many([tasks.noop.bind()] * 5)
    tick()
    other = tasks.noop.enqueue()
    first = Job.objects.exclude(pk=other.id)[0].pk
    post = {"action": "retry_selected", "select_across": "1", "_selected_action": [first], "index": "0"}

    text = _text(admin_client.post(f"{LIST}?status=succeeded", post, follow=True))

    assert "5 retried" in text
    assert "left alone" not in text


def test_an_action_on_all_that_match_is_bounded(admin_client, monkeypatch):
    monkeypatch.setattr("bunderstack_django.jobs.admin.base.MOST_ROWS", 2)
    ids = [tasks.noop.enqueue().id for _ in range(3)]
    post = {"action": "cancel_selected", "select_across": "1", "_selected_action": ids[:1], "index": "0"}

    text = _text(admin_client.post(LIST, post, follow=True))

    assert "these are the first 2" in text
    assert Job.objects.filter(status="cancelled").count() == 2


def test_an_action_is_noted_in_the_history_of_the_jobs_it_changed(admin_client):
    done, waiting = tasks.noop.enqueue().id, tasks.noop.using(delay=60).enqueue().id
    tick()

    _act(admin_client, "retry_selected", done, waiting)

    assert [(each.object_id, each.change_message) for each in LogEntry.objects.all()] == [(done, "Retry")]


def test_a_job_of_an_undeclared_name_can_be_retried(admin_client):
    job = Job.objects.create(name="gone.job", status="failed", finished_at=datetime.now(UTC))

    assert "1 retried" in _act(admin_client, "retry_selected", job.pk)


def test_a_selected_job_that_is_pruned_meanwhile_is_left_alone(admin_client, monkeypatch):
    job = tasks.noop.enqueue()
    tick()
    monkeypatch.setattr(records, "retry", _after(lambda: Job.objects.all().delete(), records.retry))

    assert "1 left alone: it is gone" in _act(admin_client, "retry_selected", job.id)


@pytest.mark.parametrize("action", ["retry_selected", "delete_selected"])
def test_an_action_on_jobs_that_are_gone_says_so(admin_client, action):
    assert "what was selected is gone" in _act(admin_client, action, UUID(int=1))


# The buttons of a job's page.


def test_a_page_offers_what_the_job_allows(admin_client):
    ended, later = tasks.noop.enqueue().id, tasks.noop.using(delay=60).enqueue().id
    tick()
    asked = _running(cancel_requested_at=datetime.now(UTC)).pk

    assert _offered(admin_client, ended) == ["retry"]
    assert _offered(admin_client, later) == ["run_now", "cancel"]
    assert _offered(admin_client, _running().pk) == ["cancel"]
    assert _offered(admin_client, asked) == []


@pytest.mark.parametrize(
    ("act", "text", "status"),
    [("run_now", "The job is due now.", "pending"), ("cancel", "The job is cancelled.", "cancelled")],
)
def test_a_button_acts_on_a_scheduled_job(admin_client, act, text, status):
    job = tasks.noop.using(delay=60).enqueue()

    assert text in _press(admin_client, job.id, act)
    assert Job.objects.get().status == status


def test_a_button_retries_an_ended_job(admin_client):
    job = tasks.noop.enqueue()
    tick()

    assert "The job will run again." in _press(admin_client, job.id, "retry")
    assert "Retry" in _text(admin_client.get(f"{LIST}{job.id}/history/"))


def test_a_button_asks_a_running_job_to_stop(admin_client):
    assert "The job was asked to stop" in _press(admin_client, _running().pk, "cancel")


def test_a_button_refuses_when_the_job_has_changed_meanwhile(admin_client):
    job = tasks.noop.enqueue()
    tick()
    ended, holder = _pair_with_one_key()

    assert "Nothing was done: it has succeeded." in _press(admin_client, job.id, "cancel")
    assert "Nothing was done: it has succeeded." in _press(admin_client, job.id, "run_now")
    assert f"Nothing was done: job {holder} holds its dedupe key." in _press(admin_client, ended, "retry")


def test_a_button_keeps_the_filters_of_the_list(admin_client):
    job = tasks.noop.using(delay=60).enqueue()
    page = _page(admin_client, job.id, "?_changelist_filters=status%3Dscheduled")
    action = re.search(r'action="([^"]*/act/[^"]*)"', _text(page))

    response = admin_client.post(action[1].replace("&amp;", "&"), {"act": "cancel"})

    assert response.url.endswith("?_changelist_filters=status%3Dscheduled")


def test_a_button_of_a_job_that_is_gone_says_so(admin_client):
    assert "Perhaps it was deleted?" in _press(admin_client, UUID(int=1), "retry")


def test_an_act_needs_a_post_with_a_token_and_a_name(admin_user):
    job = tasks.noop.enqueue()
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    lenient = Client()
    lenient.force_login(admin_user)

    assert client.post(f"{LIST}{job.id}/act/", {"act": "cancel"}).status_code == 403
    assert lenient.get(f"{LIST}{job.id}/act/", {"act": "cancel"}).status_code == 302
    assert lenient.post(f"{LIST}{job.id}/act/", {"act": "nonsense"}).status_code == 400
    assert Job.objects.get().status == "pending"


def test_an_ended_job_can_be_deleted_from_its_page(admin_client):
    job = tasks.noop.enqueue()
    tick()

    assert "deletelink" in _text(_page(admin_client, job.id))
    admin_client.post(f"{LIST}{job.id}/delete/", {"post": "yes"})
    assert not Job.objects.exists()


def test_an_unended_job_cannot_be_deleted_from_its_page(admin_client):
    job = tasks.noop.enqueue()

    assert "deletelink" not in _text(_page(admin_client, job.id))
    assert admin_client.post(f"{LIST}{job.id}/delete/", {"post": "yes"}).status_code == 403
    assert Job.objects.exists()


def test_a_job_retried_while_its_deletion_is_confirmed_stays(admin_client, monkeypatch):
    job = tasks.noop.enqueue()
    tick()
    delete_ended = records.delete_ended
    revive = lambda: Job.objects.update(status="pending", finished_at=None)  # noqa: E731
    monkeypatch.setattr(records, "delete_ended", _after(revive, delete_ended))

    text = _text(admin_client.post(f"{LIST}{job.id}/delete/", {"post": "yes"}, follow=True))

    assert "Nothing was done: it is waiting for a worker." in text
    assert not LogEntry.objects.exists()
    assert Job.objects.exists()


# Permissions.


def test_who_may_only_view_sees_pages_without_actions(viewer):
    job = tasks.noop.enqueue()
    tick()

    page = _text(viewer.get(LIST))
    assert "tests.testapp.tasks.noop" in page
    assert 'name="action"' not in page
    assert _offered(viewer, job.id) == []
    assert "deletelink" not in _text(_page(viewer, job.id))


def test_who_may_only_view_cannot_act_by_a_made_up_request(viewer):
    job = tasks.noop.enqueue()
    tick()

    for action in ("retry_selected", "delete_selected"):
        viewer.post(LIST, {"action": action, "_selected_action": [job.id], "post": "yes", "index": "0"})
    assert viewer.post(f"{LIST}{job.id}/act/", {"act": "retry"}).status_code == 403
    assert viewer.post(f"{LIST}{job.id}/delete/", {"post": "yes"}).status_code == 403
    assert Job.objects.get().status == "succeeded"


def test_who_may_change_may_act_but_not_delete(operator):
    job = tasks.noop.enqueue()
    tick()

    page = _text(operator.get(LIST))
    assert "retry_selected" in page
    assert "delete_selected" not in page
    assert "1 retried" in _act(operator, "retry_selected", job.id)
    assert operator.post(f"{LIST}{job.id}/change/", {"name": "x"}).status_code == 403


def test_who_may_do_nothing_sees_nothing(client):
    staff = _staff(client)

    assert staff.get(LIST).status_code == 403
    assert staff.get(WORKERS).status_code == 403


# Worker processes.


@pytest.mark.parametrize(
    ("silent_for", "badge"), [(0, "alive"), (15, "alive"), (25, "late"), (31, "gone"), (86_400, "gone")]
)
def test_a_worker_is_judged_by_its_last_heartbeat(admin_client, silent_for, badge):
    _worker("host:1:aa", silent_for)

    assert f"bunderstack-badge bunderstack-{badge}" in _text(admin_client.get(WORKERS))


def test_the_list_of_workers_is_readable(admin_client):
    _worker("host:1:aa")
    _worker("host:2:bb", queues=["mail", "<b>"])
    _worker("host:3:cc", queues="garbage")

    page = _text(admin_client.get(WORKERS))

    assert "81.1\xa0MB" in page
    assert ">all<" in page
    assert "mail, &lt;b&gt;" in page
    assert "garbage" in page


def test_a_worker_links_to_the_jobs_it_runs(admin_client):
    _worker("host:1:aa")
    running = _running("host:1:aa")
    other = _running("host:2:bb")

    page = _text(admin_client.get(f"{WORKERS}host_3A1_3Aaa/change/"))

    assert f"{LIST}{running.pk}/change/" in page
    assert str(other.pk) not in page


def test_only_workers_that_are_gone_can_be_deleted(admin_client):
    _worker("host:1:aa")
    _worker("host:2:bb", silent_for=60)
    post = {"action": "delete_selected", "_selected_action": ["host:1:aa", "host:2:bb"]}

    confirmation = _text(admin_client.post(WORKERS, post))
    assert "1 left alone: it may still be alive" in confirmation

    text = _text(admin_client.post(WORKERS, {**post, "post": "yes"}, follow=True))
    assert "1 deleted; 1 left alone: it may still be alive" in text
    assert WorkerProcess.objects.get().pk == "host:1:aa"
    assert admin_client.post(f"{WORKERS}host_3A1_3Aaa/delete/", {"post": "yes"}).status_code == 403


def test_a_worker_can_be_neither_added_nor_edited(admin_client):
    _worker("host:1:aa")

    assert admin_client.get(f"{WORKERS}add/").status_code == 403
    assert admin_client.post(f"{WORKERS}host_3A1_3Aaa/change/", {"host": "x"}).status_code == 403


# Values.


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 ms"),
        (0.0123, "12 ms"),
        (3.44, "3.4 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3_599.9, "1 h"),
        (3_725, "1 h 2 min"),
        (3_605, "1 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds, text):
    assert display.duration(timedelta(seconds=seconds)) == text


def test_a_value_nested_too_deep_is_named_as_such():
    value: Any = []
    for _ in range(100_000):
        value = [value]

    assert display.as_json(value) == "It is nested too deep to be shown."


def test_bulky_columns_are_columns():
    assert set(listing.BULKY) <= {field.name for field in Job._meta.fields}


def _staff(client: Client, *permissions: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    return client


def _text(response: Any) -> str:
    assert response.status_code == 200, response
    return response.content.decode()


def _listed(client: Client, **query: str) -> list[UUID]:
    response = client.get(LIST, query)
    assert response.status_code == 200
    return [job.pk for job in response.context["cl"].result_list]


def _page(client: Client, job_id: object, query: str = "") -> Any:
    return client.get(f"{LIST}{job_id}/change/{query}")


def _act(client: Client, action: str, *job_ids: object) -> str:
    post = {"action": action, "_selected_action": list(job_ids), "index": "0"}
    return _messages(client.post(LIST, post, follow=True))


def _press(client: Client, job_id: object, act: str) -> str:
    return _messages(client.post(f"{LIST}{job_id}/act/", {"act": act}, follow=True))


def _messages(response: Any) -> str:
    assert response.status_code == 200
    return "\n".join(map(str, response.context["messages"]))


def _offered(client: Client, job_id: object) -> list[str]:
    return re.findall(r'<button name="act" value="(\w+)"', _text(_page(client, job_id)))


def _running(worker: str = "host:9:ff", **columns: Any) -> Job:
    now = datetime.now(UTC)
    return Job.objects.create(
        name="tests.testapp.tasks.noop",
        status="running",
        attempts=1,
        payload={"args": [], "kwargs": {}},
        worker=worker,
        worker_ids=[worker],
        started_at=now,
        locked_until=now + timedelta(seconds=30),
        lease_token="t",
        **columns,
    )


def _pair_with_one_key() -> tuple[str, str]:
    """An ended job, and a newer one that holds its dedupe key."""
    keyed = tasks.noop.using(dedupe_key="k", priority=50)
    ended = keyed.enqueue().id
    Job.objects.filter(pk=ended).update(status="failed", finished_at=datetime.now(UTC))
    return ended, keyed.enqueue().id


def _worker(worker_id: str, silent_for: float = 0, queues: Any = ()) -> WorkerProcess:
    now = datetime.now(UTC)
    return WorkerProcess.objects.create(
        id=worker_id,
        host="host",
        pid=1,
        identity="1.0",
        queues=queues if isinstance(queues, str) else list(queues),
        threads=4,
        started_at=now - timedelta(days=2),
        heartbeat_at=now - timedelta(seconds=silent_for),
        rss_bytes=85_000_000,
        running=1,
    )


def _after(first: Any, function: Any) -> Any:
    """``function``, and just before it what someone else does."""

    def both(*args: Any) -> Any:
        first()
        return function(*args)

    return both
