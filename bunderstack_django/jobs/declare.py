"""Declaring jobs: the ``@job`` decorator, the task it gives, and the registry of names."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cache
from inspect import iscoroutinefunction
from typing import Any, Final

from django.utils.module_loading import import_string

from .. import conf
from ..compat import DEFAULT_TASK_QUEUE_NAME, InvalidTask, Task, TaskContext, TaskResult, is_task
from ..exceptions import DuplicateJob, JobCancelled, UnknownJob
from . import options as rules
from .backoff import Backoff
from .payload import Schema, schema_of
from .states import Policy

logger = logging.getLogger(__name__)

_UNSET: Final[Any] = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask(Task):
    """A Django task with the options of ``@job``."""

    job_name: str = ""  # stable identity in the table; the module path unless named
    aliases: tuple[str, ...] = ()  # earlier names
    retries: int = 0  # further attempts after a failure
    backoff: Callable[[int], timedelta] = Backoff()  # noqa: RUF009 - immutable
    retry_on: tuple[type[BaseException], ...] = ()  # empty = all
    discard_on: tuple[type[BaseException], ...] = ()
    timeout: timedelta | None = None  # run limit of one attempt
    concurrency: int | None = None  # at most so many running, per concurrency key
    concurrency_key: str | Callable[..., str] | None = None
    rate_limit: str | None = None
    on_failed: Callable[..., None] | None = None
    durable: bool = False  # write the outcome in its own commit
    retention: Any = None  # a timedelta, or (status, timedelta) pairs

    dedupe_key: str | None = None  # per call, by using()
    delay: timedelta | None = None  # per call, by using(): from the database's now

    def __post_init__(self) -> None:
        if not self.job_name:
            object.__setattr__(self, "job_name", self.module_path)
        rules.check(self)
        Task.__post_init__(self)  # super() would name the class before slots were added
        _warn_of_foreign(self.get_backend())

    def __reduce__(self) -> tuple[Any, ...]:
        declared = import_string(self.module_path)
        changed = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "func"}
        return _rebuild, (
            self.module_path,
            {k: v for k, v in changed.items() if v != getattr(declared, k, _UNSET)},
        )

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        dedupe_key: str | None = None,
        delay: timedelta | float | None = None,
    ) -> JobTask:
        """This job with other values for its next enqueue.

        :param dedupe_key: while a job of this name and key is not ended, enqueueing again returns that job.
        :param delay: how long from now on the database's clock; a ``timedelta``, or seconds.
        """
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            "dedupe_key": dedupe_key,
            "delay": None if delay is None else rules.as_delay(delay),
        }
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def bind(self, *args: Any, **kwargs: Any) -> BoundJob:
        """The job with its arguments, for ``enqueue_many``."""
        return BoundJob(self, args, kwargs)

    @property
    def schema(self) -> Schema:
        return schema_of(self.func, self.takes_context)

    @property
    def policy(self) -> Policy:
        return Policy(backoff=self.backoff, retry_on=self.retry_on, discard_on=self.discard_on)

    @property
    def is_async(self) -> bool:
        return _is_async(self.func)


@dataclass(frozen=True, slots=True)
class BoundJob:
    """A job and the arguments of one call."""

    task: Task
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class JobContext(TaskContext):
    """What a handler with ``takes_context=True`` gets as its first argument."""

    def __init__(self, run: Any, task_result: Callable[[], TaskResult]) -> None:
        object.__setattr__(self, "_run", run)
        object.__setattr__(self, "_task_result", task_result)

    @property
    def task_result(self) -> TaskResult:  # type: ignore[override]
        return self._task_result()  # type: ignore[attr-defined, no-any-return]

    @property
    def job_id(self) -> str:
        return self._run.job_id  # type: ignore[attr-defined, no-any-return]

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._run.attempt  # type: ignore[attr-defined, no-any-return]

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled, or its lease lost, as of the last heartbeat."""
        return self._run.cancelled  # type: ignore[attr-defined, no-any-return]

    @property
    def stopping(self) -> bool:
        """Whether the worker is shutting down: a long handler may save its place and return or snooze."""
        return self._run.stopping  # type: ignore[attr-defined, no-any-return]

    def raise_if_cancelled(self) -> None:
        """Raise JobCancelled if the job was cancelled."""
        if self.cancelled:
            raise JobCancelled("The job was cancelled while it ran.")

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the work is: ``fraction`` from 0 to 1. Written within a second, not by this call."""
        self._run.progress(fraction, message)  # type: ignore[attr-defined]

    def log(self, message: str) -> None:
        """Keep a line with the job. Bounded: the newest lines stay. Written within a second."""
        self._run.log(message)  # type: ignore[attr-defined]


class Registry:
    """The declared jobs by name and alias."""

    def __init__(self) -> None:
        self._by_name: dict[str, JobTask] = {}
        self._lock = threading.Lock()

    def add(self, task: JobTask) -> None:
        """Declare ``task``. Raises DuplicateJob if another function has its name."""
        with self._lock:
            for name in (task.job_name, *task.aliases):
                known = self._by_name.get(name)
                if known is not None and known.module_path != task.module_path:
                    raise DuplicateJob(
                        f"Two jobs are named {name!r}: {known.module_path} and {task.module_path}. "
                        "Give one of them another name=."
                    )
            for name in (task.job_name, *task.aliases):
                self._by_name[name] = task

    def find(self, name: str) -> JobTask | None:
        """The job of this name or alias; a plain ``@task`` is found by its path."""
        return self._by_name.get(name) or self._import(name)

    def declared(self, name: str) -> JobTask | None:
        """The job of this name or alias, without importing anything."""
        return self._by_name.get(name)

    def get(self, name: str) -> JobTask:
        """As ``find``. Raises UnknownJob with near matches."""
        task = self.find(name)
        if task is None:
            near = get_close_matches(name, self._by_name, n=3)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else " Is its module imported?"
            raise UnknownJob(f"No job named {name!r} is declared.{hint}")
        return task

    def __iter__(self) -> Iterator[JobTask]:
        return iter({id(task): task for task in self._by_name.values()}.values())

    def _import(self, path: str) -> JobTask | None:
        try:
            found = import_string(path)
        except ImportError:
            return None
        except Exception:
            logger.exception("Importing a job failed name=%s", path)
            return None
        return as_job(found) if is_task(found) else None


registry: Final = Registry()


def job(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    aliases: tuple[str, ...] | list[str] = (),
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    priority: int = 0,
    backend: str = "default",
    retries: int | None = None,
    backoff: Callable[[int], timedelta] | None = None,
    retry_on: Any = (),
    discard_on: Any = (),
    timeout: timedelta | float | None = _UNSET,
    concurrency: int | None = None,
    concurrency_key: str | Callable[..., str] | None = None,
    rate_limit: str | None = None,
    on_failed: Callable[..., None] | None = None,
    takes_context: bool = False,
    durable: bool = False,
    retention: Any = None,
) -> Any:
    """Declare a function as a background job.

    :param retries: further attempts after a failure; setting ``RETRIES`` (3) if omitted.
    :param backoff: the wait before each; ``Backoff()`` if omitted.
    :param timeout: run limit of one attempt, a ``timedelta`` or seconds; None = none; setting ``TIMEOUT``
        (60 s) if omitted.
    :param on_failed: called as ``on_failed(job_id, args, kwargs, error)`` at most once, after the final
        failure is stored.

    The other options are described in docs/reference/jobs.md. Raises InvalidOption for a value that is not
    allowed, DuplicateJob for a name taken by another function.
    """

    def declare(func: Callable[..., Any]) -> JobTask:
        task = JobTask(
            func=func,
            job_name=name or "",
            aliases=tuple(aliases),
            queue_name=queue_name,
            priority=priority,
            backend=backend,
            run_after=None,
            takes_context=takes_context,
            retries=conf.value("RETRIES") if retries is None else retries,
            backoff=backoff or Backoff(),
            retry_on=rules.as_classes("retry_on", retry_on),
            discard_on=rules.as_classes("discard_on", discard_on),
            timeout=conf.duration("TIMEOUT") if timeout is _UNSET else rules.as_timeout(timeout),
            concurrency=concurrency,
            concurrency_key=concurrency_key,
            rate_limit=rate_limit,
            on_failed=on_failed,
            durable=durable,
            retention=rules.as_retention(retention),
        )
        registry.add(task)
        return task

    return declare if function is None else declare(function)


_is_async: Final = cache(iscoroutinefunction)  # 2 µs otherwise, for each job run
OPTIONS: Final = frozenset(job.__kwdefaults__ or ())


def build_task(*, func: Callable[..., Any], run_after: datetime | None = None, **given: Any) -> JobTask:
    """What Django's ``@task`` calls on our backend: as ``@job``, with no retries and no timeout unless given."""
    unknown = given.keys() - OPTIONS
    if unknown:
        named = ", ".join(sorted(map(repr, unknown)))
        near = [match for name in sorted(unknown) for match in get_close_matches(name, OPTIONS, n=1)]
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise InvalidTask(f"@task has no option {named}.{hint} Allowed: {', '.join(sorted(OPTIONS))}.")
    return job(func, **{"retries": 0, "timeout": None, **given})  # type: ignore[no-any-return]


def as_job(task: Task) -> JobTask:
    """``task`` with our options: those of a plain ``@task`` if another backend built it."""
    if isinstance(task, JobTask):
        return task
    return JobTask(
        func=task.func,
        priority=task.priority,
        queue_name=task.queue_name,
        backend=task.backend,
        run_after=task.run_after,
        takes_context=task.takes_context,
    )


@cache
def _warn_of_foreign_class(path: str) -> None:
    logger.warning("%s runs jobs without their options: no retries, no timeout, no dedupe key.", path)


def _warn_of_foreign(backend: object) -> None:
    """Say once that a backend is not ours."""
    if not getattr(backend, "takes_job_options", False):
        _warn_of_foreign_class(f"{type(backend).__module__}.{type(backend).__qualname__}")


def _rebuild(path: str, changes: dict[str, Any]) -> JobTask:
    return replace(import_string(path), **changes)  # type: ignore[no-any-return]
