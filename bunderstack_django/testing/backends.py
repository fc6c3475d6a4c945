"""Doubles of Django's Immediate and Dummy backends that take the options of ``@job``.

They check and convert arguments as the database backend does: a test cannot pass with what production refuses.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from ..compat import DummyBackend as DjangoDummyBackend
from ..compat import ImmediateBackend as DjangoImmediateBackend
from ..compat import Task, TaskResult, task_enqueued
from ..jobs.declare import build_task
from ..jobs.execute import Run, execute
from ..jobs.operations import prepare
from ..jobs.results import STATUSES, task_error
from ..jobs.signals import announce_settled
from ..jobs.states import Status
from ..jobs.store.rows import Claimed, NewJob

__all__ = ["DummyBackend", "ImmediateBackend"]


class DummyBackend(DjangoDummyBackend):
    """Keeps results in memory and runs nothing."""

    takes_job_options = True
    task_class = staticmethod(build_task)  # type: ignore[assignment]

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:  # type: ignore[override]
        self.validate_task(task)
        result, _ = prepare(task, tuple(args), kwargs)
        return super().enqueue(task, result.args, result.kwargs)


class ImmediateBackend(DjangoImmediateBackend):
    """Runs each job where it is enqueued, once: without delay and without retries."""

    takes_job_options = True
    task_class = staticmethod(build_task)  # type: ignore[assignment]
    supports_defer = True

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:  # type: ignore[override]
        self.validate_task(task)
        result, new = prepare(task, tuple(args), kwargs)
        object.__setattr__(result, "enqueued_at", timezone.now())
        task_enqueued.send(type(self), task_result=result)
        outcome = execute(Run(_claimed(new)))
        status = Status.SUCCEEDED if outcome.verdict.status == Status.SUCCEEDED else Status.FAILED
        announce_settled(outcome, status)
        finished = outcome.run.result()
        changes = {
            "status": STATUSES[status],
            "started_at": finished.started_at,
            "last_attempted_at": finished.last_attempted_at,
            "finished_at": timezone.now(),
            "worker_ids": finished.worker_ids,
            "errors": [] if outcome.error is None else [task_error(outcome.error.as_dict())],
            "_return_value": outcome.value,
        }
        for name, value in changes.items():
            object.__setattr__(result, name, value)
        return result


def _claimed(new: NewJob) -> Claimed:
    now = timezone.now()
    return Claimed(
        id=new.id,
        name=new.name,
        backend=new.backend,
        queue_name=new.queue_name,
        priority=new.priority,
        payload=new.payload,
        attempts=1,
        crashes=0,
        recovered=0,
        max_attempts=1,
        run_after=now,
        dedupe_key=new.dedupe_key,
        worker="immediate",
        worker_ids='["immediate"]',
        errors="[]",
        log="[]",
        enqueued_at=now,
        started_at=now,
        last_attempted_at=now,
        lease_token="",
        cancel_requested_at=None,
    )
