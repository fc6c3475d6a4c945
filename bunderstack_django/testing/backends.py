"""Doubles of Django's Immediate and Dummy backends that take the options of ``@job``.

They check and convert arguments as the database backend does, so that a test does not pass what production refuses.
"""

from __future__ import annotations

from typing import Any

from ..compat import DummyBackend as DjangoDummyBackend
from ..compat import ImmediateBackend as DjangoImmediateBackend
from ..compat import Task, TaskResult
from ..jobs.declare import JobContext, as_job, build_task
from ..jobs.payload import encode

__all__ = ["DummyBackend", "ImmediateBackend"]


class DummyBackend(DjangoDummyBackend):
    """Stores results in memory and runs nothing."""

    task_class = staticmethod(build_task)  # type: ignore[assignment]

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        payload = as_job(task).schema.dump(tuple(args), kwargs)
        return super().enqueue(task, payload["args"], payload["kwargs"])


class ImmediateBackend(DjangoImmediateBackend):
    """Runs each job where it is enqueued, once: no retries."""

    task_class = staticmethod(build_task)  # type: ignore[assignment]
    supports_defer = True  # a delay is passed over

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        payload = as_job(task).schema.dump(tuple(args), kwargs)
        encode(payload, "The arguments", 2**62)
        return super().enqueue(task, payload["args"], payload["kwargs"])
