"""Columns that hold the same value on every database."""

from __future__ import annotations

import json
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from django.core import serializers
from django.db import connection
from django.db.models import Case, Count, F, Max, Min, Value, When
from django.db.models.functions import Coalesce, Greatest, TruncDate, TruncHour
from django.test import override_settings
from django.utils import timezone as django_timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bunderstack_django.db.fields import UTCDateTimeField, dumps
from bunderstack_django.jobs.models import Interval, Job
from bunderstack_django.runtime.clock import DatabaseNow

pytestmark = pytest.mark.django_db

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
FOLD = [  # the two passes of 02:30 on the night the clocks go back
    datetime(2030, 10, 27, 2, 30, tzinfo=BERLIN, fold=0),
    datetime(2030, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
]
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["USE_TZ", "no USE_TZ"])
def zoned(request) -> Iterator[bool]:
    """Each test with USE_TZ, and without it in a zone with summer time."""
    use_tz = request.param == "USE_TZ"
    with override_settings(USE_TZ=use_tz, TIME_ZONE="Europe/Berlin"):
        django_timezone.get_default_timezone.cache_clear()
        yield use_tz
    django_timezone.get_default_timezone.cache_clear()


def stored(moment) -> datetime | None:
    Interval.objects.all().delete()
    Interval.objects.create(name="a", ran_at=moment)
    return Interval.objects.get().ran_at


