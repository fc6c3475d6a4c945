"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from bunderstack_django.runtime import clock


@pytest.fixture(autouse=True)
def _own_clock() -> Iterator[None]:
    """No test leaves this process's clock shifted."""
    yield
    clock.reset()


@pytest.fixture
def on_sqlite() -> bool:
    return connection.vendor == "sqlite"


@pytest.fixture
def calls() -> Iterator[list[object]]:
    """What the sample jobs saw."""
    from tests.testapp import tasks

    tasks.calls.clear()
    tasks.failures.clear()
    yield tasks.calls
    tasks.calls.clear()
    tasks.failures.clear()
