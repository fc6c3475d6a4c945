"""What the databases do for each statement, with many rows that are not wanted: of the very SQL that runs.

Rows a statement touches are counted where the database counts them: PostgreSQL by EXPLAIN ANALYZE, MariaDB by its
handler counters, SQLite by the steps of its virtual machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from bunderstack_django.jobs.models import Job
from bunderstack_django.jobs.states import Status

from .conftest import Store

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("crowd")]

TABLE = Job._meta.db_table
SCHEDULED, ENDED, PENDING, RUNNING = 20_000, 20_000, 2_000, 200
SEQUENCE = {
    "postgresql": "SELECT n FROM generate_series(1, {count}) AS n",
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s",
    "mysql": "SELECT seq AS n FROM seq_1_to_{count}",
}
SINCE = {
    "postgresql": "now() + ({seconds}) * interval '1 second'",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', ({seconds}) || ' seconds')",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL ({seconds}) SECOND",
}
STEPS = 60  # of SQLite's virtual machine, roughly, for a row that a statement reads and changes
ID = {
    "postgresql": "gen_random_uuid()",
    "sqlite": "lower(hex(randomblob(16)))",
    "mysql": "UUID()",
}


def fill(
    status: str, count: int, *, run_after: str = "-n", queue: str = "'default'", key: str = "NULL"
) -> None:
    """Rows of one status, made in the database."""
    vendor = connection.vendor
    ended, running = status in ("succeeded", "failed"), status == "running"
    moment = SINCE[vendor].format
    values = {
        "id": ID[vendor],
        "name": "CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END",
        "backend": "'default'",
        "queue_name": queue,
        "priority": "n % 3",
        "payload": "'{}'",
        "status": f"'{status}'",
        "attempts": "0",
        "crashes": "0",
        "recovered": "0",
        "max_attempts": "1",
        "run_after": moment(seconds=run_after),
        "dedupe_key": key,
        "lease_token": "'theirs'" if ended or running else "NULL",
        "locked_until": moment(seconds="600 + n") if running else "NULL",
        "worker_ids": "'[]'",
        "enqueued_at": moment(seconds="0"),
        "finished_at": moment(seconds="-n") if ended else "NULL",
        "errors": "'[]'",
        "log": "'[]'",
    }
    sql = f"INSERT INTO {TABLE} ({', '.join(values)}) SELECT {', '.join(values.values())} FROM ({SEQUENCE[vendor].format(count=count)}) AS numbers"
    with connection.cursor() as cursor:
        cursor.execute(sql)


def analyze() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {TABLE}" if connection.vendor == "mysql" else f"ANALYZE {TABLE}")
        cursor.fetchall() if connection.vendor == "mysql" else None


@pytest.fixture(scope="module")
def crowd(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A table full of rows that no statement wants, and some that they do."""
    with django_db_blocker.unblock():
        with transaction.atomic():
            fill("scheduled", SCHEDULED, run_after="3600 + n", key=_text("'s'"))
            fill("succeeded", ENDED, key=_text("'e'"))
            fill("pending", PENDING)
            fill("pending", 200, queue="'mail'")
            fill("pending", 200, queue="'slow'")
            fill("running", RUNNING)
        analyze()
    yield
    with django_db_blocker.unblock():
        Job.objects.all().delete()
        analyze()
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("DROP TABLE IF EXISTS sqlite_stat1")


def _text(prefix: str) -> str:
    return f"CONCAT({prefix}, n)" if connection.vendor == "mysql" else f"{prefix} || n"


class Statement:
    """One that ran, with its plan."""

    def __init__(self, sql: str, params: Any) -> None:
        self.sql, self.params = sql, params
        self.plan = ""
        self.touched = 0


@contextmanager
def watched() -> Iterator[list[Statement]]:
    """The statements that run, each explained before it does."""
    seen: list[Statement] = []
    explaining = [False]

    def explain(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if TABLE not in sql or explaining[0]:
            return execute(sql, params, many, context)
        statement = Statement(sql, params)
        seen.append(statement)
        explaining[0] = True
        try:
            {"postgresql": _postgresql, "sqlite": _sqlite, "mysql": _mariadb}[connection.vendor](statement)
        finally:
            explaining[0] = False
        return execute(sql, params, many, context)

    connection.force_debug_cursor, before = (
        True,
        connection.force_debug_cursor,
    )  # the claim by an ordinary cursor
    try:
        with connection.execute_wrapper(explain):
            yield seen
    finally:
        connection.force_debug_cursor = before


def _postgresql(statement: Statement) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}", statement.params)
        (found,) = cursor.fetchone()
        transaction.set_rollback(True)
    plan = found if isinstance(found, list) else json.loads(found)
    statement.plan = json.dumps(plan)

    def walk(node: dict[str, Any]) -> None:
        if "Scan" in node["Node Type"] and node.get("Relation Name") == TABLE:
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            rows += node.get("Rows Removed by Index Recheck", 0)
            statement.touched += int(rows * node["Actual Loops"])
        for child in node.get("Plans", []):
            walk(child)

    walk(plan[0]["Plan"])


