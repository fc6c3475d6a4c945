"""Which backends of TASKS keep their jobs in our table, and in which databases."""

from __future__ import annotations

import logging
import time
from functools import lru_cache
from typing import Any, Protocol, TypeGuard

from django.conf import settings
from django.db import router
from django.utils.log import RequireDebugTrue

from ..compat import BaseTaskBackend, InvalidTaskBackend, Task, task_backends
from .models import Job


class KeepsJobs(Protocol):
    """A backend of ours, as the rooms below it see it."""

    queues: set[str]  # the names allowed; empty = any

    @property
    def database(self) -> str: ...


def keeps_jobs(backend: BaseTaskBackend) -> TypeGuard[KeepsJobs]:
    return hasattr(type(backend), "database")


def our_backends() -> list[KeepsJobs]:
    """The backends of TASKS that keep their jobs here."""
    return [backend for backend in task_backends.all() if keeps_jobs(backend)]


def databases() -> list[str]:
    """Aliases of the databases that hold jobs: those of our backends, else the router's."""
    return list(dict.fromkeys(backend.database for backend in our_backends())) or [router.db_for_write(Job)]


def allowed_queues() -> frozenset[str] | None:
    """The queues that our backends allow; None = any."""
    allowed = [frozenset(backend.queues) for backend in our_backends()]
    return frozenset().union(*allowed) if allowed and all(allowed) else None


def sender_of(alias: str) -> type[BaseTaskBackend]:
    """The class that sends the signals of this alias; that of any backend for one that TASKS no longer has."""
    try:
        return type(task_backends[alias])
    except InvalidTaskBackend:
        return BaseTaskBackend


_tasks_logger = logging.getLogger("django.tasks" if Task.__module__.startswith("django.") else "django_tasks")


def only_logged(signal: Any, level: int) -> bool:
    """Whether nobody but django.tasks' own log line, and that switched off, listens to a signal of tasks."""
    return len(signal.receivers) <= 1 and not (
        _tasks_logger.isEnabledFor(level) and _is_written(level, int(time.monotonic()))
    )


@lru_cache(maxsize=4)
def _is_written(level: int, second: int) -> bool:
    """Whether a handler takes lines of this level from django.tasks: Django's default ones do with DEBUG only."""
    logger: logging.Logger | None = _tasks_logger
    if not _tasks_logger.hasHandlers():
        return logging.lastResort is not None and level >= logging.lastResort.level
    while logger is not None:
        for handler in logger.handlers:
            if level >= handler.level and (settings.DEBUG or not any(map(_needs_debug, handler.filters))):
                return True
        logger = logger.parent if logger.propagate else None
    return False


def _needs_debug(each: Any) -> bool:
    return isinstance(each, RequireDebugTrue)
