"""The backend for Django's ``TASKS`` setting."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import connections, router

from .compat import BaseTaskBackend, InvalidTask, Task, TaskResult
from .jobs import options as rules
from .jobs.declare import build_task


class DatabaseBackend(BaseTaskBackend):
    """Jobs in the database: ``TASKS = {"default": {"BACKEND": "bunderstack_django.backend.DatabaseBackend"}}``.

    ``QUEUES``: the names allowed, [] = any. ``OPTIONS["database"]``: the alias of the database that holds the
    jobs; the router's choice if omitted.
    """

    task_class = staticmethod(build_task)  # type: ignore[assignment]
    takes_job_options = True
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def database(self) -> str:
        """Alias of the database that holds this backend's jobs."""
        from .jobs.models import Job  # deferred: a models module may declare jobs

        return self.options.get("database") or router.db_for_write(Job)

    def validate_task(self, task: Task) -> None:
        """Raise InvalidTask for a task that this backend cannot run."""
        if self.queues and task.queue_name not in self.queues:
            near = get_close_matches(task.queue_name, self.queues, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InvalidTask(
                f"Queue '{task.queue_name}' is not valid for backend. "
                f"TASKS[{self.alias!r}]['QUEUES'] allows {', '.join(sorted(self.queues))}.{hint}"
            )
        super().validate_task(task)
        rules.check_key("queue_name", task.queue_name)

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:  # type: ignore[override]
        """Store a job in the caller's transaction. Raises InvalidTask, InvalidPayload."""
        from .jobs.operations import enqueue_task

        self.validate_task(task)
        return enqueue_task(self, task, args, kwargs)

    def get_result(self, result_id: str) -> TaskResult:
        """Raises TaskResultDoesNotExist."""
        from .jobs.operations import find_result

        return find_result(result_id, self.database)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """The database named in OPTIONS exists."""
        if self.database in connections:
            return []
        near = ", ".join(connections)
        message = (
            f"TASKS[{self.alias!r}] keeps jobs in database {self.database!r}, which DATABASES does not have."
        )
        return [Error(message, hint=f"DATABASES has {near}.", id="bunderstack_django.E006")]
