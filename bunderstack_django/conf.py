"""The ``BUNDERSTACK`` setting: each key with its default, read when used."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.core.signals import setting_changed

DEFAULTS: Final[dict[str, Any]] = {
    "LEASE": 30,
    "HEARTBEAT": None,
    "TIMEOUT": 60,
    "RETRIES": 3,
    "MAX_CRASHES": 3,
    "MAX_PAYLOAD_BYTES": 2 * 1024 * 1024,
    "UNKNOWN_JOB_GRACE": 3600,
    "RETENTION": {"succeeded": 86_400, "failed": 1_209_600, "cancelled": 86_400},
    "NOTIFY": True,
    "POLL_INTERVAL": 1.0,
    "AUTODISCOVER_MODULES": ["tasks", "access", "buckets"],
    "CRON_SECRET": None,
    "CRON_SIGNATURES": ["v0", "v1"],
    "ENVIRONMENT": None,
    "AUTHENTICATORS": [],
    "CONTEXT": None,
    "THROTTLE": {},
    "TRUSTED_PROXIES": 0,
    "IDEMPOTENCY_TTL": 86_400,
}


def value(key: str) -> Any:
    """The setting ``key`` of ``BUNDERSTACK``, or its default."""
    return _configured().get(key, DEFAULTS[key])


@lru_cache(maxsize=1)
def _configured() -> dict[str, Any]:
    # Kept until a test changes it: for a setting that is not there Django searches at every look.
    return getattr(settings, "BUNDERSTACK", {})


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "BUNDERSTACK":
        _configured.cache_clear()


setting_changed.connect(_forget)


def duration(key: str) -> timedelta:
    """A setting that is a duration, given in seconds or as a ``timedelta``."""
    return as_timedelta(value(key))


def lease() -> timedelta:
    """How long a claim holds without a heartbeat."""
    return duration("LEASE")


def heartbeat() -> timedelta:
    """How often a worker renews its leases: a third of the lease unless set."""
    configured = value("HEARTBEAT")
    return lease() / 3 if configured is None else as_timedelta(configured)


def retention(status: str) -> timedelta:
    """How long a job that ended as ``status`` is kept."""
    return as_timedelta({**DEFAULTS["RETENTION"], **value("RETENTION")}[status])


def as_timedelta(seconds: float | timedelta) -> timedelta:
    return seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
