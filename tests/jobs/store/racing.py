"""Real connections that race: threads that start together, each with a connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from time import monotonic, sleep
from typing import Any

from django.db import connection, connections

PATIENCE = 30.0  # seconds after which a race that hangs fails


def race(*runners: Callable[[], Any]) -> list[Any]:
    """Run all at the same moment; what each returned, in order. The first error is raised."""
    return [future.result(PATIENCE) for future in start(*runners)]


def outcomes(*runners: Callable[[], Any]) -> list[Any]:
    """As ``race``, with an exception as the outcome of a runner that raised one."""
    return [future.exception(PATIENCE) or future.result() for future in start(*runners)]


def start(*runners: Callable[[], Any]) -> list[Future[Any]]:
    """Let all begin at the same moment, each on an open connection of its own."""
    barrier = Barrier(len(runners))

    def run(runner: Callable[[], Any]) -> Any:
        try:
            connection.ensure_connection()
            barrier.wait(PATIENCE)
            return runner()
        finally:
            connections.close_all()

    pool = ThreadPoolExecutor(len(runners))
    futures = [pool.submit(run, runner) for runner in runners]
    pool.shutdown(wait=False)
    return futures


def until_blocked(count: int) -> None:
    """Wait until so many connections wait for a lock of this database."""
    deadline = monotonic() + PATIENCE
    if connection.vendor == "sqlite":  # which does not tell: a waiter there polls for the one write lock
        sleep(0.2)
        return
    while _blocked() < count:
        assert monotonic() < deadline, f"{count} connections were to wait for a lock; {_blocked()} do"
        sleep(0.15)  # MariaDB keeps the answer for 0.1 s from the last question


def _blocked() -> int:
    sql = {
        "postgresql": "SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_database d ON d.datname = current_database() "
        "WHERE NOT l.granted AND (l.database = d.oid OR l.database IS NULL)",
        "mysql": "SELECT count(*) FROM information_schema.processlist p "
        "JOIN information_schema.innodb_trx t ON t.trx_mysql_thread_id = p.id "
        "WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return int(cursor.fetchone()[0])
