"""Whatever a handler raises, something printable and bounded is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bunderstack_django.jobs import errors
from bunderstack_django.models import Job
from bunderstack_django.testing import advance, drain
from tests.testapp import tasks


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("exit 0", "builtins.SystemExit"),
        ("exit 3", "builtins.SystemExit"),
        ("exit text", "builtins.SystemExit"),
        ("interrupt", "builtins.KeyboardInterrupt"),
        ("generator", "builtins.GeneratorExit"),
        ("recursion", "builtins.RecursionError"),
    ],
)
def test_an_exception_that_is_none_fails_its_job_only(how, kind):
    result = tasks.leave.enqueue(how)
    tasks.noop.enqueue()
    drain()

    job = Job.objects.get(pk=result.id)
    assert (job.status, job.errors[0]["exception_class"]) == ("failed", kind)
    assert Job.objects.filter(status="succeeded").count() == 1


@pytest.mark.django_db
def test_an_exception_that_cannot_be_printed_is_kept_by_its_class():
    result = tasks.unprintable.enqueue()
    drain()
    advance(1)
    drain()

    job = Job.objects.get(pk=result.id)
    assert (job.status, job.attempts) == ("failed", 2)
    assert job.errors[0]["exception_class"] == "tests.testapp.tasks.Unprintable"
    assert job.errors[0]["message"] == "<the message could not be printed>"


@pytest.mark.django_db
def test_a_cyclic_chain_of_causes_ends():
    result = tasks.cyclic_cause.enqueue()
    drain()

    assert "first" in Job.objects.get(pk=result.id).errors[0]["traceback"]


@pytest.mark.django_db
def test_a_message_of_5_mb_with_nul_and_surrogates_is_bounded_and_stored():
    result = tasks.large_error.enqueue()
    drain()

    error = Job.objects.get(pk=result.id).errors[0]
    assert len(error["message"]) == errors.MAX_MESSAGE
    assert len(error["traceback"]) <= errors.MAX_TRACEBACK


def test_the_oldest_errors_are_forgotten():
    kept: list[object] = []
    for attempt in range(100):
        kept = errors.remembered(kept, errors.describe(ValueError("x"), attempt=attempt))

    assert [error["attempt"] for error in kept] == list(range(75, 100))  # type: ignore[index]


@given(st.text(st.characters()))
def test_any_text_is_made_storable(text):
    cleaned = errors.clean(text)

    assert "\0" not in cleaned
    cleaned.encode()
