"""Raising JobTimeout in a handler whose time is up, and never outside it."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ..exceptions import JobTimeout

_UNSET: Final = object()
_GLANCE: Final = 0.25  # seconds between looks at the guards; the most a timeout may be late


class Deadlines:
    """Watches calls in any thread, from one thread of its own, started by the first call with a limit."""

    def __init__(self) -> None:
        self._guards: set[_Guard] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def call(
        self, function: Callable[[], Any], seconds: float | None, on_fire: Callable[[], None] = lambda: None
    ) -> Any:
        """``function()``; raises JobTimeout inside it once ``seconds`` have passed.

        ``on_fire`` is told of it. A call that cannot be interrupted, in C code or asleep, gets the exception when it comes back to Python.
        """
        if seconds is None:
            return function()
        guard = _Guard(threading.get_ident(), time.monotonic() + seconds, on_fire)
        self._watch(guard)
        value: Any = _UNSET
        try:
            try:
                value = function()
            finally:
                guard.leave()
        except JobTimeout:
            guard.leave()  # once more: the exception may have come in the middle of the first
            if value is _UNSET:
                raise
        finally:
            self._guards.discard(guard)
        return value

    def _watch(self, guard: _Guard) -> None:
        self._guards.add(guard)
        if self._thread is None or not self._thread.is_alive():  # a fork has no threads but the forking one
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._run, name="job-deadlines", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            earliest = now + _GLANCE
            for guard in tuple(self._guards.copy()):
                if guard.deadline <= now:
                    guard.fire()
                elif guard.deadline < earliest:
                    earliest = guard.deadline
            time.sleep(max(earliest - now, 0.005))


class _Guard:
    """One call: in the handler until ``leave``; ``fire`` does something once at most, and only till then."""

    __slots__ = ("_fired", "_inside", "_lock", "_on_fire", "deadline", "thread")

    def __init__(self, thread: int, deadline: float, on_fire: Callable[[], None]) -> None:
        self._on_fire = on_fire
        self.thread = thread
        self.deadline = deadline
        self._lock = threading.Lock()
        self._inside = True
        self._fired = False

    def fire(self) -> None:
        with self._lock:
            if self._inside and not self._fired:
                self._fired = True
                self._on_fire()
                _raise_in(self.thread, JobTimeout)

    def leave(self) -> None:
        with self._lock:
            if self._fired:
                _raise_in(self.thread, None)  # what was set but not yet raised
            self._inside = False


async def awaited(call: Callable[[], Awaitable[Any]], seconds: float | None) -> Any:
    """``await call()``; cancelled from inside with JobTimeout once ``seconds`` have passed."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await call()
    except TimeoutError as error:
        if limit.expired():
            raise JobTimeout from error  # whose traceback leads into the handler
        raise


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if exception is None else ctypes.py_object(exception)
    )


deadlines: Final = Deadlines()
