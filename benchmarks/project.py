"""A Django project without files, for the queues that live in one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings

from . import services


def set_up(*, backend: str, app: str, **databases: str) -> None:
    """Configure Django with one app and the given databases by alias."""
    settings.configure(
        SECRET_KEY="only for benchmarks",
        USE_TZ=True,
        INSTALLED_APPS=[app],
        DATABASES={alias: _database(url) for alias, url in databases.items()},
        TASKS={"default": {"BACKEND": backend, "QUEUES": []}},
    )
    django.setup()


def synchronous(database: str) -> str:
    """SQLite's setting of that name: NORMAL, as our documentation has it, unless the URL asks for another."""
    return urlsplit(database).query.removeprefix("synchronous=") or "NORMAL"


def empty(connection: Any, table: str) -> None:
    """Remove every row."""
    verb = "DELETE FROM" if connection.vendor == "sqlite" else "TRUNCATE TABLE"
    with connection.cursor() as cursor:
        cursor.execute(f"{verb} {connection.ops.quote_name(table)}")


def analyze(connection: Any, table: str) -> None:
    """Give the planner the statistics that a server would gather by itself before long; SQLite never would."""
    statement = {"postgresql": "VACUUM ANALYZE", "mysql": "ANALYZE TABLE"}.get(connection.vendor)
    if statement:
        with connection.cursor() as cursor:
            cursor.execute(f"{statement} {connection.ops.quote_name(table)}")


@contextmanager
def count_commits(database: str) -> Iterator[dict[str, int]]:
    """Fills in ``commits`` on PostgreSQL: those of every session of the database that has ended by the end."""
    from django.db import connection

    counted: dict[str, int] = {}
    if not database.startswith("postgres"):
        yield counted
        return
    connection.close()
    time.sleep(0.3)  # a session reports what it did as it ends
    before = services.commits(database)
    yield counted
    connection.close()
    time.sleep(0.3)
    counted["commits"] = services.commits(database) - before


@contextmanager
def count_statements() -> Iterator[dict[str, int]]:
    """Counts what psycopg sends, ``BEGIN`` and ``COMMIT`` aside."""
    import psycopg

    counted = {"statements": 0}
    execute = psycopg.Cursor.execute

    def counting(*args: Any, **kwargs: Any) -> Any:
        counted["statements"] += 1
        return execute(*args, **kwargs)

    psycopg.Cursor.execute = counting  # type: ignore[method-assign,assignment]
    try:
        yield counted
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]


def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": parts.path,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": f"PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous(url)};",
            },
        }
    engine = "mysql" if parts.scheme == "mysql" else "postgresql"
    return {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": parts.path.lstrip("/"),
        **{key.upper(): value for key, value in services.credentials(parts).items()},
        "OPTIONS": {"charset": "utf8mb4"} if engine == "mysql" else {},
    }
