"""What a program does with jobs: enqueue, look up, cancel, retry."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import connections, transaction
from django.utils import timezone

from .. import conf
from ..compat import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
)
from ..exceptions import DedupeConflict, JobDoesNotExist
from ..runtime.clock import as_utc
from . import options as rules
from . import store
from .backends import databases, keeps_jobs, only_logged, sender_of
from .declare import BoundJob, as_job, registry
from .models import Job, new_id
from .payload import encode
from .results import as_result, result_of
from .states import Status
from .store import records
from .store.dialect import BATCH_BYTES
from .store.rows import Inserted, NewJob, portions, weight

BATCH_ROWS: Final = 1_000
_TRIES: Final = 10  # a dedupe key that changes hands this often in one enqueue is a fault


def enqueue(name: str, *args: Any, **kwargs: Any) -> TaskResult:
    """Enqueue the job declared as ``name``. Raises UnknownJob, InvalidPayload."""
    return registry.get(name).enqueue(*args, **kwargs)


def enqueue_many(calls: Iterable[BoundJob | tuple[Task, Sequence[Any], dict[str, Any]]]) -> list[TaskResult]:
    """Enqueue many jobs, by one statement per 1,000 rows or 8 MiB; all of one backend's or none.

    :param calls: ``task.bind(…)``, or for a plain ``@task`` the tuple ``(task, args, kwargs)``.
    :return: a result per call, in order; a duplicate's is that of the job that holds its dedupe key.

    Raises InvalidPayload for the first call that does not fit, before anything is stored.
    """
    bound = [
        call if isinstance(call, BoundJob) else BoundJob(call[0], tuple(call[1]), call[2]) for call in calls
    ]
    for task in {id(call.task): call.task for call in bound}.values():
        task_backends[task.backend].validate_task(task)
    results: dict[int, TaskResult] = {}
    for alias in dict.fromkeys(call.task.backend for call in bound):
        chosen = [(index, call) for index, call in enumerate(bound) if call.task.backend == alias]
        enqueued = _enqueue_bound(task_backends[alias], [call for _, call in chosen])
        results.update(zip((index for index, _ in chosen), enqueued, strict=True))
    return [results[index] for index in range(len(bound))]


def _enqueue_bound(backend: BaseTaskBackend, calls: list[BoundJob]) -> list[TaskResult]:
    if not keeps_jobs(backend):
        return [backend.enqueue(call.task, list(call.args), dict(call.kwargs)) for call in calls]
    limit = conf.value("MAX_PAYLOAD_BYTES")
    placed = _place(backend.database, [prepare(call.task, call.args, call.kwargs, limit) for call in calls])
    for result, is_new in placed:
        if is_new:
            _announce_enqueued(backend, result)
    return [result for result, _ in placed]


def enqueue_task(backend: Any, task: Task, args: Sequence[Any], kwargs: dict[str, Any]) -> TaskResult:
    """Enqueue one call through ``backend``: one INSERT in the caller's transaction."""
    ((result, is_new),) = _place(backend.database, [prepare(task, tuple(args), kwargs)])
    if is_new:
        _announce_enqueued(backend, result)
    return result


def cancel(job_id: str | UUID) -> bool:
    """Cancel a job: a waiting one at once, a running one as soon as its handler looks.

    :return: False if it has ended already, or there is no such job.
    """
    for using in databases():
        status = records.cancel(job_id, using)
        if status is not None:
            if status == Status.CANCELLED:  # by this call: a running job's end is told by its worker
                tell = partial(announce_finished, records.get(job_id, using))
                transaction.on_commit(tell, using=using, robust=True)
            return True
    return False


def retry(job_id: str | UUID) -> TaskResult:
    """Run an ended job again, its attempts counted anew.

    Raises JobDoesNotExist, JobNotFinished, UnknownJob, or DedupeConflict naming the newer job that holds its key.
    """
    for using in databases():
        job = records.get(job_id, using)
        if job is not None:
            registry.get(job.name)  # before anything is changed
            return result_of(records.retry(job_id, using))
    raise JobDoesNotExist(f"There is no job {job_id}.")


def find_result(job_id: str, using: str) -> TaskResult:
    """The result of a job. Raises TaskResultDoesNotExist."""
    job = records.get(job_id, using)
    if job is None:
        raise TaskResultDoesNotExist(job_id)
    return result_of(job)


