"""Outcomes on their way to the database, written together under load and at once without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from ..execute import Outcome

WINDOW: Final = 0.05  # seconds in which outcomes gather
MOST: Final = 100  # outcomes in one statement; a write is due once so many wait


class Outbox:
    """Outcomes not yet written. One is due at once unless a write was less than 50 ms ago."""

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._outcomes: list[Outcome] = []
        self._lock = threading.Lock()
        self._on_news = on_news
        self.is_urgent = False
        self._last_write = float("-inf")

    def put(self, outcome: Outcome, *, urgent: bool = False) -> None:
        with self._lock:
            self._outcomes.append(outcome)
            waiting = len(self._outcomes)
            self.is_urgent = self.is_urgent or urgent
        if waiting == 1 or waiting == MOST or urgent:
            self._on_news()

    def due_in(self) -> float | None:
        """Seconds until a write is due; None while nothing waits."""
        if not self._outcomes:
            return None
        if self.is_urgent or len(self._outcomes) >= MOST:
            return 0.0
        return max(0.0, self._last_write + WINDOW - time.monotonic())

    def take(self) -> list[Outcome]:
        """The outcomes to write now."""
        with self._lock:
            taken, self._outcomes = self._outcomes, []
            self.is_urgent = False
        self._last_write = time.monotonic()
        return taken

    def put_back(self, outcomes: list[Outcome]) -> None:
        """Outcomes whose write failed, ahead of newer ones."""
        with self._lock:
            self._outcomes = outcomes + self._outcomes

    def __len__(self) -> int:
        return len(self._outcomes)
