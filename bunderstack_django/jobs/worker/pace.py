"""How many jobs to claim: one per idle thread, and ahead only as far as they will start within 50 ms."""

from __future__ import annotations

from collections import deque
from typing import Final

HORIZON: Final = 0.05  # seconds
MOST_AHEAD: Final = 500
_SAMPLES: Final = 64
_SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 100, 150, 200, 250, 350, 500, 750, 1000)


class Pace:
    """The recent mean duration of this process's jobs."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_SAMPLES)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        if len(self._recent) == _SAMPLES:
            self._total -= self._recent[0]
        self._recent.append(seconds)
        self._total += seconds

    def ahead(self, threads: int) -> int:
        """How many jobs may wait for ``threads``; none while durations are unknown or long."""
        if len(self._recent) < min(threads, _SAMPLES):
            return 0
        mean = max(self._total / max(len(self._recent), 1), 1e-6)
        return min(int(HORIZON * threads / mean), MOST_AHEAD) if mean <= HORIZON else 0


def batch_size(wanted: int) -> int:
    """The largest of a few fixed sizes that is no more than ``wanted``: each size is a statement of its own."""
    return max((size for size in _SIZES if size <= wanted), default=0)
