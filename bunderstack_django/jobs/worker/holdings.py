"""The runs that this process has claimed and not yet settled."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from ..execute import Run


class Holdings:
    """Claimed runs by key; the dispatcher adds and removes, the heartbeat renews."""

    def __init__(self) -> None:
        self._runs: dict[Any, Run] = {}
        self._lock = threading.Lock()

    def add(self, runs: Iterable[Run]) -> None:
        with self._lock:
            for run in runs:
                self._runs[run.claimed.id] = run

    def remove(self, runs: Iterable[Run]) -> None:
        with self._lock:
            for run in runs:
                if self._runs.get(run.claimed.id) is run:
                    del self._runs[run.claimed.id]

    def snapshot(self) -> list[Run]:
        with self._lock:
            return list(self._runs.values())

    def holds(self, run: Run) -> bool:
        return self._runs.get(run.claimed.id) is run

    def has_claim(self, key: Any, token: str) -> bool:
        run = self._runs.get(key)
        return run is not None and run.claimed.lease_token == token

    def __len__(self) -> int:
        return len(self._runs)
