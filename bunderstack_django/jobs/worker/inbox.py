"""Claimed runs on their way to a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from ..execute import Run


class Inbox:
    """A queue that can also be emptied of what has waited too long; ``low`` calls when it runs low."""

    def __init__(self, on_low: Callable[[], None]) -> None:
        self._runs: deque[Run] = deque()
        self._ready = threading.Condition()
        self._on_low = on_low
        self._closed = False
        self.low_water = 0

    def put(self, runs: Iterable[Run]) -> None:
        with self._ready:
            before = len(self._runs)
            self._runs.extend(runs)
            self._ready.notify(len(self._runs) - before)

    def get(self) -> Run | None:
        """The next run; waits for one. None: closed."""
        with self._ready:
            while not self._runs:
                if self._closed:
                    return None
                self._ready.wait()
            run = self._runs.popleft()
            is_low = len(self._runs) == self.low_water
        if is_low:
            self._on_low()
        return run

    def take_stale(self, received_before: float) -> list[Run]:
        """Remove and return the runs received before this monotonic instant."""
        with self._ready:
            stale = [run for run in self._runs if run.received < received_before]
            if stale:
                self._runs = deque(run for run in self._runs if run.received >= received_before)
            return stale

    def take_all(self) -> list[Run]:
        with self._ready:
            runs = list(self._runs)
            self._runs.clear()
            return runs

    def close(self) -> None:
        """Let the threads end once nothing is left."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def __len__(self) -> int:
        return len(self._runs)
