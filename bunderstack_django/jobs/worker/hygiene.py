"""Leaving no trace between jobs: transactions, broken connections, query logs."""

from __future__ import annotations

import logging
import time
from typing import Any

from django.db import connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("bunderstack_django.jobs")

IDLE = 30.0  # seconds after which a connection is checked before its next use


class Hygiene:
    """One thread's connections, looked after without a query per job."""

    def __init__(self) -> None:
        self._last_used = time.monotonic()
        self._used: set[str] = set()  # aliases that the job sent statements to
        self._watched: set[str] = set()

    def before_job(self) -> None:
        """Drop connections that broke while the thread was idle."""
        if time.monotonic() - self._last_used > IDLE:
            for connection in connections.all(initialized_only=True):
                if connection.connection is not None and not connection.is_usable():
                    connection.close()

    def watch(self) -> None:
        """Note which MariaDB connections a job uses: only the server can tell whether it left a transaction open."""
        for connection in connections.all():
            if connection.vendor == "mysql" and connection.alias not in self._watched:
                self._watched.add(connection.alias)
                connection.execute_wrappers.append(self._note)

    def _note(self, execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        self._used.add(context["connection"].alias)
        return execute(sql, params, many, context)

    def after_job(self, name: str, *, interrupted: bool = False) -> None:
        """Roll back what a handler left open, and replace what it broke.

        :param interrupted: by its timeout, perhaps in the middle of talking to a database.
        """
        for connection in connections.all(initialized_only=True):
            if connection.connection is not None:
                try:
                    if interrupted:
                        abandon(connection)
                    else:
                        _tidy(connection, name, used=connection.alias in self._used)
                except Exception:
                    # A handler may leave anything behind, a driver's connection closed under Django's for one.
                    logger.warning(
                        "A handler left a broken connection; it was replaced name=%s", name, exc_info=True
                    )
                    abandon(connection)
        self._used.clear()
        reset_queries()
        self._last_used = time.monotonic()


def _tidy(connection: BaseDatabaseWrapper, name: str, *, used: bool) -> None:
    if _has_open_transaction(connection, used=used):
        logger.warning("A handler left a transaction open; it was rolled back name=%s", name)
        abandon(connection)
    elif connection.errors_occurred or _is_too_old(connection):
        connection.close_if_unusable_or_obsolete()


def abandon(connection: BaseDatabaseWrapper) -> None:
    """Close ``connection`` whatever state it is in; the server rolls back."""
    connection.in_atomic_block = False
    if (
        connection.closed_in_transaction
    ):  # by the handler: there is nothing left to close, and Django keeps the corpse
        connection.closed_in_transaction = False
        connection.connection = None
    connection.needs_rollback = False
    connection.savepoint_ids = []
    connection.run_on_commit = []
    try:
        connection.close()
    except Exception:  # noqa: BLE001 - drivers raise their own errors here
        connection.connection = None


def _has_open_transaction(connection: BaseDatabaseWrapper, *, used: bool) -> bool:
    if connection.in_atomic_block or not connection.get_autocommit():
        return True
    raw = connection.connection
    match connection.vendor:
        case "postgresql":
            return not raw.closed and bool(raw.info.transaction_status)  # 0 = idle
        case "sqlite":
            return bool(raw.in_transaction)
        case "mysql" if used:
            with connection.cursor() as cursor:
                cursor.execute("SELECT @@in_transaction", [])
                return bool(cursor.fetchone()[0])
        case _:
            return False


def _is_too_old(connection: BaseDatabaseWrapper) -> bool:
    # CONN_MAX_AGE=0, Django's default, would mean a new connection per job; a worker keeps its own.
    return bool(connection.settings_dict["CONN_MAX_AGE"]) and (
        connection.close_at is not None and time.monotonic() >= connection.close_at
    )
