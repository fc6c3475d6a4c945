"""Fixtures of the tests with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .harness import Evidence, Workers


@pytest.fixture
def evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evidence:
    """What handlers noted."""
    return Evidence(tmp_path)


@pytest.fixture
def workers(transactional_db: Any, evidence: Evidence) -> Iterator[Workers]:
    """Starts worker processes on the test database; all are dead before it is flushed."""
    started = Workers(evidence)
    yield started
    started.close()
