"""What the numbers were measured with: machine and versions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import services

PACKAGES = (
    "bunderstack-django",
    "django",
    "psycopg",
    "mysqlclient",
    "django-tasks-db",
    "huey",
    "celery",
    "amqp",
    "procrastinate",
    "pgqueuer",
)


def describe() -> dict[str, str]:
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "load before": _load(),
    }


def versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    for store in ("PostgreSQL", "SQLite", "MariaDB"):
        if services.problem(store) is None:
            found[store] = f"{services.version(store)} ({services.settings(store)})"
        else:
            found[store] = "not reachable"
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "unknown"
    return f"{size / 2**30:.0f} GiB"


def _load() -> str:
    try:
        return f"{os.getloadavg()[0]:.1f}"
    except OSError:
        return "unknown"
