"""What goes into the job table and what comes out of it, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from ..states import Status

Row = TypeVar("Row")


class NewJob(NamedTuple):
    """A job to be inserted."""

    id: Any  # UUID
    name: str
    backend: str
    queue_name: str
    priority: int
    payload: str  # JSON text
    max_attempts: int
    run_after: datetime | None  # aware; None = at once
    delay: timedelta | None  # from the database's now
    dedupe_key: str | None
    concurrency_key: str | None


class Inserted(NamedTuple):
    """The row that now stands for a NewJob."""

    id: Any  # the id as the database gives it
    status: str
    enqueued_at: Any


class Claimed(NamedTuple):
    """A running job as its holder knows it. Column order is that of ``CLAIMED_COLUMNS``."""

    id: Any  # the id as the database gives it, good for comparing and for sending back
    name: str
    backend: str
    queue_name: str
    priority: int
    payload: str
    attempts: int
    crashes: int
    recovered: int
    max_attempts: int
    run_after: Any
    dedupe_key: str | None
    worker: str
    worker_ids: str
    errors: str
    log: str
    enqueued_at: Any
    started_at: Any
    last_attempted_at: Any
    lease_token: str
    cancel_requested_at: Any


CLAIMED_COLUMNS = Claimed._fields


@dataclass(slots=True, kw_only=True)
class Settlement:
    """How a running job leaves its claim. None leaves a column as it is."""

    id: Any
    token: str
    status: Status
    reason: str | None = None
    attempts: int
    crashes: int
    recovered: int
    delay: float | None = None  # seconds from now until due
    worker_ids: str | None = None
    started_ago: float | None = None  # seconds since the handler started, if it did
    ended_ago: float = 0.0  # seconds since it ended
    errors: str | None = None
    result: str | None = None
    progress: str | None = None
    log: str | None = None


@dataclass(slots=True, kw_only=True)
class Pulse:
    """What a heartbeat says of a running job."""

    id: Any
    token: str
    started_ago: float | None = None
    progress: str | None = None
    log: str | None = None


class Settled(NamedTuple):
    """A settlement that landed; ``status`` is what was written, which a cancel may have changed."""

    id: Any
    status: str


def weight(*texts: str | None) -> int:
    """The bytes of a statement that carries ``texts``, at the most.

    A JSON text travels inside a JSON parameter, which MariaDB's driver escapes once more: a quote or a backslash
    becomes four bytes. MariaDB takes 16 MiB in one packet, and drops the connection of whoever sends more.
    """
    return sum(len(text.encode()) + 3 * (text.count('"') + text.count("\\")) for text in texts if text)


def portions(
    rows: Iterable[Row], weigh: Callable[[Row], int], *, rows_each: int, bytes_each: int
) -> Iterator[list[Row]]:
    """``rows`` in order, cut into statements of at most so many rows and bytes; a heavier row goes alone."""
    portion: list[Row] = []
    total = 0
    for row in rows:
        weighs = weigh(row)
        if portion and (len(portion) == rows_each or total + weighs > bytes_each):
            yield portion
            portion, total = [], 0
        portion.append(row)
        total += weighs
    if portion:
        yield portion
