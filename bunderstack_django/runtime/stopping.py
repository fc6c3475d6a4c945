"""Being asked to stop: by a signal, by a caller, once politely and then at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType


class Wake:
    """Wakes the one thread that waits; safe to set from a signal handler, which ``threading.Event`` is not."""

    def __init__(self) -> None:
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._is_set = False

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._signals.put(None)

    def wait(self, timeout: float) -> None:
        """Return once set, or after ``timeout`` seconds."""
        if timeout > 0:
            with suppress(Empty):
                self._signals.get(timeout=timeout)
        with suppress(Empty):
            while True:
                self._signals.get_nowait()
        self._is_set = False  # last: a set() before this is what the caller is about to look for


class Stop:
    """Whether a loop was asked to stop. A second request means: at once."""

    def __init__(self) -> None:
        self.requested = False
        self.immediate = False
        self.requested_at: float | None = None  # monotonic seconds
        self._watchers: list[Callable[[], None]] = []

    def request(self) -> None:
        """Ask to stop; the second time, to stop at once. Only sets flags: safe in a signal handler."""
        if self.requested:
            self.immediate = True
        else:
            self.requested = True
            self.requested_at = time.monotonic()
        for notify in self._watchers:
            notify()

    def watch(self, notify: Callable[[], None]) -> None:
        """Call ``notify`` on each request; it must be safe in a signal handler."""
        self._watchers.append(notify)

    def __bool__(self) -> bool:
        return self.requested


@contextmanager
def on_signals(stop: Stop) -> Iterator[Stop]:
    """While inside, SIGTERM and SIGINT ask ``stop`` to stop. Outside the main thread nothing is installed."""
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        stop.request()

    before = {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
