"""The filters of the job list. None asks the table for its distinct values; each leads to an index."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ...runtime.clock import DatabaseNow
from ..backends import databases
from ..declare import registry
from ..models import Job, JobFailureReason, JobStatus
from ..states import TERMINAL
from ..store import records

Choices = list[tuple[Any, Any]]


class StatusFilter(SimpleListFilter):
    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Choices:
        return list(JobStatus.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        status = self.value()
        return queryset if status is None else with_status(queryset, status)


class FailureReasonFilter(SimpleListFilter):
    title = _("failure reason")
    parameter_name = "failure_reason"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Choices:
        return list(JobFailureReason.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        if self.value() is None:
            return queryset
        return with_status(queryset, JobStatus.FAILED).filter(failure_reason=self.value())


class QueueFilter(SimpleListFilter):
    """By the queues of declared jobs, and those that have pending jobs."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Choices:
        declared = {job.queue_name for job in registry}
        return _choices({*declared, *records.pending_queues(databases()[0])}, self.value())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        return queryset if self.value() is None else queryset.filter(queue_name=self.value())


class NameFilter(SimpleListFilter):
    """By the names of declared jobs; rows from before a renaming count as the job they are now."""

    title = _("name")
    parameter_name = "name"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Choices:
        return _choices((job.job_name for job in registry), self.value())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        name = self.value()
        if name is None:
            return queryset
        job = registry.declared(name)
        return queryset.filter(name__in=[name] if job is None else [job.job_name, *job.aliases])


class EnqueuedFilter(SimpleListFilter):
    title = _("enqueued")
    parameter_name = "enqueued"
    spans = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Choices:
        return [("hour", _("Past hour")), ("day", _("Past 24 hours")), ("week", _("Past 7 days"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        span = self.spans.get(self.value() or "")
        if span is None:
            return queryset
        return queryset.filter(pk__gte=_first_id(span), enqueued_at__gte=DatabaseNow(-span))


def with_status(queryset: QuerySet[Job], status: str) -> QuerySet[Job]:
    """The jobs of ``queryset`` in a status; an ended one in the words of the index on ended jobs."""
    ended = {"finished_at__isnull": False} if status in TERMINAL else {}
    return queryset.filter(status=status, **ended)


def _choices(values: Iterable[str], chosen: str | None) -> Choices:
    known = {*values, chosen} - {None}
    return [(value, value) for value in sorted(filter(None, known))]


_SKEW = timedelta(hours=1)  # between the clocks that made the ids and the database's


def _first_id(span: timedelta) -> UUID:
    """The least UUIDv7 of the last ``span``: bounds the scan, since enqueued_at has no index."""
    milliseconds = int((datetime.now(UTC) - span - _SKEW).timestamp() * 1000)
    return UUID(int=milliseconds << 80 | 0x7 << 76 | 0x2 << 62)
