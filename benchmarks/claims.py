"""A claim of ten jobs, with and without many rows beside them that no claim should see."""

from __future__ import annotations

import secrets
import time
from statistics import median
from typing import Any

from .measure import Numbers
from .project import analyze, empty, set_up

WARM_UP = 20
PAUSE = 0.002  # seconds between claims: servers clean up behind them, which a loop without rest outruns
CLAIM = 10
PENDING = 10_000
CHUNK = 250_000  # rows in one INSERT


def prepare(only_pending: str, with_others: str, others: int, claims: int) -> None:
    """Fill one table with pending jobs, the other with ``others`` scheduled and ``others`` ended ones too."""
    from django.core.management import call_command
    from django.db import connections

    _start(only_pending, with_others)
    for alias, rows in (("default", 0), ("with_others", others)):
        call_command("migrate", database=alias, verbosity=0)
        _load(connections[alias], rows)


def claim(only_pending: str, with_others: str, others: int, claims: int) -> Numbers:
    """Claims from both tables in turn, each committed."""
    _start(only_pending, with_others)
    from django.db import connections

    from bunderstack_django.jobs.store import dialect_of

    def milliseconds(alias: str) -> float:
        connection = connections[alias]
        dialect = dialect_of(connection)
        time.sleep(PAUSE)
        begun = time.perf_counter()
        claimed = dialect.claim(
            connection,
            token=secrets.token_hex(16),
            worker="bench",
            queues=None,
            limit=CLAIM,
            lease=30.0,
            at_once=False,
        )
        seconds = time.perf_counter() - begun
        if len(claimed) != CLAIM:
            raise RuntimeError(f"A claim of {CLAIM} got {len(claimed)}.")
        return seconds * 1000

    for _ in range(WARM_UP):
        milliseconds("default")
        milliseconds("with_others")
    pairs = [(milliseconds("default"), milliseconds("with_others")) for _ in range(claims)]
    return {
        "only_pending": median(pair[0] for pair in pairs),
        "with_others": median(pair[1] for pair in pairs),
    }


def _start(only_pending: str, with_others: str) -> None:
    set_up(
        backend="bunderstack_django.backend.DatabaseBackend",
        app="bunderstack_django",
        default=only_pending,
        with_others=with_others,
    )


def _load(connection: Any, others: int) -> None:
    """The pending jobs lie between the others, by age and by id."""
    from bunderstack_django.models import Job

    table = Job._meta.db_table
    empty(connection, table)
    for status, first, count in (
        ("succeeded", 0, others),
        ("pending", others, PENDING),
        ("scheduled", others + PENDING, others),
    ):
        for start in range(first, first + count, CHUNK):
            end = min(start + CHUNK, first + count)
            with connection.cursor() as cursor:
                cursor.execute(_insert(connection.vendor, table, status, start, end))
    analyze(connection, table)
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")


def _insert(vendor: str, table: str, status: str, start: int, end: int) -> str:
    """One INSERT of the rows numbered from ``start`` to before ``end``, made up by the database itself."""
    rows, key, now, moment = _DIALECTS[vendor]
    day = 86_400
    ago, ahead = moment.format(f"-(n % {day})"), moment.format(f"{day} + n % {day}")
    ended = status == "succeeded"
    values = {
        "id": key,
        "name": "'benchmarks.noop'",
        "backend": "'default'",
        "queue_name": "'default'",
        "priority": "0",
        "payload": """'{"args":[],"kwargs":{}}'""",
        "status": f"'{status}'",
        "attempts": "1" if ended else "0",
        "crashes": "0",
        "recovered": "0",
        "max_attempts": "4",
        "run_after": ahead if status == "scheduled" else ago,
        "worker_ids": """'["bench"]'""" if ended else "'[]'",
        "enqueued_at": now,
        "finished_at": ago if ended else "NULL",
        "errors": "'[]'",
        "log": "'[]'",
    }
    source = rows.format(start=start, last=end - 1)
    return f"INSERT INTO {table} ({', '.join(values)}) SELECT {', '.join(values.values())} FROM {source}"


# Per vendor: numbered rows; an id that grows with the number; now; now plus seconds.
_DIALECTS = {
    "postgresql": (
        "generate_series({start}, {last}) AS s(n)",
        "('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid",
        "now()",
        "now() + ({}) * interval '1 second'",
    ),
    "mysql": (
        "(SELECT seq AS n FROM seq_{start}_to_{last}) AS s",
        "CONCAT('01900000-0000-7000-8000-', LPAD(LOWER(HEX(n)), 12, '0'))",
        "UTC_TIMESTAMP(6)",
        "UTC_TIMESTAMP(6) + INTERVAL ({}) SECOND",
    ),
    "sqlite": (
        "(WITH RECURSIVE s(n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s)",
        "'01900000000070008000' || printf('%012x', n)",
        "strftime('%Y-%m-%d %H:%M:%f', 'now')",
        "strftime('%Y-%m-%d %H:%M:%f', 'now', ({}) || ' seconds')",
    ),
}
