"""The database's clock, and how a process may shift its own view of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import connection
from django.db.models import F

from bunderstack_django.jobs.models import Interval
from bunderstack_django.runtime import clock
from bunderstack_django.runtime.clock import DatabaseNow

pytestmark = pytest.mark.django_db

STANDING = datetime(2031, 3, 30, 1, 2, 3, 456_000, tzinfo=UTC)  # SQLite keeps milliseconds
MILLISECOND = timedelta(milliseconds=1)


def plus(seconds: str) -> datetime:
    """What the database makes of the clock plus ``seconds``, SQL."""
    sql = clock.plus_sql(connection.vendor, seconds)
    if connection.vendor == "postgresql":
        sql = f"{sql} AT TIME ZONE 'UTC'"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql}", [])
        return clock.as_utc(cursor.fetchone()[0])


def test_the_clock_reads_the_present_in_utc():
    found = clock.read(connection)

    assert found.tzinfo is UTC
    assert abs(found - datetime.now(UTC)) < timedelta(seconds=5)


def test_the_clock_goes_on_inside_a_transaction():
    first = clock.read(connection)
    while (later := clock.read(connection)) == first:
        pass

    assert later > first


def test_a_fixed_clock_stands_at_its_instant():
    with clock.shifted(fixed=STANDING):
        assert clock.read(connection) == STANDING
        assert clock.read(connection) == STANDING


def test_a_fixed_instant_may_be_in_any_zone():
    with clock.shifted(fixed=STANDING.astimezone(timezone(timedelta(hours=-9, minutes=-30)))):
        assert clock.read(connection) == STANDING


def test_a_fixed_clock_keeps_microseconds_where_the_database_does():
    moment = STANDING.replace(microsecond=123_456)
    with clock.shifted(fixed=moment):
        assert clock.read(connection) in (moment, moment.replace(microsecond=123_000))


@pytest.mark.parametrize(
    "offset",
    [
        timedelta(seconds=90.5),
        -timedelta(seconds=90.5),
        timedelta(milliseconds=1),
        timedelta(days=3660),
        -timedelta(days=400, microseconds=1000),
    ],
    ids=str,
)
def test_an_offset_moves_the_clock(offset):
    with clock.shifted(fixed=STANDING), clock.shifted(offset=offset):
        assert abs(clock.read(connection) - STANDING - offset) <= MILLISECOND


def test_an_offset_lets_the_clock_run_on():
    with clock.shifted(offset=timedelta(hours=1)):
        assert abs(clock.read(connection) - datetime.now(UTC) - timedelta(hours=1)) < timedelta(seconds=5)


def test_shifts_nest_and_end_each_by_itself():
    with clock.shifted(fixed=STANDING):
        with clock.shifted(offset=timedelta(hours=1)):
            with clock.shifted(offset=timedelta(minutes=1)):
                assert clock.read(connection) == STANDING + timedelta(hours=1, minutes=1)
            assert clock.read(connection) == STANDING + timedelta(hours=1)
        assert clock.read(connection) == STANDING


def test_a_shift_ends_with_an_error_too():
    with pytest.raises(RuntimeError), clock.shifted(fixed=STANDING):
        raise RuntimeError

    assert clock.read(connection) < STANDING


def test_a_fixed_clock_inside_an_offset_stands_at_its_own_instant():
    with clock.shifted(offset=timedelta(hours=1)), clock.shifted(fixed=STANDING):
        assert clock.read(connection) == STANDING


def test_advancing_adds_up_until_reset():
    clock.advance(timedelta(hours=1))
    clock.advance(timedelta(hours=2))
    ahead = clock.read(connection)
    clock.reset()

    assert timedelta(hours=2, minutes=59) < ahead - clock.read(connection) < timedelta(hours=3, minutes=1)


def test_a_fixed_clock_can_be_advanced():
    with clock.shifted(fixed=STANDING):
        clock.advance(timedelta(seconds=1.25))
        assert clock.read(connection) == STANDING + timedelta(seconds=1.25)


def test_the_databases_own_clock_is_not_shifted():
    sql = {
        "postgresql": "SELECT now() AT TIME ZONE 'UTC'",
        "mysql": "SELECT UTC_TIMESTAMP(6)",
        "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
    }[connection.vendor]
    with clock.shifted(fixed=STANDING), connection.cursor() as cursor:
        cursor.execute(sql)
        assert clock.as_utc(cursor.fetchone()[0]) < STANDING


def test_every_thread_of_the_process_sees_the_shift():
    with clock.shifted(fixed=STANDING), ThreadPoolExecutor(1) as pool:
        assert pool.submit(clock.now_sql, "postgresql").result() == clock.now_sql("postgresql")
        assert "2031" in clock.now_sql("postgresql")


@pytest.mark.parametrize(
    ("sql", "seconds"),
    [
        ("0", 0.0),
        ("1", 1.0),
        ("-1", -1.0),
        ("0.001", 0.001),
        ("-0.001", -0.001),
        ("1.5", 1.5),
        ("-90.25", -90.25),
        ("1e-07", 0.0),
        ("1.0e-05", 0.0),
        ("-0.0", 0.0),
        ("86400.0", 86_400.0),
        ("316224000.0", 316_224_000.0),
        ("-316224000.5", -316_224_000.5),
        ("2 * 3 + 0.25", 6.25),
        ("COALESCE(NULL, 7)", 7.0),
        ("CASE WHEN 1 = 1 THEN 2.5 ELSE 1 END", 2.5),
        ("-(3.5)", -3.5),
    ],
)
def test_seconds_are_added_to_the_clock(sql, seconds):
    with clock.shifted(fixed=STANDING):
        assert abs(plus(sql) - STANDING - timedelta(seconds=seconds)) <= MILLISECOND


def test_seconds_are_added_to_a_shifted_clock():
    with clock.shifted(fixed=STANDING), clock.shifted(offset=-timedelta(seconds=10)):
        assert plus("2.5") == STANDING - timedelta(seconds=7.5)


def test_nothing_plus_seconds_that_are_null_is_null():
    sql = clock.plus_sql(connection.vendor, "CAST(NULL AS decimal)")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql}", [])
        assert cursor.fetchone()[0] is None


def test_the_clock_can_be_written():
    with clock.shifted(fixed=STANDING):
        Interval.objects.create(name="a", ran_at=DatabaseNow())

    assert Interval.objects.get().ran_at == STANDING


def test_the_clock_plus_a_time_can_be_written():
    Interval.objects.create(name="a", ran_at=STANDING)
    with clock.shifted(fixed=STANDING):
        Interval.objects.update(ran_at=DatabaseNow(timedelta(days=-1, milliseconds=5)))

    assert Interval.objects.get().ran_at == STANDING - timedelta(days=1) + timedelta(milliseconds=5)


@pytest.mark.parametrize(
    ("lookup", "delta", "found"),
    [
        ("ran_at__lte", timedelta(0), True),
        ("ran_at__lt", timedelta(0), False),
        ("ran_at__gte", timedelta(0), True),
        ("ran_at__gt", timedelta(0), False),
        ("ran_at", timedelta(0), True),
        ("ran_at__lt", timedelta(milliseconds=1), True),
        ("ran_at__gt", timedelta(milliseconds=-1), True),
        ("ran_at__lt", timedelta(milliseconds=-1), False),
    ],
)
def test_rows_are_filtered_by_the_clock(lookup, delta, found):
    Interval.objects.create(name="a", ran_at=STANDING)
    with clock.shifted(fixed=STANDING):
        assert Interval.objects.filter(**{lookup: DatabaseNow(delta)}).exists() is found


@pytest.mark.parametrize("lookup", ["ran_at", "ran_at__lte", "ran_at__gte"])
def test_a_row_the_clock_wrote_is_found_by_the_instant_read_back(lookup):
    """A keyset page asks for what is beyond the row it ended with."""
    Interval.objects.create(name="a", ran_at=DatabaseNow())
    read = Interval.objects.get().ran_at

    assert Interval.objects.filter(**{lookup: read}).exists()


@pytest.mark.parametrize("lookup", ["ran_at__lt", "ran_at__gt"])
def test_a_row_the_clock_wrote_is_not_beyond_the_instant_read_back(lookup):
    Interval.objects.create(name="a", ran_at=DatabaseNow())
    read = Interval.objects.get().ran_at

    assert not Interval.objects.filter(**{lookup: read}).exists()


def test_the_clock_can_be_selected():
    Interval.objects.create(name="a", ran_at=STANDING)
    with clock.shifted(fixed=STANDING):
        assert Interval.objects.annotate(now=DatabaseNow()).get().now == STANDING


def test_the_clock_can_be_compared_with_a_column_plus_a_time():
    Interval.objects.create(name="a", ran_at=STANDING)
    with clock.shifted(fixed=STANDING + timedelta(seconds=61)):
        due = Interval.objects.filter(ran_at__lt=DatabaseNow(-timedelta(minutes=1)))
        assert due.count() == 1
        assert Interval.objects.filter(ran_at=F("ran_at")).count() == 1


def test_two_clocks_with_the_same_delta_are_one_expression():
    assert DatabaseNow(timedelta(1)) == DatabaseNow(timedelta(1))
    assert DatabaseNow(timedelta(1)) != DatabaseNow(timedelta(2))
