"""Since when this process has been in unbroken contact with the database."""

from __future__ import annotations

import time


class Contact:
    """Others' leases may only be judged after one heartbeat interval of contact: an outage charges nobody.

    A silence of two intervals, as after SIGSTOP or a suspended machine, counts as a break too: others may have
    been stopped with us and have yet to renew.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._since: float | None = None
        self._last = time.monotonic()

    def made(self) -> None:
        now = time.monotonic()
        if self._since is None or now - self._last > 2 * self._interval:
            self._since = now
        self._last = now

    def broken(self) -> None:
        self._since = None

    @property
    def is_trusted(self) -> bool:
        now = time.monotonic()
        return (
            self._since is not None
            and now - self._last <= 2 * self._interval
            and now - self._since >= self._interval
        )
