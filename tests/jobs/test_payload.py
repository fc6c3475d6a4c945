"""Arguments: refused at the call if they do not fit, read back as the annotated types."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bunderstack_django.exceptions import InvalidPayload
from bunderstack_django.jobs.payload import encode, plain, schema_of
from bunderstack_django.models import Job
from bunderstack_django.testing import drain
from tests.testapp import tasks
from tests.testapp.tasks import Address, Colour

TYPED = {
    "moment": datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC),
    "day": date(2026, 2, 28),
    "key": UUID(int=1),
    "price": Decimal("0.10"),
    "colour": Colour.RED,
    "address": Address(street="Elm", since=date(2020, 1, 1)),
    "share": 0.5,
    "tags": [Colour.BLUE],
}


def positional(a, b, /, c, *rest: int, d=1, **more: str):  # type: ignore[no-untyped-def]
    return a, b, c, rest, d, more


def scalar(text: str, number: int, share: float, flag: bool, maybe: int | None = None) -> None: ...


def round_trip(function, *args, **kwargs):  # type: ignore[no-untyped-def]
    """What a handler gets for a call, through the text that is stored."""
    import json

    schema = schema_of(function)
    text = encode(schema.dump(args, kwargs), "arguments", 10**9)
    return schema.load(json.loads(text))


@pytest.mark.django_db
def test_annotated_values_reach_the_handler_as_their_types(calls):
    tasks.typed.enqueue(**TYPED)
    drain()

    assert calls == [tuple(TYPED.values())]


@pytest.mark.django_db
def test_the_payload_is_stored_as_called_in_json_form():
    result = tasks.typed.enqueue(
        TYPED["moment"], TYPED["day"], UUID(int=1), price=Decimal("1.0"), colour="red"
    )

    expected = {
        "args": ["2026-01-01T12:30:15.123456Z", "2026-02-28", "00000000-0000-0000-0000-000000000001"],
        "kwargs": {"price": "1.0", "colour": "red"},
    }
    assert Job.objects.get(pk=result.id).payload == expected
    assert (result.args, result.kwargs) == (expected["args"], expected["kwargs"])


def test_every_kind_of_parameter_round_trips():
    args, kwargs = round_trip(positional, 1, 2, 3, 4, 5, d=6, e="seven")

    assert (args, kwargs) == ([1, 2, 3, 4, 5], {"d": 6, "e": "seven"})


def test_an_int_is_good_for_a_float_and_a_value_for_its_enum():
    args, _ = round_trip(scalar, "a", 1, 2, True)
    assert args == ["a", 1, 2.0, True]
    assert type(args[2]) is float
    stored = schema_of(tasks.typed.func).dump((), {**TYPED, "colour": "red", "tags": ["blue", Colour.RED]})
    assert stored["kwargs"]["tags"] == ["blue", "red"]


@pytest.mark.parametrize(
    ("args", "kwargs", "named"),
    [
        ((5, 1, 1.0, True), {}, "text"),
        (("a", "1", 1.0, True), {}, "number"),
        (("a", True, 1.0, True), {}, "number"),
        (("a", 1.0, 1.0, True), {}, "number"),
        (("a", 1, "1", True), {}, "share"),
        (("a", 1, 1.0, 1), {}, "flag"),
        (("a", 1, 1.0, True, "x"), {}, "maybe"),
        (("a", 1, 1.0), {}, "flag"),
        (("a", 1, 1.0, True), {"other": 1}, "other"),
        (("a", 1, 1.0, True, None, 6), {}, "too many"),
        (("a", 1, math.nan, True), {}, "share"),
        (("a", 1, 10**400, True), {}, "share"),
        (("a\0", 1, 1.0, True), {}, "text"),
        (("\ud800", 1, 1.0, True), {}, "text"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_by_the_name_of_the_argument(args, kwargs, named):
    with pytest.raises(InvalidPayload, match=named):
        schema_of(scalar).dump(args, kwargs)


@pytest.mark.django_db
def test_a_refused_call_leaves_no_row():
    with pytest.raises(ValueError, match="a"):
        tasks.add.enqueue("1", 2)
    with pytest.raises(TypeError):  # what django.tasks raises for a value that is no JSON
        tasks.echo.enqueue(object())

    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "value",
    [datetime(2026, 1, 1, tzinfo=UTC), UUID(int=1), Decimal(1), {1, 2}, object(), b"\xff", math.inf, 1j],
)
def test_a_value_that_is_no_json_needs_an_annotation(value):
    with pytest.raises(InvalidPayload, match="value"):
        schema_of(tasks.echo.func).dump((value,), {})


@pytest.mark.parametrize(
    ("value", "stored"),
    [((1, 2), [1, 2]), ({1: "a"}, {"1": "a"}), (b"x", "x"), ([(1,)], [[1]]), (1e16, 1e16), (10**30, 10**30)],
)
def test_a_value_without_annotation_is_kept_as_json_has_it(value, stored):
    args, _ = round_trip(tasks.echo.func, value)

    assert args == [stored]
    assert type(args[0]) is type(stored)


def test_a_model_instance_is_refused_with_the_hint_to_pass_its_pk():
    with pytest.raises(InvalidPayload, match="pk"):
        schema_of(tasks.echo.func).dump((Job(name="x"),), {})


def test_a_value_that_cannot_be_read_back_is_refused():
    def job(pairs: dict[tuple[int, int], int]) -> None: ...

    with pytest.raises(InvalidPayload, match="pairs"):
        schema_of(job).dump(({(1, 2): 3},), {})


def test_nan_inside_an_annotated_value_is_refused():
    def job(shares: list[float]) -> None: ...

    with pytest.raises(InvalidPayload, match="shares"):
        schema_of(job).dump(([math.nan],), {})


def test_deep_nesting_is_refused_and_not_a_recursion_error():
    value: list = []
    for _ in range(100_000):
        value = [value]

    with pytest.raises(InvalidPayload, match="levels deep"):
        schema_of(tasks.echo.func).dump((value,), {})


def test_a_payload_beyond_the_limit_is_refused_by_its_size_in_bytes():
    assert encode({"args": ["ä" * 40]}, "x", 100)
    with pytest.raises(InvalidPayload, match="at most 100"):
        encode({"args": ["ä" * 50]}, "x", 100)


def test_an_annotation_that_cannot_be_resolved_is_reported_by_function_and_parameter():
    def job(order: "Missing") -> None: ...  # noqa: F821, UP037

    (problem,) = schema_of(job).problems
    assert "job" in problem
    assert "'order'" in problem
    assert "Missing" in problem
    with pytest.raises(InvalidPayload, match="order"):
        schema_of(job).dump((1,), {})


def test_a_quoted_name_inside_an_annotation_is_looked_up_where_the_function_stands():
    def job(tags: list[Colour]) -> None: ...
    def broken(orders: list[Missing]) -> None: ...  # noqa: F821

    assert schema_of(job).dump((["red"],), {})["args"] == [["red"]]
    assert "'orders'" in schema_of(broken).problems[0]


def test_an_annotation_that_no_json_can_carry_is_reported():
    def job(order: Job) -> None: ...

    (problem,) = schema_of(job).problems
    assert "'order'" in problem


def test_the_context_is_no_argument_of_the_call():
    schema = tasks.with_context.schema

    assert schema.dump((3,), {}) == {"args": [3], "kwargs": {}}
    with pytest.raises(InvalidPayload, match="context"):
        schema.dump((), {"context": 1})


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner),
    max_leaves=10,
)


@given(_JSON)
def test_plain_json_arrives_as_it_was_sent(value):
    args, _ = round_trip(tasks.echo.func, value)

    assert args == [value]


@given(_JSON | st.binary() | st.datetimes() | st.decimals() | st.sets(st.integers()) | st.text())
def test_any_value_is_either_refused_or_json(value):
    import json

    try:
        kept = plain(value, "value")
    except InvalidPayload:
        return
    assert json.loads(json.dumps(kept, allow_nan=False)) == kept


@given(
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.uuids(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.sampled_from(Colour),
)
def test_typed_values_arrive_equal(moment, day, key, price, colour):
    args, kwargs = round_trip(tasks.typed.func, moment, day, key=key, price=price, colour=colour)

    assert (args, kwargs) == ([moment, day], {"key": key, "price": price, "colour": colour})
