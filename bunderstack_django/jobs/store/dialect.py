"""The SQL of the job table that the databases share, in fragments that each dialect fills in.

Several rows travel as one JSON parameter, so that a statement's text never depends on their number.
Statuses are literals, never parameters: a planner can only use a partial index whose condition it can see.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.functional import cached_property

from ...runtime.clock import now_sql, plus_sql
from ..models import Job
from .rows import (
    CLAIMED_COLUMNS,
    Claimed,
    Inserted,
    NewJob,
    Pulse,
    Row,
    Settled,
    Settlement,
    portions,
    weight,
)

ORDER = "priority DESC, run_after, id"
BATCH_BYTES = 8 * 1024 * 1024  # of one statement
Rows = list[tuple[Any, ...]]

# Of a NewJob, what many have in common, and what the store adds; ``_INSERTED`` is the order of both in an INSERT.
_COMMON = ("name", "backend", "queue_name", "priority", "max_attempts", "dedupe_key", "concurrency_key")
_common = attrgetter(*_COMMON)
_INSERTED = (
    f"id, payload, {', '.join(_COMMON)}, "
    "run_after, status, attempts, crashes, recovered, worker_ids, errors, log, enqueued_at"
)
_SETTLED = tuple(f.name for f in fields(Settlement))
_PULSE = tuple(f.name for f in fields(Pulse))


class Dialect(ABC):
    """The statements of one database. Methods take the connection to use; none opens a transaction it need not."""

    instants_read: ClassVar[str] = "{}"  # how an instant column is selected

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.vendor = connection.vendor
        self.native_uuid = connection.features.has_native_uuid_field
        self.table = Job._meta.db_table

    # The public statements, in the order of a job's life.

    @abstractmethod
    def insert(self, connection: BaseDatabaseWrapper, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Insert ``jobs``; those whose dedupe key is held are left out. Waits for a rival's open transaction."""

    def lock_key(self, connection: BaseDatabaseWrapper, name: str, dedupe_key: str | None) -> None:  # noqa: B027
        """Within a transaction: wait for whoever enqueues this key, where the unique index alone would deadlock."""

    def claim(
        self,
        connection: BaseDatabaseWrapper,
        *,
        token: str,
        worker: str,
        queues: Sequence[str] | None,
        limit: int,
        lease: float,
        at_once: bool,
    ) -> list[Claimed]:
        """Take up to ``limit`` pending jobs of ``queues`` (None = all), in claim order.

        ``at_once`` says that each has an idle thread: their handlers count as started by this statement.
        """
        wanted = None if queues is None else list(dict.fromkeys(queues))
        if wanted == []:
            return []
        quoted = json.dumps(worker)[1:-1]  # for the JSON of worker_ids
        return self._claim(
            connection, (token, worker, quoted, quoted), self.claim_set(lease, at_once), wanted, limit
        )

    @abstractmethod
    def _claim(
        self,
        connection: BaseDatabaseWrapper,
        assigned: tuple[str, ...],
        assignments: str,
        queues: Sequence[str] | None,
        limit: int,
    ) -> list[Claimed]:
        """Claim by ``SET assignments``, whose parameters are ``assigned``."""

    @abstractmethod
    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> int:
        """Make up to ``limit`` due scheduled jobs pending."""

    @abstractmethod
    def prune(
        self, connection: BaseDatabaseWrapper, *, status: str, name: str, older_than: float, limit: int
    ) -> int:
        """Delete up to ``limit`` jobs of ``name`` that ended as ``status`` more than ``older_than`` seconds ago."""

    def settle(
        self, connection: BaseDatabaseWrapper, settlements: Iterable[Settlement], *, lapsed_only: bool = False
    ) -> list[Settled]:
        """Write outcomes, each fenced by its token; those not returned have lost their lease.

        :param lapsed_only: settle for another worker, whose lease must have run out.
        """
        return [
            settled
            for portion in self._portions(settlements, lambda row: weight(row.errors, row.result, row.log))
            for settled in self._settle(connection, portion, lapsed_only)
        ]

    @abstractmethod
    def _settle(
        self, connection: BaseDatabaseWrapper, settlements: Sequence[Settlement], lapsed_only: bool
    ) -> list[Settled]: ...

    def pulse(
        self, connection: BaseDatabaseWrapper, pulses: Iterable[Pulse], lease: float
    ) -> dict[Any, bool]:
        """Renew leases. Returns, for each still held, whether its cancel was requested."""
        held: dict[Any, bool] = {}
        for portion in self._portions(pulses, lambda row: weight(row.log)):
            held |= self._pulse(connection, portion, lease)
        return held

    @abstractmethod
    def _pulse(
        self, connection: BaseDatabaseWrapper, pulses: Sequence[Pulse], lease: float
    ) -> dict[Any, bool]: ...

    def _portions(self, rows: Iterable[Row], weigh: Callable[[Row], int]) -> Iterator[list[Row]]:
        """Always in the order of the ids, so that two statements never wait for each other crosswise."""
        ordered = sorted(rows, key=lambda row: self.id_text(row.id))  # type: ignore[attr-defined]
        return portions(ordered, weigh, rows_each=1_000, bytes_each=BATCH_BYTES)

    held_key: ClassVar[str] = "dedupe_key = %s AND status IN ('scheduled', 'pending', 'running')"

    def holder(self, connection: BaseDatabaseWrapper, name: str, dedupe_key: str) -> Any:
        """The id of the unended job with this dedupe key, or None."""
        sql = f"SELECT id FROM {self.table} WHERE name = %s AND {self.held_key}"
        rows = self.fetch(connection, sql, (name, dedupe_key))
        return rows[0][0] if rows else None

    def lapsed(self, connection: BaseDatabaseWrapper, limit: int) -> list[Claimed]:
        """Running jobs whose lease has run out."""
        sql = (
            f"SELECT {self.claimed_columns} FROM {self.table} WHERE status = 'running' "
            f"AND locked_until < {self.now} ORDER BY locked_until LIMIT {limit:d}"
        )
        return self.as_claimed(self.fetch(connection, sql, ()))

    def held_by_token(self, connection: BaseDatabaseWrapper, token: str) -> list[Claimed]:
        """Running jobs of one claim: what a cut connection may have claimed without saying so."""
        sql = f"SELECT {self.claimed_columns} FROM {self.table} WHERE status = 'running' AND lease_token = %s"
        return self.as_claimed(self.fetch(connection, sql, (token,)))

    def ended_by(self, connection: BaseDatabaseWrapper, held: Sequence[tuple[Any, str]]) -> list[Settled]:
        """Of these (id, token), those whose settlement landed before: the row left running under that token."""
        rows = self.json_rows([{"id": self.id_text(key), "token": token} for key, token in held])
        sql = (
            f"SELECT j.id, j.status FROM {self.table} j JOIN {self.rows_sql(('id', 'token'))} "
            f"ON j.id = v.id AND j.lease_token = v.token WHERE j.status <> 'running'"
        )
        return [Settled(*row) for row in self.fetch(connection, sql, (rows,))]

    def still_held(self, connection: BaseDatabaseWrapper, held: Sequence[tuple[Any, str]]) -> set[Any]:
        """Of these (id, token), the ids of those still running under the token: another has only locked the row."""
        rows = self.json_rows([{"id": self.id_text(key), "token": token} for key, token in held])
        sql = (
            f"SELECT j.id FROM {self.table} j JOIN {self.rows_sql(('id', 'token'))} "
            f"ON j.id = v.id AND j.lease_token = v.token WHERE j.status = 'running'"
        )
        return {row[0] for row in self.fetch(connection, sql, (rows,))}

    def pending_queues(self, connection: BaseDatabaseWrapper) -> list[str]:
        """The queues that have pending jobs, by one index probe each."""
        found: list[str] = []
        sql = (
            f"SELECT queue_name FROM {self.table} WHERE status = 'pending' AND queue_name > %s "
            "ORDER BY queue_name LIMIT 1"
        )
        while row := self.fetch(connection, sql, (found[-1] if found else "",)):
            found.append(row[0][0])
        return found

    def ended_names(self, connection: BaseDatabaseWrapper, status: str) -> list[str]:
        """The names of which some job ended as ``status``, by one index probe each."""
        found: list[str] = []
        sql = (
            f"SELECT name FROM {self.table} WHERE status = %s AND name > %s AND finished_at IS NOT NULL "
            "ORDER BY name LIMIT 1"
        )
        while row := self.fetch(connection, sql, (status, found[-1] if found else "")):
            found.append(row[0][0])
        return found

    # Fragments.

    @property
    def now(self) -> str:
        return now_sql(self.vendor)

    def plus(self, seconds: str) -> str:
        return plus_sql(self.vendor, seconds)

    @abstractmethod
    def rows_sql(self, columns: Iterable[str]) -> str:
        """A row set named ``v`` over one JSON parameter, with these columns."""

    def id_text(self, key: Any) -> str:
        """An id, a UUID or as this database gave it, in the database's own form."""
        return key.hex if isinstance(key, UUID) and not self.native_uuid else str(key)

    def id_read(self, key: UUID) -> Any:
        """An id in the form in which this database gives it."""
        return self.id_text(key)

    @cached_property
    def claimed_columns(self) -> str:
        instants = {"run_after", "enqueued_at", "started_at", "last_attempted_at", "cancel_requested_at"}
        return ", ".join(
            self.instants_read.format(name) if name in instants else name for name in CLAIMED_COLUMNS
        )

    def append_worker(self, shortened: str) -> str:
        """SQL for ``worker_ids`` with one more entry, a parameter; ``shortened`` drops the closing bracket."""
        quoted = self.concat("'\"'", self.text_parameter, "'\"]'")
        return (
            f"CASE WHEN worker_ids = '[]' THEN {self.concat(chr(39) + '[' + chr(39), quoted)} "
            f"ELSE {self.concat(shortened, chr(39) + ',' + chr(39), quoted)} END"
        )

    text_parameter: ClassVar[str] = "%s"

    def concat(self, *parts: str) -> str:
        return " || ".join(parts)

    def claim_set(self, lease: float, at_once: bool) -> str:
        """The SET of a claim. Parameters: token, worker, and twice the worker as it stands in JSON."""
        started = self.now if at_once else f"CASE WHEN crashes > 0 OR recovered > 0 THEN {self.now} END"
        return (
            f"status = 'running', attempts = attempts + 1, lease_token = {self.text_parameter}, "
            f"locked_until = {self.plus(repr(lease))}, worker = {self.text_parameter}, "
            f"worker_ids = {self.append_worker(self.shortened)}, "
            f"last_attempted_at = {self.now}, started_at = {started}"
        )

    shortened: ClassVar[str]

    def insert_sql(self, jobs: Sequence[NewJob]) -> tuple[str, tuple[Any, ...]]:
        """INSERT … of ``jobs`` with its parameters, open for what a dialect adds."""
        return self._insert_one(jobs[0]) if len(jobs) == 1 else self._insert_many(jobs)

    def _insert_one(self, job: NewJob) -> tuple[str, tuple[Any, ...]]:
        """A row as VALUES: that takes a quarter less time than a row set of one."""
        due: str = self.now
        instants: tuple[str, ...] = ()
        if job.run_after is not None:
            due, instants = self.instant("%s"), (_utc_text(job.run_after),)
        elif job.delay is not None:
            due = self.plus(repr(job.delay.total_seconds()))
        values = (self.id_text(job.id), job.payload, *_common(job))
        return self._values_sql(due, self.now), (*values, *(instants if due == self.now else instants * 2))

    @lru_cache(maxsize=64)  # noqa: B019 - a dialect lives as long as its database's settings
    def _values_sql(self, due: str, now: str) -> str:
        placeholders = ", ".join(["%s"] * (2 + len(_COMMON)))
        return f"INSERT INTO {self.table} ({_INSERTED}) VALUES ({placeholders}, {self._fresh(due)})"

    def _insert_many(self, jobs: Sequence[NewJob]) -> tuple[str, tuple[Any, ...]]:
        """INSERT … SELECT from a row set; what all rows have in common is a parameter of its own, not in each row."""
        same = {name: value for name in _COMMON if len({value := getattr(job, name) for job in jobs}) == 1}
        varying = ["id", "payload", *(name for name in _COMMON if name not in same)]
        due = self.now
        if any(job.run_after is not None or job.delay is not None for job in jobs):
            varying += ["run_after", "delay"]
            due = f"COALESCE({self.instant('v.run_after')}, {self.plus('COALESCE(v.delay, 0)')})"
        columns = ", ".join(
            ["v.id", "v.payload", *("%s" if name in same else f"v.{name}" for name in _COMMON)]
        )
        rows = self.json_rows([{name: self._new_value(job, name) for name in varying} for job in jobs])
        sql = (
            f"INSERT INTO {self.table} ({_INSERTED}) SELECT {columns}, {self._fresh(due)} "
            f"FROM {self.rows_sql(varying)} WHERE true"  # else SQLite takes ON CONFLICT for a join condition
        )
        return sql, (*same.values(), rows)

    def _fresh(self, due: str) -> str:
        """The values of a new row that no caller chooses, in the order of ``_INSERTED``."""
        status = (
            "'pending'"
            if due == self.now
            else f"CASE WHEN {due} > {self.now} THEN 'scheduled' ELSE 'pending' END"
        )
        return f"{due}, {status}, 0, 0, 0, '[]', '[]', '[]', {self.now}"

    def _new_value(self, job: NewJob, name: str) -> Any:
        value = getattr(job, name)
        if value is None:
            return None
        match name:
            case "id":
                return self.id_text(value)
            case "run_after":
                return _utc_text(value)
            case "delay":
                return value.total_seconds()
            case _:
                return value

    def instant(self, text: str) -> str:
        """SQL for an instant given as UTC text in a JSON row set."""
        return text

    target: ClassVar[str] = (
        ""  # qualifies the columns a SET assigns, where the row set has columns of that name too
    )

    def settle_set(self, lapsed_only: bool) -> str:
        """The SET of a settlement of ``j`` from the row set ``v``.

        ``lapsed_only``: by another than the holder, who must not find its token and take this for its own writing.

        A cancel asked for while the job ran wins over every outcome but success. MariaDB assigns from
        left to right; nothing here reads a column after it was assigned.
        """
        cancelled = "(j.cancel_requested_at IS NOT NULL AND v.status <> 'succeeded')"
        ended = f"({cancelled} OR v.status IN ('succeeded', 'failed', 'cancelled'))"
        values = {
            "status": f"CASE WHEN {cancelled} THEN 'cancelled' ELSE v.status END",
            "failure_reason": f"CASE WHEN {cancelled} THEN NULL ELSE v.reason END",
            "attempts": "v.attempts",
            "crashes": "v.crashes",
            "recovered": "v.recovered",
            "run_after": f"CASE WHEN v.delay IS NULL THEN j.run_after ELSE {self.plus('v.delay')} END",
            "locked_until": "NULL",
            **({"lease_token": "NULL"} if lapsed_only else {}),
            "started_at": f"COALESCE(j.started_at, {self.plus('-v.started_ago')})",
            "finished_at": f"CASE WHEN {ended} THEN {self.plus('-v.ended_ago')} END",
            "result": "v.result",
            **{name: f"COALESCE(v.{name}, j.{name})" for name in ("worker_ids", "errors", "progress", "log")},
        }
        return ", ".join(f"{self.target}{name} = {value}" for name, value in values.items())

    def settle_rows(self, settlements: Sequence[Settlement]) -> str:
        """The JSON parameter of a settlement."""
        return self.json_rows([self._values(each, _SETTLED) for each in settlements])

    def pulse_set(self, lease: float) -> str:
        """The SET of a heartbeat of ``j`` from the row set ``v``."""
        values = {
            "locked_until": self.plus(repr(lease)),
            "started_at": f"COALESCE(j.started_at, {self.plus('-v.started_ago')})",
            "progress": "COALESCE(v.progress, j.progress)",
            "log": "COALESCE(v.log, j.log)",
        }
        return ", ".join(f"{self.target}{name} = {value}" for name, value in values.items())

    def pulse_rows(self, pulses: Sequence[Pulse]) -> str:
        return self.json_rows([self._values(each, _PULSE) for each in pulses])

    def _values(self, row: Any, names: tuple[str, ...]) -> dict[str, Any]:
        # What is None is left out: a row set gives NULL for it.
        values = {name: value for name in names if (value := getattr(row, name)) is not None}
        values["id"] = self.id_text(row.id)
        return values

    def json_rows(self, rows: list[dict[str, Any]]) -> str:
        return json.dumps(rows, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    def as_claimed(self, rows: Rows) -> list[Claimed]:
        """Rows of a claim as values, in claim order: no database promises the order of RETURNING."""
        return sorted(map(Claimed._make, rows), key=_claim_order)

    # Running statements.

    def fetch(self, connection: BaseDatabaseWrapper, sql: str, parameters: Sequence[Any]) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def run(self, connection: BaseDatabaseWrapper, sql: str, parameters: Sequence[Any]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return int(cursor.rowcount)


def _claim_order(claimed: Claimed) -> tuple[Any, ...]:
    return -claimed.priority, claimed.run_after, str(claimed.id)


def _utc_text(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
