"""The database's clock, as one SQL expression per vendor.

Leases and due-ness are decided by the database, never by a host: a worker whose clock is wrong
neither steals a lease nor delays a job. Tests shift this clock for their own process only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Expression

from ..db.fields import UTCDateTimeField

_ZERO: Final = timedelta(0)
_SQLITE_FORMAT: Final = "'%%Y-%%m-%%d %%H:%%M:%%f'"  # doubled: these statements always run with parameters


class _Shift:
    """How this process's clock differs from the database's."""

    fixed: datetime | None = None
    offset: timedelta = _ZERO


_shift = _Shift()


def now_sql(vendor: str) -> str:
    """SQL for the current instant in UTC, in the form the vendor's columns store it."""
    if vendor == "sqlite":
        return f"(strftime({_SQLITE_FORMAT}, {_sqlite_base()}) || '000')"
    if vendor == "postgresql":
        base = f"'{_text(_shift.fixed)}+00'::timestamptz" if _shift.fixed else "statement_timestamp()"
        return f"({base} + {_microseconds()} * interval '1 microsecond')" if _shift.offset else base
    base = f"CAST('{_text(_shift.fixed)}' AS datetime(6))" if _shift.fixed else "UTC_TIMESTAMP(6)"
    return f"({base} + INTERVAL {_microseconds()} MICROSECOND)" if _shift.offset else base


def plus_sql(vendor: str, seconds: str) -> str:
    """SQL for the current instant plus ``seconds``, itself a SQL expression; may be negative."""
    if vendor == "sqlite":
        return f"(strftime({_SQLITE_FORMAT}, {_sqlite_base()}, ({seconds}) || ' seconds') || '000')"
    if vendor == "postgresql":
        return f"({now_sql(vendor)} + ({seconds}) * interval '1 second')"
    # In microseconds: MariaDB rounds INTERVAL … SECOND of a float to whole microseconds of its text form.
    return f"({now_sql(vendor)} + INTERVAL ROUND(({seconds}) * 1000000) MICROSECOND)"


def read(connection: BaseDatabaseWrapper) -> datetime:
    """The database's current instant, aware, in UTC."""
    sql = now_sql(connection.vendor)
    if connection.vendor == "postgresql":
        sql = f"{sql} AT TIME ZONE 'UTC'"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql}", [])
        (found,) = cursor.fetchone()
    return as_utc(found)


def as_utc(found: datetime | str) -> datetime:
    """A value of one of our columns, read raw, as an aware datetime."""
    moment = datetime.fromisoformat(found) if isinstance(found, str) else found
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


@contextmanager
def shifted(*, fixed: datetime | None = None, offset: timedelta = _ZERO) -> Iterator[None]:
    """In this process only, let the clock stand at ``fixed``, or run ``offset`` ahead of its present course."""
    before = _shift.fixed, _shift.offset
    if fixed is not None:
        _shift.fixed, _shift.offset = fixed.astimezone(UTC), _ZERO
    _shift.offset += offset
    try:
        yield
    finally:
        _shift.fixed, _shift.offset = before


def advance(offset: timedelta) -> None:
    """Let this process's clock run ``offset`` further ahead, until ``reset``."""
    _shift.offset += offset


def reset() -> None:
    """Back to the database's own clock."""
    _shift.fixed, _shift.offset = None, _ZERO


class DatabaseNow(Expression):
    """The clock as an ORM expression, plus ``delta``."""

    def __init__(self, delta: timedelta = _ZERO) -> None:
        super().__init__(output_field=UTCDateTimeField())
        self.delta = delta

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, tuple[str | int, ...]]:
        if not self.delta:
            return now_sql(connection.vendor), ()
        return plus_sql(connection.vendor, repr(self.delta.total_seconds())), ()


def _sqlite_base() -> str:
    base = f"'{_text(_shift.fixed)}'" if _shift.fixed else "'now'"
    return f"{base}, '{_shift.offset.total_seconds():+.6f} seconds'" if _shift.offset else base


def _text(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _microseconds() -> int:
    return _shift.offset // timedelta(microseconds=1)
