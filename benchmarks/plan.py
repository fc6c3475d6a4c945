"""What is measured, with how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .measure import Case

DATABASES: Final = ("PostgreSQL", "SQLite", "MariaDB")
OURS: Final = "bunderstack_django"
DTDB: Final = "django-tasks-db"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many jobs, rows and rounds: enough for a second or two each, so fewer for those that are slower."""

    rounds: int
    fast: int  # jobs drained by a fast queue
    middling: int
    slow: int
    one_by_one: int  # jobs enqueued one by one
    bulk: int  # jobs enqueued a thousand at a time
    others: int  # scheduled rows, and as many ended ones, beside the pending
    claims: int


FULL: Final = Sizes(
    rounds=3,
    fast=20_000,
    middling=3_000,
    slow=1_000,
    one_by_one=2_000,
    bulk=20_000,
    others=1_000_000,
    claims=200,
)
QUICK: Final = Sizes(
    rounds=1, fast=5_000, middling=500, slow=200, one_by_one=300, bulk=5_000, others=100_000, claims=100
)


def cases(sizes: Sizes) -> list[Case]:
    return [*_drains(sizes), *_statements(sizes), *_enqueues(sizes), *_claims(sizes)]


def _drains(sizes: Sizes) -> list[Case]:
    return [
        *(_ours("drain", store, {"jobs": sizes.fast}) for store in (*DATABASES, "SQLite FULL")),
        *(_dtdb("drain", store, {"jobs": sizes.slow}) for store in DATABASES[:2]),
        _peer("Huey", "SQLite", "huey", jobs=sizes.fast),
        _peer("Huey", "SQLite FULL", "huey", jobs=sizes.fast),
        _peer("Celery", "RabbitMQ", "celery", jobs=sizes.fast),
        _peer("Procrastinate", "PostgreSQL", "procrastinate", jobs=sizes.middling),
        _peer("PgQueuer", "PostgreSQL", "pgqueuer", jobs=sizes.fast),
    ]


def _statements(sizes: Sizes) -> list[Case]:
    return [
        _ours("statements", "PostgreSQL", {"jobs": sizes.fast // 2}),
        _dtdb("statements", "PostgreSQL", {"jobs": sizes.slow // 2}),
    ]


def _enqueues(sizes: Sizes) -> list[Case]:
    jobs = {"jobs": sizes.one_by_one, "bulk": sizes.bulk}
    slow = {"jobs": sizes.one_by_one, "bulk": max(1_000, sizes.bulk // 5)}
    return [
        case for store in DATABASES for case in (_ours("enqueue", store, jobs), _dtdb("enqueue", store, slow))
    ] + [
        Case(
            group="enqueue",
            system="Procrastinate",
            store="PostgreSQL",
            module="benchmarks.peers.procrastinate",
            measure="enqueue",
            sizes=jobs,
            package="procrastinate",
            prepare=True,
        )
    ]


def _claims(sizes: Sizes) -> list[Case]:
    return [
        Case(
            group="claim",
            system=OURS,
            store=store,
            module="benchmarks.claims",
            measure="claim",
            sizes={"others": sizes.others, "claims": sizes.claims},
            databases=("only_pending", "with_others"),
            prepare=True,
        )
        for store in DATABASES
    ]


def _ours(group: str, store: str, sizes: dict[str, int]) -> Case:
    return Case(
        group=group,
        system=OURS,
        store=store,
        module="benchmarks.peers.ours",
        measure=group,
        sizes=sizes,
        prepare=True,
    )


def _dtdb(group: str, store: str, sizes: dict[str, int]) -> Case:
    return Case(
        group=group,
        system=DTDB,
        store=store,
        module="benchmarks.peers.django_tasks_db",
        measure=group,
        sizes=sizes,
        package="django-tasks-db",
        prepare=True,
    )


def _peer(system: str, store: str, module: str, *, jobs: int) -> Case:
    return Case(
        group="drain",
        system=system,
        store=store,
        module=f"benchmarks.peers.{module}",
        measure="drain",
        sizes={"jobs": jobs},
        package=module,
        prepare=store == "PostgreSQL",
    )
