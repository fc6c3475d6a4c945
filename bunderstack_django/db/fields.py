"""Columns that hold the same value on every database: bytes-compared text, JSON as text, UTC instants."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone


class ByteCharField(models.CharField):  # type: ignore[type-arg]
    """Text compared by its bytes: case, accents and trailing spaces count on every database."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        parameters = super().db_parameters(connection)
        parameters["collation"] = _byte_collation(connection)
        return parameters


class JsonTextField(models.TextField):  # type: ignore[type-arg]
    """A JSON value kept as its text: what was stored is what is read, to the last digit and key order.

    PostgreSQL's jsonb would turn 1e16 into an integer and reorder keys. A text that is no JSON,
    put there by hand, is read as that text instead of breaking every page that lists the row.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = _byte_collation(connection)
        return parameters

    def from_db_value(self, value: str | None, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        if value is None:
            return None
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value

    def get_prep_value(self, value: Any) -> Any:
        if value is None or hasattr(value, "resolve_expression"):
            return value
        return dumps(value)

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: models.Model) -> Any:
        return self.value_from_object(obj)


class UTCDateTimeField(models.DateTimeField):  # type: ignore[type-arg]
    """An instant: stored in UTC and read as an aware datetime, whatever USE_TZ and TIME_ZONE say."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return {"postgresql": "timestamp with time zone", "sqlite": "datetime"}.get(
            connection.vendor, "datetime(6)"
        )

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        # Without USE_TZ psycopg gives naive local time, in which the repeated hour of a DST night is lost.
        if compiler.connection.vendor == "postgresql" and not settings.USE_TZ:
            return f"({sql}) AT TIME ZONE 'UTC'", params
        return sql, params

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> datetime | None:
        if value is None:
            return None
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if connection.vendor == "postgresql" and moment.tzinfo is not None:
            return moment.astimezone(UTC)
        # Other backends store what the clock showed in UTC; a zone of the connection's that Django put on it is wrong.
        return moment.replace(tzinfo=UTC)

    def to_python(self, value: Any) -> datetime | None:
        moment = super().to_python(value)
        return aware(moment) if isinstance(moment, datetime) else None

    def get_prep_value(self, value: Any) -> Any:
        if value is None or hasattr(value, "resolve_expression"):
            return value
        return self.to_python(value)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        moment = value if prepared else self.get_prep_value(value)
        if not isinstance(moment, datetime) or connection.vendor == "postgresql":
            return moment
        moment = moment.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(sep=" ", timespec="microseconds") if connection.vendor == "sqlite" else moment


def aware(moment: datetime) -> datetime:
    """``moment`` as an aware datetime: a naive one is read in the current time zone."""
    return (
        moment if timezone.is_aware(moment) else timezone.make_aware(moment, timezone.get_default_timezone())
    )


def dumps(value: Any) -> str:
    """JSON as we store it: compact, UTF-8 kept readable, NaN and Infinity refused."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _byte_collation(connection: BaseDatabaseWrapper) -> str | None:
    match connection.vendor:
        case "postgresql":
            return "C"
        case "mysql":
            mariadb = getattr(connection, "mysql_is_mariadb", False)
            return "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
        case _:
            return None  # SQLite compares by bytes