@pytest.mark.usefixtures("zoned")
class TestInstants:
    @pytest.mark.parametrize("moment", FOLD, ids=["first", "second"])
    def test_both_passes_of_a_repeated_hour_come_back_as_they_were(self, moment):
        found = stored(moment)

        assert found == moment.astimezone(UTC)
        assert found.tzinfo is UTC

    def test_the_two_passes_of_a_repeated_hour_are_an_hour_apart(self):
        Interval.objects.create(name="first", ran_at=FOLD[0])
        Interval.objects.create(name="second", ran_at=FOLD[1])
        first, second = Interval.objects.order_by("ran_at")

        assert (first.name, second.name) == ("first", "second")
        assert second.ran_at - first.ran_at == timedelta(hours=1)

    @pytest.mark.parametrize("moment", FOLD, ids=["first", "second"])
    def test_an_instant_of_a_repeated_hour_is_found_by_its_value(self, moment):
        stored(moment)

        assert Interval.objects.filter(ran_at=moment).count() == 1
        assert Interval.objects.filter(ran_at=moment.astimezone(UTC)).count() == 1

    def test_an_instant_in_the_hour_that_never_was_is_kept(self):
        moment = datetime(2030, 3, 31, 2, 30, tzinfo=BERLIN)

        assert stored(moment) == moment.astimezone(UTC)

    @quick
    @given(
        st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)),
        st.sampled_from(
            [UTC, BERLIN, timezone(timedelta(hours=14)), timezone(-timedelta(hours=9, minutes=30))]
        ),
    )
    def test_any_instant_comes_back_to_the_microsecond(self, naive, zone):
        moment = naive.replace(tzinfo=zone)

        assert stored(moment) == moment.astimezone(UTC)

    def test_a_naive_instant_is_read_in_the_default_zone(self):
        assert stored(datetime(2030, 7, 1, 12)) == datetime(2030, 7, 1, 10, tzinfo=UTC)

    def test_a_naive_instant_of_the_second_pass_is_kept_as_such(self):
        assert stored(datetime(2030, 10, 27, 2, 30, fold=1)) == FOLD[1].astimezone(UTC)

    def test_a_naive_instant_filters_in_the_default_zone(self):
        stored(datetime(2030, 7, 1, 10, tzinfo=UTC))

        assert Interval.objects.filter(ran_at=datetime(2030, 7, 1, 12)).exists()

    def test_a_text_is_read_as_an_instant(self):
        assert stored("2030-07-01T12:00:00+02:00") == datetime(2030, 7, 1, 10, tzinfo=UTC)

    def test_nothing_is_nothing(self):
        Job.objects.create(name="n", finished_at=None)

        assert Job.objects.get().finished_at is None

    @pytest.mark.parametrize(
        ("lookup", "offset", "found"),
        [
            ("lt", 1, True),
            ("lt", 0, False),
            ("lte", 0, True),
            ("gt", -1, True),
            ("gt", 0, False),
            ("gte", 0, True),
            ("exact", 0, True),
            ("exact", 1, False),
        ],
    )
    def test_instants_are_compared_to_the_microsecond(self, lookup, offset, found):
        stored(NOON.replace(microsecond=123_456))
        other = NOON.replace(microsecond=123_456) + timedelta(microseconds=offset)

        assert Interval.objects.filter(**{f"ran_at__{lookup}": other}).exists() is found

    def test_instants_are_found_in_a_range_and_in_a_list(self):
        stored(NOON)

        assert Interval.objects.filter(ran_at__range=(NOON, NOON)).exists()
        assert Interval.objects.filter(ran_at__in=[NOON]).exists()

    def test_values_are_aware_too(self):
        stored(NOON)

        assert Interval.objects.values_list("ran_at", flat=True).get() == NOON

    def test_aggregates_are_aware_too(self):
        stored(FOLD[1])

        assert Interval.objects.aggregate(Min("ran_at"), Max("ran_at")) == {
            "ran_at__min": FOLD[1].astimezone(UTC),
            "ran_at__max": FOLD[1].astimezone(UTC),
        }

    def test_a_column_can_be_copied(self):
        Job.objects.create(name="n", run_after=FOLD[1])
        Job.objects.update(finished_at=F("run_after"))

        assert Job.objects.get().finished_at == FOLD[1].astimezone(UTC)

    def test_a_case_of_instants_is_an_instant(self):
        Job.objects.create(name="n", run_after=FOLD[0])
        Job.objects.update(
            finished_at=Case(
                When(name="other", then=Value(NOON, output_field=UTCDateTimeField())),
                default=F("run_after"),
                output_field=UTCDateTimeField(),
            )
        )

        assert Job.objects.get().finished_at == FOLD[0].astimezone(UTC)

    def test_a_case_of_values_is_an_instant(self):
        if connection.vendor == "mysql":
            pytest.skip(
                "a CASE of parameters is text there, which Django's own DateTimeField cannot read either"
            )
        Job.objects.create(name="n")
        field = UTCDateTimeField()
        case = Case(When(name="n", then=Value(FOLD[1], output_field=field)), default=None, output_field=field)

        assert Job.objects.annotate(found=case).get().found == FOLD[1].astimezone(UTC)

    def test_functions_of_instants_are_instants(self):
        Job.objects.create(name="n", run_after=FOLD[1], enqueued_at=FOLD[0])
        found = Job.objects.annotate(
            kept=Coalesce("finished_at", "run_after"), later=Greatest("run_after", "enqueued_at")
        ).get()

        assert (found.kept, found.later) == (FOLD[1].astimezone(UTC),) * 2

    def test_many_instants_are_updated_at_once(self):
        rows = [Interval.objects.create(name=name, ran_at=NOON) for name in "ab"]
        for row, moment in zip(rows, FOLD, strict=True):
            row.ran_at = moment
        Interval.objects.bulk_update(rows, ["ran_at"])

        assert list(Interval.objects.order_by("name").values_list("ran_at", flat=True)) == [
            moment.astimezone(UTC) for moment in FOLD
        ]

    def test_many_instants_are_created_at_once(self):
        Interval.objects.bulk_create([Interval(name=str(n), ran_at=moment) for n, moment in enumerate(FOLD)])

        assert Interval.objects.aggregate(Count("ran_at", distinct=True)) == {"ran_at__count": 2}

    def test_the_time_between_two_columns_is_a_duration(self):
        """Django sees to this for its own DateTimeField, by the name of the type."""
        Job.objects.create(name="n", started_at=NOON, finished_at=NOON + timedelta(seconds=90.5))
        found = Job.objects.annotate(took=F("finished_at") - F("started_at")).get()

        assert found.took == timedelta(seconds=90.5)

    def test_a_column_plus_a_time_filters(self):
        Job.objects.create(name="n", started_at=NOON, finished_at=NOON + timedelta(seconds=90))

        assert Job.objects.filter(finished_at__gt=F("started_at") + timedelta(seconds=89)).exists()
        assert not Job.objects.filter(finished_at__gt=F("started_at") + timedelta(seconds=91)).exists()

    def test_instants_can_be_grouped_by_their_hour(self, zoned):
        """The date hierarchy of Django's admin asks for this."""
        needs_zones(zoned)
        Job.objects.create(name="n", enqueued_at=NOON + timedelta(minutes=30))

        found = Job.objects.annotate(hour=TruncHour("enqueued_at", tzinfo=UTC if zoned else None)).get().hour
        assert (found.replace(tzinfo=UTC) if found.tzinfo is None else found).minute == 0

    def test_instants_have_a_day(self, zoned):
        needs_zones(zoned)
        Job.objects.create(name="n", enqueued_at=NOON)

        assert Job.objects.annotate(day=TruncDate("enqueued_at")).get().day == date(2030, 6, 1)

    def test_instants_are_found_by_their_day(self, zoned):
        needs_zones(zoned)
        Job.objects.create(name="n", enqueued_at=NOON)

        assert Job.objects.filter(enqueued_at__date=date(2030, 6, 1)).exists()
        assert Job.objects.filter(enqueued_at__year=2030).exists()

    def test_an_instant_survives_a_dump_and_load(self):
        Interval.objects.create(name="a", ran_at=FOLD[1])
        (loaded,) = serializers.deserialize("json", serializers.serialize("json", Interval.objects.all()))

        assert loaded.object.ran_at == FOLD[1].astimezone(UTC)


