"""The fixture that comes with the package."""

from __future__ import annotations

import importlib.metadata

import pytest

from bunderstack_django.runtime import clock
from tests.testapp import tasks


def installed() -> bool:
    try:
        importlib.metadata.distribution("bunderstack-django")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


pytestmark = pytest.mark.skipif(
    "not installed()", reason="the package is not installed here, only importable"
)


def test_jobs_runs_jobs_and_shifts_the_clock(jobs):
    tasks.noop.using(delay=60).enqueue()

    assert jobs.tick().claimed == 0
    jobs.advance(61)
    assert jobs.tick().succeeded == 1


def test_the_clock_is_set_back_after_the_test():
    assert clock.now_sql("postgresql") == "statement_timestamp()"
