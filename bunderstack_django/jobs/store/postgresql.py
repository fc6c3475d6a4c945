"""The statements of the job table on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.psycopg_any import is_psycopg3

from .dialect import ORDER, Dialect, Rows
from .rows import Claimed, Inserted, NewJob, Pulse, Settled, Settlement

_TYPES = {
    "id": "uuid",
    "priority": "smallint",
    "max_attempts": "integer",
    "attempts": "integer",
    "crashes": "integer",
    "recovered": "integer",
    "delay": "double precision",
    "started_ago": "double precision",
    "ended_ago": "double precision",
}


class PostgreSQL(Dialect):
    """Batches by ``id = ANY(ARRAY(SELECT … SKIP LOCKED))``.

    ``IN (SELECT … LIMIT)`` loses its LIMIT when stale statistics make the planner run the sub-select per row.
    The LIMIT is a literal: a prepared parameter there can flip the plan to a full scan.
    """

    instants_read: ClassVar[str] = "{0} AT TIME ZONE 'UTC' AS {0}"
    text_parameter: ClassVar[str] = "%s::text"
    shortened: ClassVar[str] = "left(worker_ids, -1)"

    def id_read(self, key: UUID) -> Any:
        return key

    def insert(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[Inserted]:
        insert, parameters = self.insert_sql(jobs)
        sql = f"{insert} ON CONFLICT DO NOTHING RETURNING id, status, enqueued_at AT TIME ZONE 'UTC'"
        # A lone INSERT takes the server as long to plan as to run.
        fetch = self.fetch_prepared if len(jobs) == 1 else self.fetch
        return [Inserted(*row) for row in fetch(connection, sql, parameters)]

    def _claim(
        self,
        connection: BaseDatabaseWrapper,
        assigned: tuple[str, ...],
        assignments: str,
        queues: Sequence[str] | None,
        limit: int,
    ) -> list[Claimed]:
        chosen, parameters = self._candidates(queues, limit)
        sql = (
            f"UPDATE {self.table} SET {assignments} "
            f"WHERE id = ANY(ARRAY({chosen})) RETURNING {self.claimed_columns}"
        )
        rows = self.fetch_prepared(connection, sql, (*assigned, *parameters))
        return self.as_claimed(rows)

    def _candidates(self, queues: Sequence[str] | None, limit: int) -> tuple[str, tuple[Any, ...]]:
        select = f"SELECT id FROM {self.table} WHERE status = 'pending'"
        tail = f"ORDER BY {ORDER} LIMIT {limit:d} FOR UPDATE SKIP LOCKED"
        if queues is None:
            return f"{select} {tail}", ()
        if len(queues) == 1:
            return f"{select} AND queue_name = %s {tail}", (queues[0],)
        # One index range per queue, merged: a filter over all queues would walk past a foreign backlog.
        each = (
            f"SELECT id, priority, run_after FROM {self.table} WHERE status = 'pending' "
            f"AND queue_name = q.name {tail}"
        )
        return (
            f"SELECT c.id FROM unnest(%s::text[]) AS q(name) CROSS JOIN LATERAL ({each}) c "
            f"ORDER BY c.priority DESC, c.run_after, c.id LIMIT {limit:d}",
            (list(queues),),
        )

    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> int:
        sql = (
            f"UPDATE {self.table} SET status = 'pending' WHERE id = ANY(ARRAY(SELECT id FROM {self.table} "
            f"WHERE status = 'scheduled' AND run_after <= {self.now} ORDER BY run_after, id LIMIT {limit:d} "
            "FOR UPDATE SKIP LOCKED))"
        )
        return self.run(connection, sql, ())

    def prune(
        self, connection: BaseDatabaseWrapper, *, status: str, name: str, older_than: float, limit: int
    ) -> int:
        sql = (
            f"DELETE FROM {self.table} WHERE id = ANY(ARRAY(SELECT id FROM {self.table} "
            f"WHERE status = %s AND name = %s AND finished_at < {self.plus(repr(-older_than))} "
            f"ORDER BY finished_at LIMIT {limit:d} FOR UPDATE SKIP LOCKED))"
        )
        return self.run(connection, sql, (status, name))

    def _settle(
        self, connection: BaseDatabaseWrapper, settlements: Sequence[Settlement], lapsed_only: bool
    ) -> list[Settled]:
        columns = tuple(Settlement.__dataclass_fields__)
        sql = (
            f"UPDATE {self.table} j SET {self.settle_set(lapsed_only)} FROM {self.rows_sql(columns)} "
            f"WHERE {self.reachable} AND j.id = v.id AND j.lease_token = v.token AND j.status = 'running'"
            f"{f' AND j.locked_until < {self.now}' if lapsed_only else ''} RETURNING j.id, j.status"
        )
        ids = [self.id_text(each.id) for each in settlements]
        rows = self.fetch_prepared(connection, sql, (self.settle_rows(settlements), ids))
        return [Settled(*row) for row in rows]

    def _pulse(
        self, connection: BaseDatabaseWrapper, pulses: Sequence[Pulse], lease: float
    ) -> dict[Any, bool]:
        columns = tuple(Pulse.__dataclass_fields__)
        sql = (
            f"UPDATE {self.table} j SET {self.pulse_set(lease)} FROM {self.rows_sql(columns)} "
            f"WHERE {self.reachable} AND j.id = v.id AND j.lease_token = v.token AND j.status = 'running' "
            "RETURNING j.id, j.cancel_requested_at IS NOT NULL"
        )
        ids = [self.id_text(each.id) for each in pulses]
        return dict(self.fetch_prepared(connection, sql, (self.pulse_rows(pulses), ids)))

    @property
    def reachable(self) -> str:
        """A condition on ``j``, with the ids as its parameter: not locked by another.

        Someone's open transaction on one row, a cancel in a slow request say, must not hold up all the others.
        """
        return (
            f"j.id = ANY(ARRAY(SELECT id FROM {self.table} WHERE id = ANY(%s::uuid[]) "
            "AND status = 'running' ORDER BY id FOR UPDATE SKIP LOCKED))"
        )

    def rows_sql(self, columns: Iterable[str]) -> str:
        typed = ", ".join(f"{name} {_TYPES.get(name, 'text')}" for name in columns)
        return f"json_to_recordset(%s::json) AS v({typed})"

    def instant(self, text: str) -> str:
        return f"({text} || '+00')::timestamptz"

    def fetch_prepared(self, connection: BaseDatabaseWrapper, sql: str, parameters: Sequence[Any]) -> Rows:
        """As ``fetch``, planned once per connection: planning a claim costs as much as running it.

        Not behind PgBouncer's transaction pooling, which DISABLE_SERVER_SIDE_CURSORS tells Django of.
        """
        # A raw cursor passes by what watches Django's: its query log, and wrappers of instrumentation.
        is_watched = connection.queries_logged or connection.execute_wrappers
        if not is_psycopg3 or is_watched or connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
            return self.fetch(connection, sql, parameters)
        from psycopg import Cursor

        connection.ensure_connection()
        raw = connection.connection
        connection.validate_no_broken_transaction()
        threshold = raw.prepare_threshold
        if threshold is None:
            raw.prepare_threshold = 5  # psycopg ignores prepare=True while this is None, Django's default
        try:
            with connection.wrap_database_errors, Cursor(raw) as cursor:
                cursor.execute(sql, parameters, prepare=True)
                return cursor.fetchall()
        finally:
            raw.prepare_threshold = threshold  # the project's own statements go on as they were
