"""The numbers that must be reached, each a ratio within one run wherever one is possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from .plan import DATABASES, DTDB, OURS
from .runner import Results

BULK_FACTOR: Final = {"PostgreSQL": 10, "SQLite": 4, "MariaDB": 4}
BATCH_DEFER: Final = 16_000  # Procrastinate's bulk enqueue as measured on an idle machine with two cores


@dataclass(frozen=True)
class Target:
    what: str
    wanted: str  # "≥ 10 ×"
    measured: float | None  # None: something it is made of was skipped
    shown: str  # "32 ×"
    met: bool | None
    aim: bool = False  # wished for, not required


def targets(results: Results) -> list[Target]:
    return [*_drain(results), *_enqueue(results), *_claim(results)]


def _drain(results: Results) -> Iterator[Target]:
    def rate(system: str, store: str) -> float | None:
        return _median(results, "drain", system, store, "per_second")

    ours, lite = rate(OURS, "PostgreSQL"), rate(OURS, "SQLite")
    yield _times("drain, PostgreSQL ÷ django-tasks-db", 10, ours, rate(DTDB, "PostgreSQL"))
    yield _times("drain, PostgreSQL ÷ Celery + RabbitMQ", 1, ours, rate("Celery", "RabbitMQ"))
    yield _times("drain, PostgreSQL ÷ PgQueuer", 1, ours, rate("PgQueuer", "PostgreSQL"), aim=True)
    yield _times(
        "drain, SQLite ÷ Huey, both synchronous=FULL",
        1,
        rate(OURS, "SQLite FULL"),
        rate("Huey", "SQLite FULL"),
    )
    yield _times("drain, SQLite ÷ Huey, both synchronous=NORMAL", 1, lite, rate("Huey", "SQLite"))
    commits = _median(results, "drain", OURS, "PostgreSQL", "commits")
    yield _at_most("commits per no-op job, PostgreSQL", 0.2, commits, "{:.3f}")
    for store in DATABASES:
        spent = _median(results, "drain", OURS, store, "cpu_us")
        yield _at_most(f"CPU per no-op job, {store}, µs", 150, spent, "{:.0f} µs")
        yield _at_most(f"CPU per no-op job, {store}, µs", 60, spent, "{:.0f} µs", aim=True)


def _enqueue(results: Results) -> Iterator[Target]:
    for store in DATABASES:
        one = _median(results, "enqueue", OURS, store, "one")
        bulk = _median(results, "enqueue", OURS, store, "bulk")
        yield _times(
            f"enqueue one by one, {store} ÷ django-tasks-db",
            1.5,
            one,
            _median(results, "enqueue", DTDB, store, "one"),
        )
        yield _times(f"enqueue in bulk ÷ one by one, {store}", BULK_FACTOR[store], bulk, one)
        if store == "PostgreSQL":
            procrastinate = _median(results, "enqueue", "Procrastinate", store, "bulk")
            yield _times("enqueue in bulk ÷ Procrastinate's batch_defer", 1, bulk, procrastinate)
            yield _at_least("enqueue in bulk, PostgreSQL, jobs/s", BATCH_DEFER, bulk)


def _claim(results: Results) -> Iterator[Target]:
    for store in DATABASES:
        small = _median(results, "claim", OURS, store, "only_pending")
        large = _median(results, "claim", OURS, store, "with_others")
        yield _at_most(f"claim of 10 beside many rows, {store}, ms", 2.0, large, "{:.2f} ms")
        yield _ratio(f"claim of 10, many rows ÷ only pending, {store}", large, small, "{:.2f} ×", 1.2)


def _times(
    what: str, wanted: float, mine: float | None, theirs: float | None, *, aim: bool = False
) -> Target:
    ratio = None if mine is None or not theirs else mine / theirs
    return _judged(what, f"≥ {wanted:g} ×", ratio, "{:.2f} ×", lambda found: found >= wanted, aim)


def _ratio(what: str, above: float | None, below: float | None, form: str, most: float) -> Target:
    ratio = None if above is None or not below else above / below
    return _judged(what, f"≤ {most:g} ×", ratio, form, lambda found: found <= most, aim=False)


def _at_least(what: str, wanted: float, found: float | None) -> Target:
    return _judged(what, f"≥ {wanted:,}", found, "{:,.0f}", lambda number: number >= wanted, aim=False)


def _at_most(what: str, most: float, found: float | None, form: str, *, aim: bool = False) -> Target:
    return _judged(what, f"≤ {most:g}", found, form, lambda number: number <= most, aim)


def _judged(
    what: str, wanted: str, found: float | None, form: str, is_met: Callable[[float], bool], aim: bool
) -> Target:
    if found is None:
        return Target(what, wanted, None, "not measured", None, aim)
    return Target(what, wanted, found, form.format(found), is_met(found), aim)


def _median(results: Results, group: str, system: str, store: str, name: str) -> float | None:
    taken = results.get((group, system, store))
    return None if taken is None else taken.median(name)
