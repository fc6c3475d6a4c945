"""The life of a long-running service: ready, closing, closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum


class ServiceStatus(StrEnum):
    READY = "ready"
    CLOSING = "closing"
    CLOSED = "closed"


class ServiceClosed(RuntimeError):
    """The service was started after it was closed."""


class Service:
    """Cleanups in reverse order of their adding, each run once, all errors reported together."""

    def __init__(self) -> None:
        self.status = ServiceStatus.READY
        self._cleanups: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def add(self, cleanup: Callable[[], None]) -> None:
        """Run ``cleanup`` on close. Raises ServiceClosed once closing has begun."""
        with self._lock:
            if self.status is not ServiceStatus.READY:
                raise ServiceClosed(f"The service is {self.status}; nothing can be started in it.")
            self._cleanups.append(cleanup)

    def close(self) -> None:
        """Run the cleanups. Idempotent. Raises ExceptionGroup with every error after all have run."""
        with self._lock:
            if self.status is not ServiceStatus.READY:
                return
            self.status = ServiceStatus.CLOSING
        errors: list[Exception] = []
        for cleanup in reversed(self._cleanups):
            try:
                cleanup()
            except Exception as error:  # noqa: BLE001 - reported below, after the others have run
                errors.append(error)
        self.status = ServiceStatus.CLOSED
        if errors:
            raise ExceptionGroup("Closing the service failed.", errors)
