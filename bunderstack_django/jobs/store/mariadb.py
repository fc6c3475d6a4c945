"""The statements of the job table on MariaDB.

It has SKIP LOCKED but no UPDATE … RETURNING: batches are a locking SELECT, then a write by primary key, in
one transaction. Writing by key only keeps the lock order, and so the deadlocks, down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar
from zlib import crc32

from django.db import IntegrityError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..models import DedupeLock
from .dialect import ORDER, Dialect
from .rows import Claimed, Inserted, NewJob, Pulse, Settled, Settlement

_TYPES = {
    "id": "char(36)",
    "priority": "smallint",
    "max_attempts": "int",
    "attempts": "int",
    "crashes": "int",
    "recovered": "int",
    "delay": "double",
    "started_ago": "double",
    "ended_ago": "double",
    "run_after": "datetime(6)",
    "token": "varchar(64)",
    "status": "varchar(16)",
    "reason": "varchar(16)",
}


class MariaDB(Dialect):
    @property
    def by_key(self) -> str:
        """The job table, looked up by key: on a small one the optimizer would scan an index, and lock all it sees."""
        return f"{self.table} j FORCE INDEX (PRIMARY)"

    target: ClassVar[str] = "j."
    held_key: ClassVar[str] = "dedupe_key_while_active = %s"
    shortened: ClassVar[str] = "LEFT(worker_ids, CHAR_LENGTH(worker_ids) - 1)"

    def insert(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[Inserted]:
        keyed = [job for job in jobs if job.dedupe_key is not None]
        if not keyed:
            return self._insert(connection, jobs)
        with self.transaction(connection):
            self._lock_keys(connection, {(job.name, str(job.dedupe_key)) for job in keyed})
            taken = self._taken(connection, keyed)
            wanted: list[NewJob] = []
            for job in jobs:
                key = (job.name, job.dedupe_key)
                if job.dedupe_key is None or key not in taken:
                    wanted.append(job)
                    taken.add(key)
            return self._insert_unless_taken(connection, wanted) if wanted else []

    def _insert(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[Inserted]:
        insert, parameters = self.insert_sql(jobs)
        sql = f"{insert} RETURNING id, status, enqueued_at"
        return [Inserted(*row) for row in self.fetch(connection, sql, parameters)]

    def _insert_unless_taken(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[Inserted]:
        """As ``_insert``; nothing if a row made past the locks, by hand, has taken a key meanwhile."""
        try:
            with self.transaction(connection):
                return self._insert(connection, jobs)
        except IntegrityError:
            return []

    def lock_key(self, connection: BaseDatabaseWrapper, name: str, dedupe_key: str | None) -> None:
        if dedupe_key is not None:
            self._lock_keys(connection, {(name, dedupe_key)})

    def _lock_keys(self, connection: BaseDatabaseWrapper, keys: set[tuple[str, str]]) -> None:
        """Queue behind every rival for these keys. Always in ascending order, so that two never wait crosswise."""
        slots = sorted({crc32("\0".join(key).encode()) % DedupeLock.COUNT for key in keys})
        table = DedupeLock._meta.db_table
        listed = ", ".join(map(str, slots))
        sql = f"SELECT id FROM {table} WHERE id IN ({listed}) ORDER BY id FOR UPDATE"
        if len(self.fetch(connection, sql, ())) < len(slots):  # a test's flush took the seeded rows
            self.run(
                connection, f"INSERT IGNORE INTO {table} (id) VALUES {', '.join(f'({s})' for s in slots)}", ()
            )
            self.fetch(connection, sql, ())

    def _taken(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> set[tuple[str, str | None]]:
        """Of these keys, those an unended job holds. No locking read: that would lock index and row crosswise to a
        settlement, and behind the locks of the keys none is needed at READ COMMITTED."""
        pairs = ", ".join("(%s, %s)" for _ in jobs)
        sql = f"SELECT name, dedupe_key FROM {self.table} WHERE (name, dedupe_key_while_active) IN ({pairs})"
        parameters = [value for job in jobs for value in (job.name, job.dedupe_key)]
        return set(self.fetch(connection, sql, parameters))

    def _claim(
        self,
        connection: BaseDatabaseWrapper,
        assigned: tuple[str, ...],
        assignments: str,
        queues: Sequence[str] | None,
        limit: int,
    ) -> list[Claimed]:
        with self.transaction(connection):
            keys = self._candidates(connection, queues, limit)
            if not keys:
                return []
            marks = ", ".join(["%s"] * len(keys))
            self.run(
                connection,
                f"UPDATE {self.table} FORCE INDEX (PRIMARY) SET {assignments} WHERE id IN ({marks})",
                (*assigned, *keys),
            )
            sql = f"SELECT {self.claimed_columns} FROM {self.table} WHERE id IN ({marks})"
            return self.as_claimed(self.fetch(connection, sql, keys))

    def _candidates(
        self, connection: BaseDatabaseWrapper, queues: Sequence[str] | None, limit: int
    ) -> list[Any]:
        select = f"SELECT priority, run_after, id FROM {self.table} WHERE status = 'pending'"
        tail = f"ORDER BY {ORDER} LIMIT {limit:d} FOR UPDATE SKIP LOCKED"
        if queues is None:
            return [row[2] for row in self.fetch(connection, f"{select} {tail}", ())]
        found = [
            row
            for queue in queues
            for row in self.fetch(connection, f"{select} AND queue_name = %s {tail}", (queue,))
        ]
        found.sort(key=lambda row: (-row[0], row[1], str(row[2])))
        return [row[2] for row in found[:limit]]

    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> int:
        sql = (
            f"SELECT id FROM {self.table} WHERE status = 'scheduled' AND run_after <= {self.now} "
            f"ORDER BY run_after, id LIMIT {limit:d} FOR UPDATE SKIP LOCKED"
        )
        with self.transaction(connection):
            return self._by_key(
                connection, f"UPDATE {self.table} FORCE INDEX (PRIMARY) SET status = 'pending'", sql, ()
            )

    def prune(
        self, connection: BaseDatabaseWrapper, *, status: str, name: str, older_than: float, limit: int
    ) -> int:
        sql = (
            f"SELECT id FROM {self.table} WHERE status = %s AND name = %s "
            f"AND finished_at < {self.plus(repr(-older_than))} ORDER BY finished_at LIMIT {limit:d} "
            "FOR UPDATE SKIP LOCKED"
        )
        with self.transaction(connection):
            rows = [{"id": self.id_text(row[0])} for row in self.fetch(connection, sql, (status, name))]
            # A plain DELETE … WHERE id IN (…) scans a small table, and locks all it sees.
            delete = f"DELETE j FROM {self.rows_sql(('id',))} STRAIGHT_JOIN {self.by_key} ON j.id = v.id"
            return self.run(connection, delete, (self.json_rows(rows),)) if rows else 0

    def _by_key(
        self, connection: BaseDatabaseWrapper, write: str, select: str, parameters: Sequence[Any]
    ) -> int:
        keys = [row[0] for row in self.fetch(connection, select, parameters)]
        if not keys:
            return 0
        return self.run(connection, f"{write} WHERE id IN ({', '.join(['%s'] * len(keys))})", keys)

    def _settle(
        self, connection: BaseDatabaseWrapper, settlements: Sequence[Settlement], lapsed_only: bool
    ) -> list[Settled]:
        lapsed = f" AND locked_until < {self.now}" if lapsed_only else ""
        columns = tuple(Settlement.__dataclass_fields__)
        sql = (
            f"UPDATE {self.rows_sql(columns)} STRAIGHT_JOIN {self.by_key} ON j.id = v.id AND j.lease_token = v.token "
            f"SET {self.settle_set(lapsed_only)} WHERE j.status = 'running'"
        )
        with self.transaction(connection):
            held = self._still_held(connection, settlements, lapsed)
            landing = [each for each in settlements if (str(each.id), each.token) in held]
            if not landing:
                return []
            self.run(connection, sql, (self.settle_rows(landing),))
            return [
                Settled(each.id, self._settled_as(each, cancelled=held[str(each.id), each.token]))
                for each in landing
            ]

    def _pulse(
        self, connection: BaseDatabaseWrapper, pulses: Sequence[Pulse], lease: float
    ) -> dict[Any, bool]:
        columns = tuple(Pulse.__dataclass_fields__)
        sql = (
            f"UPDATE {self.rows_sql(columns)} STRAIGHT_JOIN {self.by_key} ON j.id = v.id AND j.lease_token = v.token "
            f"SET {self.pulse_set(lease)} WHERE j.status = 'running'"
        )
        with self.transaction(connection):
            held = self._still_held(connection, pulses, "")
            renewed = [each for each in pulses if (str(each.id), each.token) in held]
            if renewed:
                self.run(connection, sql, (self.pulse_rows(renewed),))
        return {each.id: held[key] for each in pulses if (key := (str(each.id), each.token)) in held}

    def _still_held(
        self, connection: BaseDatabaseWrapper, claims: Sequence[Settlement] | Sequence[Pulse], condition: str
    ) -> dict[tuple[str, str], bool]:
        """Lock the rows still running under these tokens; maps each to whether its cancel was requested."""
        marks = ", ".join(["%s"] * len(claims))
        sql = (
            f"SELECT id, lease_token, cancel_requested_at IS NOT NULL FROM {self.table} FORCE INDEX (PRIMARY) "
            f"WHERE id IN ({marks}) AND status = 'running'{condition} ORDER BY id "
            "FOR UPDATE SKIP LOCKED"  # someone's open transaction on one row must not hold up all the others
        )
        tokens = {(str(each.id), each.token) for each in claims}
        rows = self.fetch(connection, sql, [self.id_text(each.id) for each in claims])
        return {(str(key), token): bool(asked) for key, token, asked in rows if (str(key), token) in tokens}

    @staticmethod
    def _settled_as(settlement: Settlement, *, cancelled: bool) -> str:
        return "cancelled" if cancelled and settlement.status != "succeeded" else settlement.status.value

    def rows_sql(self, columns: Iterable[str]) -> str:
        listed = ", ".join(f"{name} {_TYPES.get(name, 'longtext')} PATH '$.{name}'" for name in columns)
        return f"JSON_TABLE(%s, '$[*]' COLUMNS ({listed})) AS v"

    def concat(self, *parts: str) -> str:
        return f"CONCAT({', '.join(parts)})"

    def transaction(self, connection: BaseDatabaseWrapper) -> AbstractContextManager[Any]:
        return transaction.atomic(using=connection.alias)