def needs_zones(zoned: bool) -> None:
    """Django asks MariaDB for the day in a zone, which MariaDB may know nothing of."""
    if zoned and not connection.features.has_zoneinfo_database:
        pytest.skip("MariaDB has no time zone tables here")


def test_the_clock_and_a_written_instant_agree_in_any_time_zone_of_the_connection():
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"):
        Interval.objects.create(name="a", ran_at=datetime.now(UTC))
        near = Interval.objects.filter(
            ran_at__gt=DatabaseNow(-timedelta(minutes=1)), ran_at__lt=DatabaseNow(timedelta(minutes=1))
        )
        assert near.exists()


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_instants_do_not_depend_on_the_time_zone_of_the_database_setting(zone):
    with override_settings(USE_TZ=True):
        Interval.objects.create(name="a", ran_at=FOLD[1])
        with in_zone(zone):
            Interval.objects.create(name="b", ran_at=FOLD[1])
            assert {row.ran_at for row in Interval.objects.all()} == {FOLD[1].astimezone(UTC)}
            assert Interval.objects.filter(ran_at=FOLD[1]).count() == 2


@contextmanager
def in_zone(zone: str) -> Iterator[None]:
    """``DATABASES["default"]["TIME_ZONE"]`` set to ``zone``."""

    def become(name: str | None) -> None:
        connection.settings_dict["TIME_ZONE"] = name
        for cached in ("timezone", "timezone_name"):
            connection.__dict__.pop(cached, None)
        if connection.vendor == "postgresql":
            connection.ensure_timezone()

    before = connection.settings_dict["TIME_ZONE"]
    become(zone)
    try:
        yield
    finally:
        become(before)


# JSON kept as text


def kept(value):
    job = Job.objects.create(name="n", result=value)
    return Job.objects.get(pk=job.pk).result


def text_of(value) -> str:
    job = Job.objects.create(name="n", result=value)
    with connection.cursor() as cursor:
        key = job.pk.hex if not connection.features.has_native_uuid_field else job.pk
        cursor.execute(f"SELECT result FROM {Job._meta.db_table} WHERE id = %s", [str(key)])
        return cursor.fetchone()[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e16, "1e+16"),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (10**40, str(10**40)),
        (2**63, "9223372036854775808"),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        ("naïve 🐘", '"naïve 🐘"'),
        ("a\nb\\", r'"a\nb\\"'),
        (True, "true"),
        ([], "[]"),
        ("", '""'),
    ],
    ids=ascii,
)
def test_a_value_is_stored_as_its_text(value, text):
    assert text_of(value) == text


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@quick
@given(json_values)
def test_any_value_comes_back_as_it_was(value):
    found = kept(value)

    assert found == value
    assert dumps(found) == dumps(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]], ids=str)
