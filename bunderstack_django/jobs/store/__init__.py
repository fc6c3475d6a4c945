"""Every query of the job table. Nothing outside this package writes to it.

The statements of a job's hot path are raw SQL, a dialect each (``dialect_of``); what a person or a page asks
for goes through the ORM (``records``). Workers and what they agree on have their own tables (``workers``).
"""

from __future__ import annotations

from functools import lru_cache

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ...exceptions import BunderstackError
from .dialect import Dialect


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """The statements for ``connection``'s database."""
    return _dialect(connection.alias, connection.vendor)


@lru_cache(maxsize=32)
def _dialect(alias: str, vendor: str) -> Dialect:
    connection = connections[alias]
    match vendor:
        case "postgresql":
            from .postgresql import PostgreSQL

            return PostgreSQL(connection)
        case "sqlite":
            from .sqlite import SQLite

            return SQLite(connection)
        case "mysql" if getattr(connection, "mysql_is_mariadb", False):
            from .mariadb import MariaDB

            return MariaDB(connection)
    raise BunderstackError(
        f"Jobs can be kept in PostgreSQL, MariaDB or SQLite; database {alias!r} is {vendor}."
    )
