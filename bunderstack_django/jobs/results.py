"""A job's row as Django's TaskResult."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ..compat import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from ..exceptions import InvalidPayload
from .declare import JobTask, registry
from .models import Job
from .payload import split
from .states import Status

STATUSES: Final = {
    Status.SCHEDULED: TaskResultStatus.READY,
    Status.PENDING: TaskResultStatus.READY,
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    Status.FAILED: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}


def result_of(job: Job) -> TaskResult:
    """A job's row as Django's TaskResult. Raises TaskResultDoesNotExist if its job is no longer declared."""
    declared = registry.find(job.name)
    if declared is None:
        raise TaskResultDoesNotExist(f"Job {job.pk} is named {job.name!r}, which is not declared.")
    try:
        args, kwargs = split(job.payload)
    except InvalidPayload:
        args, kwargs = [], {}
    result = TaskResult(
        task=_as_enqueued(declared, job),
        id=str(job.pk),
        status=STATUSES[Status(job.status)],
        enqueued_at=job.enqueued_at,
        started_at=job.started_at,
        last_attempted_at=job.last_attempted_at,
        finished_at=job.finished_at,
        args=args,
        kwargs=kwargs,
        backend=job.backend,
        errors=[task_error(each) for each in as_list(job.errors) if isinstance(each, dict)],
        worker_ids=as_list(job.worker_ids),
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def as_result(**values: Any) -> TaskResult:
    """A TaskResult of values that are in JSON form already: its own ``__init__`` would convert them once more."""
    result = object.__new__(TaskResult)
    for name, value in values.items():
        object.__setattr__(result, name, value)
    return result


def as_list(value: Any) -> list[Any]:
    """``value``; nothing if a hand-made row holds something else there."""
    return value if isinstance(value, list) else []


def task_error(error: dict[str, Any]) -> TaskError:
    return TaskError(
        exception_class_path=str(error.get("exception_class", "")), traceback=str(error.get("traceback", ""))
    )


def _as_enqueued(declared: JobTask, job: Job) -> JobTask:
    """The task as it was enqueued; as declared where a setting no longer allows that."""
    wanted = {"queue_name": job.queue_name, "priority": job.priority, "backend": job.backend}
    if all(getattr(declared, name) == value for name, value in wanted.items()):
        return declared
    try:
        return replace(declared, **wanted)
    except Exception:  # noqa: BLE001 - whatever the backend of today says of yesterday's values
        return declared