def test_what_is_no_json_is_refused(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        Job.objects.create(name="n", result=value)


def test_nothing_is_stored_as_null():
    assert text_of(None) is None
    assert Job.objects.filter(result__isnull=True).count() == 1


def test_a_stored_json_null_reads_as_nothing():
    job = Job.objects.create(name="n")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {Job._meta.db_table} SET result = 'null'", [])

    assert Job.objects.get(pk=job.pk).result is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "no json", "{'a': 1}", "[1,]", "🐘", "[" * 100_000, "9" * 5_000],
    ids=lambda t: ascii(t[:9]),
)
def test_a_text_that_is_no_json_reads_as_that_text(text):
    job = Job.objects.create(name="n")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {Job._meta.db_table} SET result = %s", [text])

    assert Job.objects.get(pk=job.pk).result == text


def test_rows_are_found_by_a_json_value():
    Job.objects.create(name="n", payload={"args": [1], "kwargs": {"b": "🐘"}})

    assert Job.objects.filter(payload={"args": [1], "kwargs": {"b": "🐘"}}).exists()
    assert not Job.objects.filter(payload={"args": [2], "kwargs": {}}).exists()


def test_json_texts_are_compared_by_their_bytes():
    Job.objects.create(name="n", payload={"args": ["a"]})

    assert not Job.objects.filter(payload={"args": ["A"]}).exists()
    assert not Job.objects.filter(payload={"args": ["a "]}).exists()


def test_a_column_of_json_can_be_copied():
    Job.objects.create(name="n", payload={"b": 1e16, "a": 1})
    Job.objects.update(result=F("payload"))

    assert json.dumps(Job.objects.get().result) == '{"b": 1e+16, "a": 1}'


def test_many_json_values_are_updated_at_once():
    rows = [Job.objects.create(name=name) for name in "ab"]
    rows[0].result, rows[1].result = {"x": [1.0]}, "text"
    Job.objects.bulk_update(rows, ["result"])

    assert list(Job.objects.order_by("name").values_list("result", flat=True)) == [{"x": [1.0]}, "text"]


def test_a_json_value_survives_a_dump_and_load():
    Job.objects.create(name="n", payload={"args": [1e16, "🐘"], "kwargs": {"b": 1, "a": 2}})
    (loaded,) = serializers.deserialize("json", serializers.serialize("json", Job.objects.all()))

    assert json.dumps(loaded.object.payload) == json.dumps({"args": [1e16, "🐘"], "kwargs": {"b": 1, "a": 2}})


# Text compared by its bytes

ALIKE = ["a", "A", "á", "a\u0301", "a ", " a", "a\t", "ａ", "ß", "ss", "ẞ", "i", "İ", "ı"]


@pytest.mark.parametrize("text", ALIKE, ids=ascii)
def test_a_text_is_found_by_its_bytes_alone(text):
    Job.objects.bulk_create([Job(name=each) for each in ALIKE])

    assert [job.name for job in Job.objects.filter(name=text)] == [text]
    assert [job.name for job in Job.objects.filter(name__in=[text])] == [text]


def test_texts_that_look_alike_are_distinct_keys():
    Interval.objects.bulk_create([Interval(name=each, ran_at=NOON) for each in ALIKE])

    assert Interval.objects.count() == len(ALIKE)


def test_texts_that_look_alike_are_distinct_groups():
    Job.objects.bulk_create([Job(name=each) for each in ALIKE])

    assert Job.objects.values("name").annotate(Count("id")).count() == len(ALIKE)


def test_texts_are_ordered_by_their_code_points():
    texts = ["B", "a", "Z", "é", "z", "~", "🐘", "漢", "a ", "A"]
    Interval.objects.bulk_create([Interval(name=each, ran_at=NOON) for each in texts])

    assert list(Interval.objects.order_by("name").values_list("name", flat=True)) == sorted(texts)


@quick
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200),
        max_size=4,
        unique=True,
    )
)
def test_any_texts_are_kept_and_told_apart(texts):
    Interval.objects.all().delete()
    Interval.objects.bulk_create([Interval(name=each, ran_at=NOON) for each in texts])

    assert list(Interval.objects.order_by("name").values_list("name", flat=True)) == sorted(texts)
    for each in texts:
        assert Interval.objects.filter(name=each).count() == 1


def test_a_text_of_two_hundred_characters_fits():
    Interval.objects.create(name="🐘" * 200, ran_at=NOON)

    assert Interval.objects.get().name == "🐘" * 200
