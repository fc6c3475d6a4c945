"""The statements of the job table on SQLite.

Each is one autocommit statement. A write takes SQLite's only write lock even if it changes nothing, so
statements that an idle worker repeats look first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from django.db.backends.base.base import BaseDatabaseWrapper

from .dialect import ORDER, Dialect
from .rows import Claimed, Inserted, NewJob, Pulse, Settled, Settlement


class SQLite(Dialect):
    shortened: ClassVar[str] = "substr(worker_ids, 1, length(worker_ids) - 1)"

    def insert(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[Inserted]:
        insert, parameters = self.insert_sql(jobs)
        sql = f"{insert} ON CONFLICT DO NOTHING RETURNING id, status, enqueued_at"
        return [Inserted(*row) for row in self.fetch(connection, sql, parameters)]

    def _claim(
        self,
        connection: BaseDatabaseWrapper,
        assigned: tuple[str, ...],
        assignments: str,
        queues: Sequence[str] | None,
        limit: int,
    ) -> list[Claimed]:
        chosen, parameters = self._candidates(queues, limit)
        if not self.fetch(connection, f"SELECT 1 FROM ({chosen}) LIMIT 1", parameters):
            return []
        sql = f"UPDATE {self.table} SET {assignments} WHERE id IN ({chosen}) RETURNING {self.claimed_columns}"
        return self.as_claimed(self.fetch(connection, sql, (*assigned, *parameters)))

    def _candidates(self, queues: Sequence[str] | None, limit: int) -> tuple[str, tuple[Any, ...]]:
        select = f"SELECT id, priority, run_after FROM {self.table} WHERE status = 'pending'"
        tail = f"ORDER BY {ORDER} LIMIT {limit:d}"
        if queues is None:
            return f"SELECT id FROM ({select} {tail})", ()
        # One index range per queue, merged: a filter over all queues would walk past a foreign backlog.
        each = " UNION ALL ".join(f"SELECT * FROM ({select} AND queue_name = %s {tail})" for _ in queues)
        return f"SELECT id FROM ({each}) {tail}", tuple(queues)

    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> int:
        due = (
            f"SELECT id FROM {self.table} WHERE status = 'scheduled' AND run_after <= {self.now} "
            f"ORDER BY run_after, id LIMIT {limit:d}"
        )
        if not self.fetch(connection, f"SELECT 1 FROM ({due}) LIMIT 1", ()):
            return 0
        return self.run(connection, f"UPDATE {self.table} SET status = 'pending' WHERE id IN ({due})", ())

    def prune(
        self, connection: BaseDatabaseWrapper, *, status: str, name: str, older_than: float, limit: int
    ) -> int:
        old = (
            f"SELECT id FROM {self.table} WHERE status = %s AND name = %s AND finished_at IS NOT NULL "
            f"AND finished_at < {self.plus(repr(-older_than))} ORDER BY finished_at LIMIT {limit:d}"
        )
        if not self.fetch(connection, f"SELECT 1 FROM ({old}) LIMIT 1", (status, name)):
            return 0
        return self.run(connection, f"DELETE FROM {self.table} WHERE id IN ({old})", (status, name))

    def _settle(
        self, connection: BaseDatabaseWrapper, settlements: Sequence[Settlement], lapsed_only: bool
    ) -> list[Settled]:
        columns = tuple(Settlement.__dataclass_fields__)
        used = {name for each in settlements for name in columns if getattr(each, name) is not None}
        sql = (
            f"UPDATE {self.table} AS j SET {self.settle_set(lapsed_only)} FROM {self.rows_sql(columns, used)} "
            f"WHERE j.id = v.id AND j.lease_token = v.token AND j.status = 'running'"
            f"{f' AND j.locked_until < {self.now}' if lapsed_only else ''} RETURNING id, status"
        )
        return [Settled(*row) for row in self.fetch(connection, sql, (self.settle_rows(settlements),))]

    def _pulse(
        self, connection: BaseDatabaseWrapper, pulses: Sequence[Pulse], lease: float
    ) -> dict[Any, bool]:
        columns = tuple(Pulse.__dataclass_fields__)
        sql = (
            f"UPDATE {self.table} AS j SET {self.pulse_set(lease)} FROM {self.rows_sql(columns)} "
            f"WHERE j.id = v.id AND j.lease_token = v.token AND j.status = 'running' "
            "RETURNING id, cancel_requested_at"
        )
        return {
            key: asked is not None for key, asked in self.fetch(connection, sql, (self.pulse_rows(pulses),))
        }

    def rows_sql(self, columns: Iterable[str], used: set[str] | None = None) -> str:
        # Each extraction costs; what no row has is NULL without one.
        extracted = ", ".join(
            f"json_extract(value, '$.{name}') AS {name}"
            if used is None or name in used
            else f"NULL AS {name}"
            for name in columns
        )
        return f"(SELECT {extracted} FROM json_each(%s)) AS v"
