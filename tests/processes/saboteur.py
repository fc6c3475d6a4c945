"""``python -m tests.processes.saboteur <how> runworker …``: a worker whose database fails at a chosen instant.

Each way strikes at the first statement of its kind. On a server it ends the very connection that runs the
statement; ``…-unanswered`` lets the statement commit first, so that only its answer is lost.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from django.core.management import execute_from_command_line
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper


def cut(connection: BaseDatabaseWrapper) -> None:
    """End this connection from the server's side; on SQLite there is none."""
    if connection.vendor == "sqlite":
        return
    connection.ensure_connection()
    raw = connection.connection
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_terminate_backend(%s)", [raw.info.backend_pid])
            else:
                cursor.execute(f"KILL CONNECTION {raw.thread_id():d}")
    finally:
        other.close()


def before(original: Callable[..., Any]) -> Callable[..., Any]:
    def statement(self: Any, connection: BaseDatabaseWrapper, *args: Any, **kwargs: Any) -> Any:
        cut(connection)
        if connection.vendor == "sqlite":
            raise OperationalError("database is locked")
        return original(self, connection, *args, **kwargs)

    return statement


def after(original: Callable[..., Any]) -> Callable[..., Any]:
    def statement(self: Any, connection: BaseDatabaseWrapper, *args: Any, **kwargs: Any) -> Any:
        answer = original(self, connection, *args, **kwargs)
        cut(connection)
        return answer

    return statement


def unanswered(original: Callable[..., Any]) -> Callable[..., Any]:
    def statement(self: Any, connection: BaseDatabaseWrapper, *args: Any, **kwargs: Any) -> Any:
        original(self, connection, *args, **kwargs)
        cut(connection)
        raise OperationalError("the answer is lost")

    return statement


def unanswered_and_stopped(original: Callable[..., Any]) -> Callable[..., Any]:
    lost = unanswered(original)

    def statement(self: Any, connection: BaseDatabaseWrapper, *args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return lost(self, connection, *args, **kwargs)

    return statement


WAYS = {
    "claim-before": ("claim", before),
    "claim-after": ("claim", after),  # between the claim and the handler's start
    "claim-unanswered": ("claim", unanswered),
    "finish-before": ("settle", before),
    "finish-unanswered": ("settle", unanswered),
    "heartbeat-before": ("pulse", before),
}


def slow_reports() -> None:
    """Handler threads are preempted on their way to the outbox."""
    from bunderstack_django.jobs.worker.outbox import Outbox

    put = Outbox.put

    def put_later(self: Any, *args: Any, **kwargs: Any) -> None:
        time.sleep(0.05)
        put(self, *args, **kwargs)

    Outbox.put = put_later  # type: ignore[method-assign]


def slow_signals() -> None:
    """The process is preempted just before it installs its signal handlers."""
    from bunderstack_django.management.commands import runworker

    on_signals = runworker.on_signals

    def on_signals_later(stop: Any) -> Any:
        time.sleep(0.5)
        return on_signals(stop)

    runworker.on_signals = on_signals_later


def sabotage(how: str) -> None:
    from bunderstack_django.jobs.store.mariadb import MariaDB
    from bunderstack_django.jobs.store.postgresql import PostgreSQL
    from bunderstack_django.jobs.store.sqlite import SQLite

    if how.startswith("slow-"):
        {"slow-reports": slow_reports, "slow-signals": slow_signals}[how]()
        return
    name, way = {**WAYS, "claim-unanswered-and-stopped": ("claim", unanswered_and_stopped)}[how]
    for dialect in (MariaDB, PostgreSQL, SQLite):
        setattr(dialect, name, _once(getattr(dialect, name), way))


def _once(original: Callable[..., Any], way: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    broken = way(original)
    struck: list[bool] = []

    def statement(self: Any, connection: BaseDatabaseWrapper, *args: Any, **kwargs: Any) -> Any:
        # A claim of nothing is no occasion.
        if struck or (original.__name__ == "claim" and not _has_pending(self, connection)):
            return original(self, connection, *args, **kwargs)
        struck.append(True)
        print("SABOTAGE", flush=True)  # noqa: T201
        return broken(self, connection, *args, **kwargs)

    return statement


def _has_pending(dialect: Any, connection: BaseDatabaseWrapper) -> bool:
    return bool(dialect.pending_queues(connection))


if __name__ == "__main__":
    import django

    django.setup()
    sabotage(sys.argv[1])
    execute_from_command_line(["manage.py", *sys.argv[2:]])
