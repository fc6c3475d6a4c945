"""Single jobs, as people and pages ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.db import IntegrityError, connections, transaction
from django.db.models.functions import Coalesce

from ...db.fields import UTCDateTimeField
from ...exceptions import DedupeConflict, JobDoesNotExist, JobNotFinished
from ...runtime.clock import DatabaseNow
from ..models import Job, JobStatus, WorkerProcess
from ..states import ACTIVE, TERMINAL
from . import dialect_of

_ACTIVE = tuple(status.value for status in ACTIVE)
_WAITING = (JobStatus.SCHEDULED.value, JobStatus.PENDING.value)
_TERMINAL = tuple(status.value for status in TERMINAL)


def get(job_id: str | UUID, using: str) -> Job | None:
    """The job of this id, or None; anything that is no id is none."""
    key = parse_id(job_id)
    return None if key is None else Job.objects.using(using).filter(pk=key).first()


def holder(name: str, dedupe_key: str, using: str) -> Job | None:
    """The unended job that has this dedupe key."""
    connection = connections[using]
    key = dialect_of(connection).holder(connection, name, dedupe_key)
    return None if key is None else Job.objects.using(using).filter(pk=key).first()


def cancel(job_id: str | UUID, using: str) -> str | None:
    """Cancel a waiting job, ask a running one to stop.

    Returns ``cancelled`` if this call ended it, ``running`` if it was asked to; None if it had ended, or is none.
    """
    key = parse_id(job_id)
    if key is None:
        return None
    row = Job.objects.using(using).filter(pk=key)
    now = DatabaseNow()
    with transaction.atomic(using=using):
        # Locked by key, then written by key: on MariaDB a condition on the status could lock crosswise to an outcome.
        status = row.select_for_update().values_list("status", flat=True).first()
        if status in _WAITING:
            row.update(cancel_requested_at=now, finished_at=now, status=JobStatus.CANCELLED)
            return JobStatus.CANCELLED.value
        if status == JobStatus.RUNNING:
            row.update(
                cancel_requested_at=Coalesce("cancel_requested_at", now, output_field=UTCDateTimeField())
            )
            return JobStatus.RUNNING.value
    return None


def retry(job_id: str | UUID, using: str) -> Job:
    """Make an ended job pending again, its attempts counted anew, its history kept.

    Raises JobDoesNotExist, JobNotFinished, or DedupeConflict if a newer job holds its key.
    """
    rows = Job.objects.using(using).filter(pk__in=[key for key in [parse_id(job_id)] if key])
    try:
        with transaction.atomic(using=using):
            for name, dedupe_key in rows.values_list("name", "dedupe_key"):
                connection = connections[using]
                dialect_of(connection).lock_key(connection, name, dedupe_key)
            changed = rows.filter(status__in=_TERMINAL).update(
                status=JobStatus.PENDING,
                failure_reason=None,
                attempts=0,
                crashes=0,
                recovered=0,
                worker_ids=[],
                run_after=DatabaseNow(),
                started_at=None,
                finished_at=None,
                cancel_requested_at=None,
                result=None,
                progress=None,
            )
    except IntegrityError:
        stored = rows.get()
        newer = holder(stored.name, stored.dedupe_key or "", using)
        raise DedupeConflict(
            f"Job {job_id} cannot be retried: job {newer.pk if newer else 'another'} holds its dedupe key "
            f"{stored.dedupe_key!r}."
        ) from None
    job = rows.first()
    if job is None:
        raise JobDoesNotExist(f"There is no job {job_id}.")
    if not changed:
        raise JobNotFinished(f"Job {job_id} is {job.status}; only a job that has ended can be retried.")
    return job


def run_now(job_ids: Iterable[object], using: str) -> int:
    """Make scheduled jobs due. Returns how many were."""
    return (
        Job.objects.using(using)
        .filter(pk__in=list(job_ids), status=JobStatus.SCHEDULED)
        .update(status=JobStatus.PENDING, run_after=DatabaseNow())
    )


def delete_ended(job_ids: Iterable[object], using: str) -> int:
    """Delete those of these jobs that have ended. Returns how many did."""
    deleted, _ = Job.objects.using(using).filter(pk__in=list(job_ids), status__in=_TERMINAL).delete()
    return deleted


def status_of(job_id: str | UUID, using: str) -> str | None:
    """The status of a job, or None if there is no such job."""
    return Job.objects.using(using).filter(pk=job_id).values_list("status", flat=True).first()


def running_on(worker_id: str, using: str, limit: int) -> list[Job]:
    """Up to ``limit`` jobs that a worker runs now, the longest running first."""
    rows = Job.objects.using(using).filter(status=JobStatus.RUNNING, worker=worker_id)
    return list(rows.only("id", "name", "last_attempted_at").order_by("last_attempted_at", "id")[:limit])


def pending_queues(using: str) -> list[str]:
    """The queues that have pending jobs."""
    connection = connections[using]
    return dialect_of(connection).pending_queues(connection)


def known_workers(worker_ids: Iterable[str], using: str) -> set[str]:
    """Those of these workers that have a row."""
    return set(
        WorkerProcess.objects.using(using).filter(pk__in=list(worker_ids)).values_list("pk", flat=True)
    )


def forget_worker(worker_id: str, silent_for: timedelta, using: str) -> bool:
    """Remove a worker's row. False: it has renewed it since, or is not there."""
    rows = WorkerProcess.objects.using(using).filter(pk=worker_id, heartbeat_at__lt=DatabaseNow(-silent_for))
    gone, _ = rows.delete()
    return bool(gone)


def parse_id(job_id: object) -> UUID | None:
    """``job_id`` as a UUID, or None if it is none."""
    if isinstance(job_id, UUID):
        return job_id
    try:
        return UUID(str(job_id))
    except ValueError:
        return None
