"""What the page of one job shows, in groups; each function is a row of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...exceptions import InvalidPayload
from ..models import Job
from ..payload import split
from ..states import Status
from ..store import records
from . import display

MOST_WORKERS = 50
BAD_STATUS = "unknown"


def database_of(row: Any) -> str:
    """Alias of the database that ``row`` was read from."""
    return row._state.db  # type: ignore[no-any-return]


def now_of(row: Any) -> datetime:
    """The database's clock when ``row`` was read."""
    return row.db_now  # type: ignore[no-any-return]


def _title(name: str) -> Any:
    return getattr(Job._meta.get_field(name), "verbose_name", name)


@cache
def column(name: str) -> Callable[[Job], Any]:
    """A row for a column that is shown as it is."""

    @admin.display(description=_title(name))
    def value(job: Job) -> Any:
        found = getattr(job, name)
        return display.NOTHING if found in (None, "") else found

    value.__name__ = name
    return value


@cache
def instant(name: str) -> Callable[[Job], str]:
    """A row for a column that holds an instant."""

    @admin.display(description=_title(name))
    def value(job: Job) -> str:
        return display.moment(getattr(job, name), now_of(job))

    value.__name__ = name
    return value


@admin.display(description=gettext_lazy("status"))
def status(job: Job) -> str:
    kind = job.status if job.status in set(Status) else BAD_STATUS
    return display.with_note(display.badge(kind, job.get_status_display()), _standing(job))


@admin.display(description=gettext_lazy("attempts"))
def attempts(job: Job) -> str:
    return display.attempts(job)


@admin.display(description=gettext_lazy("duration"))
def duration(job: Job) -> str:
    return display.run_time(job, now_of(job))


@admin.display(description=gettext_lazy("progress"))
def progress(job: Job) -> str:
    share = display.fraction(job.progress)
    if share is None:
        return display.unreadable(job.progress)
    bar = format_html('<progress max="1" value="{}"></progress> {}', str(share), f"{share:.0%}")
    return display.with_note(bar, display.as_text(job.progress.get("message") or ""))


@admin.display(description=gettext_lazy("arguments"))
def arguments(job: Job) -> str:
    try:
        split(job.payload)
    except InvalidPayload:
        return display.unreadable(job.payload)
    return display.code(display.as_json(job.payload))


@admin.display(description=gettext_lazy("result"))
def result(job: Job) -> str:
    return display.code(display.as_json(job.result))


@admin.display(description=gettext_lazy("errors"))
def errors(job: Job) -> str:
    if not isinstance(job.errors, list):
        return display.unreadable(job.errors)
    shown = display.attempt_errors(job.errors, now_of(job))
    return render_to_string("admin/bunderstack_django/job/errors.html", {"errors": shown})


@admin.display(description=gettext_lazy("log"))
def log(job: Job) -> str:
    if not isinstance(job.log, list):
        return display.unreadable(job.log)
    shown = display.log_lines(job.log, now_of(job))
    return render_to_string("admin/bunderstack_django/job/log.html", {"lines": shown})


@admin.display(description=gettext_lazy("workers"))
def workers(job: Job) -> str:
    """One worker per attempt, the latest last; a link while its process is known."""
    ids = display.texts(job.worker_ids)[-MOST_WORKERS:]
    known = records.known_workers(ids, database_of(job))
    links = [(worker_link(each) if each in known else each,) for each in ids]
    return format_html('<ol class="bunderstack-list">{}</ol>', format_html_join("", "<li>{}</li>", links))


def worker_link(worker_id: str) -> str:
    url = reverse("admin:bunderstack_django_workerprocess_change", args=[quote(worker_id)])
    return format_html('<a href="{}">{}</a>', url, worker_id)


def job_link(job: Job) -> str:
    url = reverse("admin:bunderstack_django_job_change", args=[quote(job.pk)])
    return format_html('<a href="{}">{}</a>', url, job)


def fieldsets(job: Job) -> list[tuple[Any, dict[str, Any]]]:
    """The groups that have something to tell of ``job``."""
    groups = [
        (None, _summary(job)),
        (gettext_lazy("Errors"), [errors] if job.errors else []),
        (
            gettext_lazy("Arguments and result"),
            [arguments, *([result] if job.status == Status.SUCCEEDED else [])],
        ),
        (gettext_lazy("Log"), [log] if job.log else []),
        (gettext_lazy("Times"), [(instant(first), instant(second)) for first, second in _TIMES]),
        (gettext_lazy("Workers and lease"), _WORKERS if job.worker else []),
        (gettext_lazy("Keys"), _KEYS),
    ]
    return [(title, {"fields": fields}) for title, fields in groups if fields]


_TIMES = (
    ("enqueued_at", "run_after"),
    ("last_attempted_at", "started_at"),
    ("finished_at", "cancel_requested_at"),
)
_WORKERS = [workers, (instant("locked_until"), column("lease_token"))]
_KEYS = [column("id"), (column("dedupe_key"), column("concurrency_key"), column("backend"))]


def _summary(job: Job) -> list[Any]:
    return [
        (status, attempts, duration),
        (column("name"), column("queue_name"), column("priority")),
        *([progress] if job.progress is not None else []),
    ]


def _standing(job: Job) -> str:
    """What there is to know beside a status: why it failed, when it is due, that it shall stop."""
    if job.failure_reason:
        return job.get_failure_reason_display() or ""
    if job.status == Status.SCHEDULED:
        when = display.distance(job.run_after, now_of(job))
        return _("retry %(when)s") % {"when": when} if job.attempts else when
    if job.status == Status.RUNNING and job.cancel_requested_at is not None:
        return _("asked to stop")
    return ""
