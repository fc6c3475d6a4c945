"""Pytest fixtures. Installed with the package; nothing is imported until a fixture is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def jobs(db: Any) -> Iterator[Any]:
    """``bunderstack_django.testing``, with the clock set back after the test: ``jobs.tick()``, ``jobs.advance(60)``."""
    from bunderstack_django import testing

    yield testing
    testing.reset_clock()
