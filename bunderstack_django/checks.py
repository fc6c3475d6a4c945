"""System checks: what would make jobs slow, lost or refused, each with its cure.

E001 unknown setting · E002 value of a setting · E003 SQLite too old · E004 MariaDB too old · E005 a job's annotations
E006 no such database
W001 no backend of ours in TASKS · W002 SQLite not in WAL mode · W003 SQLite transactions not IMMEDIATE
W004 jobs in another database than the models · W005 isolation level · W006 option without effect yet
W007 heartbeat too slow for the lease · W008 MariaDB without descending indexes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage
from django.db import connections, router

from . import conf
from .jobs.backends import our_backends
from .jobs.declare import registry
from .jobs.states import TERMINAL

_DURATIONS = ("LEASE", "TIMEOUT", "UNKNOWN_JOB_GRACE", "POLL_INTERVAL", "IDEMPOTENCY_TTL")
_COUNTS = {"RETRIES": 0, "MAX_CRASHES": 1, "MAX_PAYLOAD_BYTES": 1, "TRUSTED_PROXIES": 0}


def register() -> None:
    """Register the checks; called once the app is ready."""
    for check in (check_setting_names, check_setting_values, check_backends, check_jobs, check_databases):
        checks.register(check, "bunderstack_django")
    checks.register(check_database_servers, checks.Tags.database)


def check_setting_names(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Every key of BUNDERSTACK is one that is read."""
    given = getattr(settings, "BUNDERSTACK", {})
    if not isinstance(given, Mapping):
        yield checks.Error("BUNDERSTACK must be a dictionary.", id="bunderstack_django.E001")
        return
    for key in given:
        if key not in conf.DEFAULTS:
            near = get_close_matches(str(key).upper(), conf.DEFAULTS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known settings: {', '.join(conf.DEFAULTS)}."
            yield checks.Error(
                f"BUNDERSTACK has no setting {key!r}.", hint=hint, id="bunderstack_django.E001"
            )


def check_setting_values(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Each setting has a value that can be used."""
    if not isinstance(getattr(settings, "BUNDERSTACK", {}), Mapping):
        return
    for key in _DURATIONS:
        yield from _check_duration(key, conf.value(key))
    if conf.value("HEARTBEAT") is not None:
        yield from _check_duration("HEARTBEAT", conf.value("HEARTBEAT"))
    for key, least in _COUNTS.items():
        value = conf.value(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            yield _value_error(key, value, f"Give a whole number from {least}.")
    yield from _check_retention(conf.value("RETENTION"))
    yield from _check_heartbeat()


def check_backends(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Some alias of TASKS is ours; else nothing is ever enqueued here."""
    if not our_backends():
        yield checks.Warning(
            "No backend in TASKS keeps jobs in the database.",
            hint='TASKS = {"default": {"BACKEND": "bunderstack_django.backend.DatabaseBackend", "QUEUES": []}}',
            id="bunderstack_django.W001",
        )


def check_jobs(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Every annotation of a declared job can be used."""
    for task in registry:
        for problem in task.schema.problems:
            yield checks.Error(
                problem,
                hint="Annotate with JSON types, datetime, date, UUID, Decimal, Enum or pydantic models.",
                obj=task.job_name,
                id="bunderstack_django.E005",
            )
        for option in ("concurrency", "rate_limit"):
            if getattr(task, option) is not None:
                yield checks.Warning(
                    f"{option} of job {task.job_name!r} is stored but not enforced by this version.",
                    hint="Limit it by a queue of its own, served by one worker with --threads.",
                    obj=task.job_name,
                    id="bunderstack_django.W006",
                )


def check_databases(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """The connections that hold jobs are set up for a queue; looks at settings only."""
    for alias in _job_databases():
        connection = connections[alias]
        options = connection.settings_dict.get("OPTIONS", {})
        if connection.vendor == "sqlite" and options.get("transaction_mode") != "IMMEDIATE":
            yield checks.Warning(
                f"Database {alias!r} begins its transactions deferred: one that reads before it enqueues fails with "
                "'database is locked' when a worker writes meanwhile.",
                hint=f'DATABASES[{alias!r}]["OPTIONS"]["transaction_mode"] = "IMMEDIATE"',
                id="bunderstack_django.W003",
            )
        if alias != router.db_for_write(_user_model()):
            yield checks.Warning(
                f"Jobs are kept in database {alias!r}, other models in another: an enqueue does not roll back "
                "with the transaction around it.",
                hint="Keep jobs where the data is, or enqueue in transaction.on_commit().",
                id="bunderstack_django.W004",
            )


def check_database_servers(databases: Any = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """The servers that hold jobs can do what the queue needs; connects to them."""
    for alias in _job_databases():
        if databases and alias in databases:
            yield from _SERVERS.get(connections[alias].vendor, lambda connection: iter(()))(
                connections[alias]
            )


def _check_sqlite(connection: Any) -> Iterator[CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode", [])
        (mode,) = cursor.fetchone()
    if connection.Database.sqlite_version_info < (3, 35):
        yield checks.Error(
            f"SQLite {connection.Database.sqlite_version} is too old for jobs.",
            hint="3.35 or later has UPDATE … RETURNING.",
            id="bunderstack_django.E003",
        )
    if mode not in ("wal", "memory"):
        yield checks.Warning(
            f"Database {connection.alias!r} keeps a rollback journal ({mode}): a worker does some 30 jobs a second "
            "with it, and thousands with a write-ahead log.",
            hint=f'DATABASES[{connection.alias!r}]["OPTIONS"]["init_command"] = '
            '"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"',
            id="bunderstack_django.W002",
        )


def _check_mariadb(connection: Any) -> Iterator[CheckMessage]:
    if not connection.mysql_is_mariadb:
        yield checks.Error(
            "MySQL cannot keep jobs: it has no INSERT … RETURNING.",
            hint="Use MariaDB, PostgreSQL or SQLite.",
            id="bunderstack_django.E004",
        )
        return
    if connection.mysql_version < (10, 6):
        yield checks.Error(
            "MariaDB before 10.6 has no SKIP LOCKED: workers would wait for each other.",
            hint="Use MariaDB 10.6 or later; 10.11 is tested.",
            id="bunderstack_django.E004",
        )
    elif connection.mysql_version < (10, 8):
        yield checks.Warning(
            "MariaDB before 10.8 has no descending indexes: a claim sorts all pending jobs.",
            hint="Use MariaDB 10.8 or later; 10.11 is tested.",
            id="bunderstack_django.W008",
        )
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@session.tx_isolation", [])
        (isolation,) = cursor.fetchone()
    if isolation != "READ-COMMITTED":
        yield _isolation(connection.alias, isolation, '"isolation_level": "read committed"')


def _check_postgresql(connection: Any) -> Iterator[CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW default_transaction_isolation", [])
        (isolation,) = cursor.fetchone()
    if isolation != "read committed":
        yield _isolation(connection.alias, isolation, '"isolation_level": IsolationLevel.READ_COMMITTED')


_SERVERS: dict[str, Callable[[Any], Iterator[CheckMessage]]] = {
    "sqlite": _check_sqlite,
    "mysql": _check_mariadb,
    "postgresql": _check_postgresql,
}


def _isolation(alias: str, isolation: str, cure: str) -> CheckMessage:
    return checks.Warning(
        f"Database {alias!r} runs transactions at {isolation}: enqueueing with a dedupe key may end in a "
        "serialization error.",
        hint=f"OPTIONS = {{{cure}}}",
        id="bunderstack_django.W005",
    )


def _check_duration(key: str, value: Any) -> Iterator[CheckMessage]:
    try:
        is_good = not isinstance(value, bool) and conf.as_timedelta(value) > timedelta(0)
    except (TypeError, OverflowError):
        is_good = False
    if not is_good:
        yield _value_error(key, value, "Give seconds above 0, or a timedelta.")


def _check_retention(value: Any) -> Iterator[CheckMessage]:
    if not isinstance(value, Mapping):
        yield _value_error("RETENTION", value, f"Give a dictionary with {', '.join(TERMINAL)}.")
        return
    for status, kept in value.items():
        if status not in TERMINAL:
            yield _value_error("RETENTION", {status: kept}, f"Jobs end as {', '.join(TERMINAL)}.")
        else:
            yield from _check_duration(f"RETENTION[{status!r}]", kept)


def _check_heartbeat() -> Iterator[CheckMessage]:
    try:
        slow = conf.heartbeat() > conf.lease() / 2
    except TypeError:
        return  # reported above
    if slow:
        yield checks.Warning(
            "HEARTBEAT is more than half of LEASE: one late heartbeat loses every lease of a worker.",
            hint="Leave HEARTBEAT out: it is a third of LEASE then.",
            id="bunderstack_django.W007",
        )


def _value_error(key: str, value: Any, hint: str) -> CheckMessage:
    return checks.Error(f"BUNDERSTACK[{key!r}] is {value!r}.", hint=hint, id="bunderstack_django.E002")


def _job_databases() -> list[str]:
    return sorted({backend.database for backend in our_backends()})


def _user_model() -> Any:
    from django.apps import apps

    # Any model of the project tells where its data goes.
    return next((model for model in apps.get_models() if model._meta.app_label != "bunderstack_django"), None)
