"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

_LONGEST = timedelta(days=3650)  # a wait beyond this is a mistake, and must not overflow a timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential backoff: ``base * factor ** attempt``, at most ``maximum``, then ± ``jitter``.

    >>> Backoff(jitter=0)(1)
    datetime.timedelta(seconds=2)
    >>> Backoff(jitter=0)(1_000_000)
    datetime.timedelta(seconds=3600)
    """

    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    maximum: timedelta = timedelta(hours=1)
    jitter: float = 0.1  # share of the wait, 0 to 1

    def __post_init__(self) -> None:
        if self.base < timedelta(0) or self.maximum < timedelta(0):
            raise ValueError("Backoff: base and maximum must not be negative.")
        if not self.factor >= 1:
            raise ValueError(f"Backoff: factor must be at least 1, not {self.factor!r}.")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"Backoff: jitter is a share from 0 to 1, not {self.jitter!r}.")

    def __call__(self, attempt: int) -> timedelta:
        """The wait after failure number ``attempt`` (1 after the first)."""
        try:
            seconds = self.base.total_seconds() * self.factor**attempt
        except OverflowError:
            seconds = float("inf")
        wait = min(seconds, self.maximum.total_seconds())
        spread = wait * self.jitter
        return timedelta(seconds=wait + random.uniform(-spread, spread))  # noqa: S311


def wait_after(backoff: Callable[[int], timedelta | float], attempt: int) -> timedelta:
    """What ``backoff`` says, brought between nothing and ten years."""
    try:
        wait = backoff(attempt)
        if not isinstance(wait, timedelta):  # a user's callable may give seconds
            wait = timedelta(seconds=float(wait))
    except OverflowError:
        return _LONGEST
    return min(max(wait, timedelta(0)), _LONGEST)
