"""Durable background jobs for Django, from the database you already have."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exceptions import Discard, Retry, Snooze
    from .jobs.backoff import Backoff
    from .jobs.declare import JobContext, job
    from .jobs.operations import cancel, enqueue, enqueue_many, retry

__all__ = [
    "Backoff",
    "Discard",
    "JobContext",
    "Retry",
    "Snooze",
    "cancel",
    "enqueue",
    "enqueue_many",
    "job",
    "retry",
]

_HOME = {
    "Backoff": ".jobs.backoff",
    "Discard": ".exceptions",
    "JobContext": ".jobs.declare",
    "Retry": ".exceptions",
    "Snooze": ".exceptions",
    "cancel": ".jobs.operations",
    "enqueue": ".jobs.operations",
    "enqueue_many": ".jobs.operations",
    "job": ".jobs.declare",
    "retry": ".jobs.operations",
}


def __getattr__(name: str) -> Any:
    # Lazy: Django imports this package before its app registry is ready for models.
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
