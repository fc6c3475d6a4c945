"""bunderstack_django, as ``manage.py runworker --drain -v 0`` runs it."""

from __future__ import annotations

from typing import Any

from .. import marks
from ..measure import Numbers, per_second
from ..project import analyze, count_commits, count_statements, empty, set_up

BULK = 1_000  # jobs in one call


def prepare(database: str) -> None:
    from django.core.management import call_command

    _start(database)
    call_command("migrate", verbosity=0)


def drain(database: str, jobs: int) -> Numbers:
    _fill(database, jobs)
    with count_commits(database) as commits:
        marks.expect(jobs)
        _work()
        marks.stop()
    return marks.numbers() | {name: count / jobs for name, count in commits.items()}


def statements(database: str, jobs: int) -> Numbers:
    """On PostgreSQL. Counting takes time, so nothing else is measured."""
    _fill(database, jobs)
    with count_statements() as count:
        _work()
    return {"statements": count["statements"] / jobs}


def enqueue(database: str, jobs: int, bulk: int) -> Numbers:
    noop = _fill(database, 1)
    from bunderstack_django import enqueue_many

    def one_by_one() -> None:
        for _ in range(jobs):
            noop.enqueue()

    def in_bulk() -> None:
        for _ in range(bulk // BULK):
            enqueue_many([noop.bind() for _ in range(BULK)])

    noop.enqueue()
    return {"one": per_second(jobs, one_by_one), "bulk": per_second(bulk, in_bulk)}


def _start(database: str) -> None:
    set_up(backend="bunderstack_django.backend.DatabaseBackend", app="bunderstack_django", default=database)


def _fill(database: str, jobs: int) -> Any:
    """Leave ``jobs`` pending jobs in the table, and nothing else. Returns the task."""
    _start(database)
    from django.db import connection

    from bunderstack_django import enqueue_many
    from bunderstack_django.models import Job

    from .ours_jobs import noop

    empty(connection, Job._meta.db_table)
    enqueue_many([noop.bind() for _ in range(jobs)])
    analyze(connection, Job._meta.db_table)
    connection.close()
    return noop


def _work() -> None:
    from django.core.management import call_command

    call_command("runworker", drain=True, verbosity=0)