def _sqlite(statement: Statement) -> None:
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {statement.sql}", statement.params)
        statement.plan = "\n".join(row[3] for row in cursor.fetchall())
        connection.connection.set_progress_handler(count, 10)
        try:
            cursor.execute(statement.sql, statement.params)
            cursor.fetchall()
        finally:
            connection.connection.set_progress_handler(None, 0)
        transaction.set_rollback(True)
    statement.touched = steps[0] * 10 // STEPS


def _mariadb(statement: Statement) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement.sql}", statement.params)
        names = [column[0] for column in cursor.description]
        statement.plan = "\n".join(str(dict(zip(names, row, strict=True))) for row in cursor.fetchall())
        before = _handler_reads(cursor)
        cursor.execute(statement.sql, statement.params)
        if cursor.description:
            cursor.fetchall()
        statement.touched = _handler_reads(cursor) - before
        transaction.set_rollback(True)


def _handler_reads(cursor: Any) -> int:
    cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(value) for name, value in cursor.fetchall() if name not in ("Handler_read_retry",))


def uses(statement: Statement, index: str) -> bool:
    if connection.vendor == "mysql":
        return f"'key': '{index}'" in statement.plan
    return index in statement.plan


def scans_all(statement: Statement) -> bool:
    """Whether the job table is read from end to end."""
    if connection.vendor == "postgresql":
        return "Seq Scan" in statement.plan
    if connection.vendor == "sqlite":
        lines = statement.plan.splitlines()
        # A SCAN that stops after a few rows of an index in its order is what a claim is.
        return any(line.startswith(f"SCAN {TABLE}") and "INDEX" not in line for line in lines)
    return "'type': 'ALL'" in statement.plan.replace("'table': 'v', 'type': 'ALL'", "")


def sorts(statement: Statement) -> bool:
    words = {"postgresql": '"Sort"', "sqlite": "USE TEMP B-TREE", "mysql": "Using filesort"}
    return words[connection.vendor] in statement.plan


CLAIMS = [
    pytest.param(None, "bunderstack_job_claim", id="all queues"),
    pytest.param(["mail"], "bunderstack_job_claim_queue", id="one queue"),
    pytest.param(["mail", "slow"], "bunderstack_job_claim_queue", id="two queues"),
    pytest.param(["none", "nowhere"], "bunderstack_job_claim_queue", id="two empty queues"),
]


@pytest.mark.parametrize(("queues", "index"), CLAIMS)
def test_a_claim_reads_its_index(store, queues, index):
    with watched() as seen:
        claimed = store.claim(10, queues=queues)

    assert len(claimed) == (0 if queues and "none" in queues else 10)
    assert uses(seen[0], index), seen[0].plan
    assert not any(map(scans_all, seen)), [each.plan for each in seen]


@pytest.mark.parametrize(("queues", "index"), CLAIMS)
def test_a_claim_of_ten_touches_few_rows(store, queues, index):
    with watched() as seen:
        store.claim(10, queues=queues)

    assert max(each.touched for each in seen) <= 120, [(each.touched, each.plan) for each in seen]


@pytest.mark.parametrize("queues", [None, ["mail"]], ids=str)
def test_a_claim_does_not_sort(store, queues):
    if connection.vendor == "sqlite" and queues:
        pytest.skip("sorts the ten it has found of each queue once more")
    with watched() as seen:
        store.claim(10, queues=queues)

    assert not any(map(sorts, seen)), [each.plan for each in seen]


def test_promotion_with_nothing_due_touches_few_rows(store):
    with watched() as seen:
        assert store.dialect.promote(connection, 1000) == 0

    assert uses(seen[0], "bunderstack_job_due"), seen[0].plan
    assert not scans_all(seen[0])
    assert not sorts(seen[0])
    assert seen[0].touched <= 50


def test_promotion_of_due_jobs_touches_those(store):
    fill("scheduled", 50, run_after="-n")
    with watched() as seen:
        assert store.dialect.promote(connection, 20) == 20

    assert uses(seen[0], "bunderstack_job_due"), seen[0].plan
    assert max(each.touched for each in seen) <= 200, [(each.touched, each.plan) for each in seen]


def test_looking_for_lapsed_leases_touches_few_rows(store):
    with watched() as seen:
        assert store.dialect.lapsed(connection, 100) == []

    assert uses(seen[0], "bunderstack_job_lapsed"), seen[0].plan
    assert not scans_all(seen[0])
    assert not sorts(seen[0])
    assert seen[0].touched <= 50


def test_looking_for_the_jobs_of_a_claim_reads_running_rows_only(store):
    with watched() as seen:
        store.dialect.held_by_token(connection, "mine")

    assert not scans_all(seen[0]), seen[0].plan
    assert seen[0].touched <= RUNNING + 300


def test_pruning_with_nothing_old_touches_few_rows(store):
    with watched() as seen:
        assert (
            store.dialect.prune(connection, status="succeeded", name="even", older_than=1e6, limit=1000) == 0
        )

    assert uses(seen[0], "bunderstack_job_ended"), seen[0].plan
    assert not scans_all(seen[0])
    assert not sorts(seen[0])
    assert seen[0].touched <= 50


