"""The servers that are measured on, and databases of our own in them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

PREFIX: Final = "bunderstack_bench_"
SERVERS: Final = {
    "PostgreSQL": ("BENCH_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/postgres"),
    "MariaDB": ("BENCH_MARIADB_URL", "mysql://root@127.0.0.1:3306/"),
    "RabbitMQ": ("BENCH_RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:5672//"),
}
SQLITE: Final = {"SQLite": "", "SQLite FULL": "?synchronous=FULL"}  # what it adds to the URL
_PORTS: Final = {"PostgreSQL": 5432, "MariaDB": 3306, "RabbitMQ": 5672}


def server(store: str) -> str:
    variable, default = SERVERS[store]
    return os.environ.get(variable, default)


def problem(store: str) -> str | None:
    """Why ``store`` cannot be used, or None."""
    if store in SQLITE:
        return None
    try:
        parts = urlsplit(server(store))
        socket.create_connection((parts.hostname or "", parts.port or _PORTS[store]), timeout=3).close()
        if store != "RabbitMQ":
            version(store)
    except Exception as error:
        reason = str(error).strip().splitlines()
        return f"{store} is not to be had ({reason[0] if reason else type(error).__name__}); set {SERVERS[store][0]}"
    return None


def version(store: str) -> str:
    if store in SQLITE:
        import sqlite3

        return sqlite3.sqlite_version
    if store == "PostgreSQL":
        return str(_ask(store, "SHOW server_version")[0][0]).split()[0]
    return str(_ask(store, "SELECT version()")[0][0]).split("-")[0]


def settings(store: str) -> str:
    """What of the server's settings matters most to a queue."""
    if store == "PostgreSQL":
        names = ("fsync", "synchronous_commit", "shared_buffers")
        return ", ".join(f"{name}={_ask(store, f'SHOW {name}')[0][0]}" for name in names)
    if store == "MariaDB":
        names = ("innodb_flush_log_at_trx_commit", "sync_binlog", "innodb_buffer_pool_size")
        return ", ".join(f"{name}={_ask(store, f'SELECT @@{name}')[0][0]}" for name in names)
    return "journal_mode=WAL, synchronous=NORMAL"


def commits(database: str) -> int:
    """How many transactions have committed in this PostgreSQL database, as of the sessions that have ended."""
    name = urlsplit(database).path.lstrip("/")
    return int(_ask("PostgreSQL", f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{name}'")[0][0])


@contextmanager
def database(store: str, label: str) -> Iterator[str]:
    """A new, empty database, dropped at the end; gives its URL."""
    if store == "RabbitMQ":
        yield server(store)
    elif store in SQLITE:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        try:
            yield f"sqlite://{Path(folder) / label}.sqlite3{SQLITE[store]}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    else:
        name = PREFIX + label
        force = " WITH (FORCE)" if store == "PostgreSQL" else ""
        _ask(store, f"DROP DATABASE IF EXISTS {name}{force}", f"CREATE DATABASE {name}")
        try:
            yield urlsplit(server(store))._replace(path=f"/{name}").geturl()
        finally:
            _ask(store, f"DROP DATABASE IF EXISTS {name}{force}")


def credentials(parts: SplitResult) -> dict[str, Any]:
    """Of a URL, as the drivers name them."""
    return {
        "host": parts.hostname or "",
        "port": parts.port or 0,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
    }


def _ask(store: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements on the server; the rows of the last one."""
    url = server(store)
    if store == "PostgreSQL":
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []
    import MySQLdb

    given = {key: value for key, value in credentials(urlsplit(url)).items() if value}
    mariadb = MySQLdb.connect(**given, charset="utf8mb4")
    try:
        cursor = mariadb.cursor()
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall() or ())
    finally:
        mariadb.close()