def announce_finished(job: Job | None) -> None:
    """Send ``task_finished`` for a job that ended outside a worker."""
    if job is None:
        return
    try:
        result = result_of(job)
    except TaskResultDoesNotExist:
        return
    task_finished.send_robust(sender_of(job.backend), task_result=result)


def prepare(
    task: Task, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int | None = None
) -> tuple[TaskResult, NewJob]:
    """A call as the result to hand out and the row to insert. Raises InvalidPayload.

    :param limit: bytes of the payload; the setting if omitted.
    """
    limit = conf.value("MAX_PAYLOAD_BYTES") if limit is None else limit
    declared = as_job(task)
    payload = declared.schema.dump(args, kwargs)
    job_id = new_id()
    new = NewJob(
        id=job_id,
        name=declared.job_name,
        backend=task.backend,
        queue_name=task.queue_name,
        priority=task.priority,
        payload=encode(payload, f"The arguments of {declared.job_name}", limit),
        max_attempts=declared.retries + 1,
        run_after=_due(task.run_after),
        delay=declared.delay,
        dedupe_key=declared.dedupe_key,
        concurrency_key=rules.concurrency_key(declared, args, kwargs),
    )
    result = as_result(
        task=task,
        id=str(job_id),
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=task.backend,
        errors=[],
        worker_ids=[],
        _return_value=None,
    )
    return result, new


def _announce_enqueued(backend: Any, result: TaskResult) -> None:
    if not only_logged(task_enqueued, logging.DEBUG):
        task_enqueued.send(type(backend), task_result=result)


def _place(using: str, prepared: list[tuple[TaskResult, NewJob]]) -> list[tuple[TaskResult, bool]]:
    """Insert prepared jobs. Each result comes with whether it is new, or an earlier job's with its dedupe key."""
    ordered = [new for _, new in prepared]
    if any(new.dedupe_key is not None for new in ordered):
        # Two statements that wait for each other's keys must not do so crosswise.
        ordered.sort(key=lambda new: (new.name, new.dedupe_key or "", new.id))
    batches = list(portions(ordered, _weight, rows_each=BATCH_ROWS, bytes_each=BATCH_BYTES))
    if len(batches) == 1:
        inserted = _insert(using, batches[0])
    else:
        with transaction.atomic(using=using):
            inserted = {key: row for batch in batches for key, row in _insert(using, batch).items()}
    placed: list[tuple[TaskResult, bool]] = []
    instant = cache(as_utc)  # the rows of one statement share theirs
    for result, new in prepared:
        row = inserted[new.id]
        if isinstance(row, Job):
            placed.append((result_of(row), False))
        else:
            object.__setattr__(result, "enqueued_at", instant(row.enqueued_at))
            placed.append((result, True))
    return placed


def _insert(using: str, jobs: list[NewJob]) -> dict[UUID, Inserted | Job]:
    """What stands for each of ``jobs`` afterwards, by the id it was given."""
    connection = connections[using]
    dialect = store.dialect_of(connection)
    done: dict[UUID, Inserted | Job] = {}
    for _ in range(_TRIES):
        inserted = {row.id: row for row in dialect.insert(connection, jobs)}
        done.update((job.id, inserted[key]) for job in jobs if (key := dialect.id_read(job.id)) in inserted)
        left = [job for job in jobs if job.id not in done]
        for job in left:  # a rival holds the key; if it has ended meanwhile, insert again
            holder = records.holder(job.name, job.dedupe_key or "", using)
            if holder is not None:
                done[job.id] = holder
        jobs = [job for job in left if job.id not in done]
        if not jobs:
            return done
    raise DedupeConflict(
        f"The dedupe key {jobs[0].dedupe_key!r} of {jobs[0].name!r} changed hands {_TRIES} times."
    )


def _weight(new: NewJob) -> int:
    return weight(new.payload)


def _due(run_after: datetime | None) -> datetime | None:
    """``run_after`` as UTC; a naive one, which only passes without USE_TZ, is read in TIME_ZONE."""
    if run_after is None:
        return None
    if timezone.is_naive(run_after) and not settings.USE_TZ:
        run_after = timezone.make_aware(run_after, timezone.get_default_timezone())
    return run_after.astimezone(UTC)