def test_pruning_touches_what_it_deletes(store):
    with watched() as seen:
        assert (
            store.dialect.prune(connection, status="succeeded", name="even", older_than=0.0, limit=20) == 20
        )

    assert uses(seen[0], "bunderstack_job_ended"), seen[0].plan
    assert max(each.touched for each in seen) <= 300, [(each.touched, each.plan) for each in seen]


def test_the_holder_of_a_key_is_found_by_its_index(store):
    with watched() as seen:
        assert store.dialect.holder(connection, "even", "s10000") is not None

    assert uses(seen[0], "bunderstack_job_dedupe"), seen[0].plan
    assert seen[0].touched <= 10


def test_inserting_with_keys_touches_few_rows(store):
    """On MariaDB, which looks keys up, a scan would lock every row of the table."""
    with watched() as seen:
        store.insert(*[store.new(name="even", dedupe_key=f"s{number}") for number in (2, 4, 100_000)])

    reads = [each for each in seen if not each.sql.startswith("INSERT")]
    assert not any(map(scans_all, reads)), [each.plan for each in reads]
    assert all(each.touched <= 50 for each in reads), [(each.touched, each.plan) for each in reads]


@pytest.mark.parametrize("count", [999, 1000])
def test_inserting_a_whole_batch_of_keys_touches_its_rows_only(store, count):
    """From 1,000 values on, MariaDB turns IN into a join."""
    jobs = [store.new(name="new", dedupe_key=f"n{number}") for number in range(count)]
    with watched() as seen:
        store.insert(*jobs)

    reads = [each for each in seen if not each.sql.startswith("INSERT")]
    assert not any(map(scans_all, reads)), [each.plan for each in reads]
    assert all(each.touched <= 6 * count for each in reads), [each.touched for each in reads]


def test_pending_queues_are_one_probe_each(store):
    with watched() as seen:
        assert store.dialect.pending_queues(connection) == ["default", "mail", "slow"]

    assert len(seen) == 4
    assert all(uses(each, "bunderstack_job_claim_queue") for each in seen), seen[0].plan
    assert max(each.touched for each in seen) <= 20, [(each.touched, each.plan) for each in seen]


def test_ended_names_are_one_probe_each(store):
    with watched() as seen:
        assert store.dialect.ended_names(connection, "succeeded") == ["even", "odd"]

    assert all(uses(each, "bunderstack_job_ended") for each in seen), seen[0].plan
    assert max(each.touched for each in seen) <= 20, [(each.touched, each.plan) for each in seen]


@pytest.mark.parametrize("count", [1, 100])
def test_outcomes_do_not_read_rows_that_do_not_run(store, count):
    claims = store.claim(count)
    with watched() as seen:
        assert len(store.settle(*map(store.outcome, claims))) == count

    assert not any(map(scans_all, seen)), [each.plan for each in seen]
    # PostgreSQL may read the running rows by their index instead, which are few too.
    assert max(each.touched for each in seen) <= 12 * count + 50 + RUNNING, [each.plan for each in seen]


@pytest.mark.parametrize("count", [1, 100])
def test_heartbeats_do_not_read_rows_that_do_not_run(store, count):
    claims = store.claim(count)
    with watched() as seen:
        assert len(store.pulse(*claims)) == count

    assert not any(map(scans_all, seen)), [each.plan for each in seen]
    # PostgreSQL may read the running rows by their index instead, which are few too.
    assert max(each.touched for each in seen) <= 12 * count + 50 + RUNNING, [each.plan for each in seen]


def test_what_landed_before_is_looked_up_by_primary_key(store):
    claims = store.claim(20)
    store.settle(*[store.outcome(each, Status.FAILED) for each in claims])
    with watched() as seen:
        assert len(store.dialect.ended_by(connection, [(each.id, each.lease_token) for each in claims])) == 20

    assert not any(map(scans_all, seen)), [each.plan for each in seen]
    assert seen[0].touched <= 300, (seen[0].touched, seen[0].plan)


@pytest.mark.parametrize(("queues", "index"), CLAIMS)
def test_a_claim_planned_for_any_parameters_reads_its_index(store, queues, index):
    """A prepared statement may come to run by a plan made without looking at its parameters."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL alone prepares")
    with watched() as seen:
        store.claim(10, queues=queues)
    sql, params = seen[0].sql, list(seen[0].params)
    for number in range(1, len(params) + 1):
        sql = sql.replace("%s", f"${number}", 1)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE claim AS {sql}", None)
        try:
            marks = ", ".join(["%s"] * len(params))
            cursor.execute(f"EXPLAIN EXECUTE claim({marks})", params)
            plan = "\n".join(row[0] for row in cursor.fetchall())
        finally:
            cursor.execute("DEALLOCATE claim")

    assert index in plan, plan
    assert "Seq Scan" not in plan, plan


def test_claims_go_on_right_when_their_statement_is_prepared(store: Store):
    for _ in range(8):
        assert len(store.claim(3, queues=["mail"])) == 3
        assert len(store.claim(3)) == 3
        assert len(store.claim(4, queues=["mail", "slow"])) == 4
