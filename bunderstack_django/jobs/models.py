"""The tables of jobs, their workers, and what workers agree on."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import ClassVar

import uuid_utils.compat
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..db.fields import ByteCharField, JsonTextField, UTCDateTimeField
from ..db.indexes import PartialIndex, UniqueWhile
from .options import MAX_NAME
from .states import ACTIVE, FailureReason, Status


class JobStatus(models.TextChoices):
    SCHEDULED = Status.SCHEDULED.value, _("Scheduled")
    PENDING = Status.PENDING.value, _("Pending")
    RUNNING = Status.RUNNING.value, _("Running")
    SUCCEEDED = Status.SUCCEEDED.value, _("Succeeded")
    FAILED = Status.FAILED.value, _("Failed")
    CANCELLED = Status.CANCELLED.value, _("Cancelled")


class JobFailureReason(models.TextChoices):
    ERROR = FailureReason.ERROR.value, _("Error")
    TIMEOUT = FailureReason.TIMEOUT.value, _("Timeout")
    PAYLOAD = FailureReason.PAYLOAD.value, _("Payload")
    UNKNOWN_JOB = FailureReason.UNKNOWN_JOB.value, _("Unknown job")
    LOST = FailureReason.LOST.value, _("Worker lost")
    DISCARDED = FailureReason.DISCARDED.value, _("Discarded")


def new_id() -> uuid.UUID:
    """A UUIDv7 (RFC 9562): ids made one after the other in a process sort in that order."""
    return uuid_utils.compat.uuid7()


def utc_now() -> datetime:
    """For rows made by hand; the store takes the database's clock."""
    return datetime.now(UTC)


class Job(models.Model):
    """One call of a job, from the commit of its enqueue to its end."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = ByteCharField(_("name"), max_length=MAX_NAME)
    backend = ByteCharField(_("backend"), max_length=MAX_NAME, default="default")  # alias in TASKS
    queue_name = ByteCharField(_("queue"), max_length=MAX_NAME, default="default")
    priority = models.SmallIntegerField(_("priority"), default=0)  # higher first
    payload = JsonTextField(_("arguments"), default=dict)  # {"args": […], "kwargs": {…}} as called

    status = ByteCharField(_("status"), max_length=16, choices=JobStatus, default=JobStatus.PENDING)
    failure_reason = ByteCharField(
        _("failure reason"), max_length=16, choices=JobFailureReason, null=True, blank=True
    )
    attempts = models.PositiveIntegerField(_("attempts"), default=0)  # starts, this run's included
    crashes = models.PositiveIntegerField(_("crashes"), default=0)  # of those, ended by a worker's death
    recovered = models.PositiveIntegerField(
        default=0, editable=False
    )  # times handed back by a dead worker, uncharged
    max_attempts = models.PositiveIntegerField(_("most attempts"), default=1)
    run_after = UTCDateTimeField(_("run after"), default=utc_now)
    dedupe_key = ByteCharField(_("dedupe key"), max_length=MAX_NAME, null=True, blank=True)
    concurrency_key = ByteCharField(_("concurrency key"), max_length=MAX_NAME, null=True, blank=True)

    lease_token = models.CharField(
        max_length=64, null=True, blank=True
    )  # of the latest claim; fences every write
    locked_until = UTCDateTimeField(_("locked until"), null=True, blank=True)  # while running
    worker = ByteCharField(_("worker"), max_length=MAX_NAME, null=True, blank=True)  # of the latest claim
    worker_ids = JsonTextField(_("workers"), default=list)  # one per attempt

    enqueued_at = UTCDateTimeField(_("enqueued at"), default=utc_now)
    started_at = UTCDateTimeField(_("started at"), null=True, blank=True)  # the latest attempt's handler
    last_attempted_at = UTCDateTimeField(_("last attempted at"), null=True, blank=True)  # the latest claim
    finished_at = UTCDateTimeField(_("finished at"), null=True, blank=True)
    cancel_requested_at = UTCDateTimeField(_("cancel requested at"), null=True, blank=True)

    errors = JsonTextField(_("errors"), default=list)  # one per failed attempt, the newest
    result = JsonTextField(_("result"), null=True, blank=True)
    progress = JsonTextField(_("progress"), null=True, blank=True)  # {"fraction", "message"}
    log = JsonTextField(_("log"), default=list)  # lines a handler kept, the newest

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        indexes: ClassVar = [
            PartialIndex(
                fields=["-priority", "run_after", "id"],
                where=Q(status=Status.PENDING.value),
                lead="status",
                name="bunderstack_job_claim",
            ),
            PartialIndex(
                fields=["queue_name", "-priority", "run_after", "id"],
                where=Q(status=Status.PENDING.value),
                lead="status",
                name="bunderstack_job_claim_queue",
            ),
            PartialIndex(
                fields=["run_after", "id"],
                where=Q(status=Status.SCHEDULED.value),
                lead="status",
                name="bunderstack_job_due",
            ),
            PartialIndex(
                fields=["locked_until"],
                where=Q(status=Status.RUNNING.value),
                lead="status",
                name="bunderstack_job_lapsed",
            ),
            PartialIndex(
                fields=["status", "name", "finished_at"],
                where=Q(finished_at__isnull=False),
                name="bunderstack_job_ended",
            ),
        ]
        constraints: ClassVar = [
            UniqueWhile(
                fields=["name", "dedupe_key"],
                statuses=[status.value for status in ACTIVE],
                name="bunderstack_job_dedupe",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.pk}"

    @property
    def is_finished(self) -> bool:
        return self.status not in ACTIVE


class WorkerProcess(models.Model):
    """A process that runs jobs, as of its last heartbeat."""

    id = ByteCharField(primary_key=True, max_length=MAX_NAME)
    host = models.CharField(_("host"), max_length=255)
    pid = models.PositiveIntegerField(_("process id"))
    identity = models.CharField(_("process identity"), max_length=255)  # tells a reused pid apart
    queues = JsonTextField(_("queues"), default=list)  # [] = all
    threads = models.PositiveIntegerField(_("threads"), default=1)
    started_at = UTCDateTimeField(_("started at"))
    heartbeat_at = UTCDateTimeField(_("last heartbeat"))
    rss_bytes = models.PositiveBigIntegerField(_("memory"), default=0)
    running = models.PositiveIntegerField(_("running"), default=0)

    class Meta:
        verbose_name = _("worker process")
        verbose_name_plural = _("worker processes")

    def __str__(self) -> str:
        return str(self.id)


class Interval(models.Model):
    """When a chore that one worker does for all was last done."""

    name = ByteCharField(primary_key=True, max_length=MAX_NAME)
    ran_at = UTCDateTimeField()

    def __str__(self) -> str:
        return str(self.name)


class DedupeLock(models.Model):
    """A row to lock for a dedupe key on MariaDB, by the key's hash.

    There, the waiters on a unique index whose winner rolls back deadlock each other; on a row lock they queue.
    """

    id = models.PositiveSmallIntegerField(primary_key=True)

    COUNT: ClassVar = 1024

    def __str__(self) -> str:
        return str(self.pk)
