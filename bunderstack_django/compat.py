"""The one module that knows where the tasks API comes from.

Django 6.0 and later have ``django.tasks``; on Django 5.2 the ``django-tasks`` package provides it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from django.tasks import DEFAULT_TASK_QUEUE_NAME, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.backends.dummy import DummyBackend
    from django.tasks.backends.immediate import ImmediateBackend
    from django.tasks.base import Task as _Task
    from django.tasks.base import TaskContext as _TaskContext
    from django.tasks.base import TaskError
    from django.tasks.base import TaskResult as _TaskResult
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started

    # Generic for a type checker only: at run time Django's classes take no parameters.
    Task: TypeAlias = _Task[..., Any]
    TaskContext: TypeAlias = _TaskContext[..., Any]
    TaskResult: TypeAlias = _TaskResult[..., Any]
else:
    try:
        from django.tasks import (
            DEFAULT_TASK_QUEUE_NAME,
            Task,
            TaskContext,
            TaskResult,
            TaskResultStatus,
            task_backends,
        )
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.backends.dummy import DummyBackend
        from django.tasks.backends.immediate import ImmediateBackend
        from django.tasks.base import TaskError
        from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued, task_finished, task_started
    except ImportError:
        if find_spec("django_tasks") is None:
            raise ImproperlyConfigured(
                "Django 5.2 has no tasks API of its own: pip install 'bunderstack-django[backport]'"
            ) from None
        from django_tasks import (
            DEFAULT_TASK_QUEUE_NAME,
            TaskContext,
            TaskResult,
            TaskResultStatus,
            task_backends,
        )
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.backends.dummy import DummyBackend
        from django_tasks.backends.immediate import ImmediateBackend
        from django_tasks.base import Task, TaskError
        from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started


def is_task(value: object) -> bool:
    """Whether ``value`` is a declared task."""
    return isinstance(value, Task)  # type: ignore[misc]


__all__ = [
    "DEFAULT_TASK_QUEUE_NAME",
    "BaseTaskBackend",
    "DummyBackend",
    "ImmediateBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "is_task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
