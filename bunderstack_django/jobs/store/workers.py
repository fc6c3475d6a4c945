"""Worker processes, and the chores that one of them does for all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ...runtime.clock import DatabaseNow
from ..models import Interval, WorkerProcess


def register(worker_id: str, using: str, **described: Any) -> None:
    """Add or replace a worker's row, its heartbeat now."""
    now = DatabaseNow()
    WorkerProcess.objects.using(using).filter(pk=worker_id).delete()
    WorkerProcess.objects.using(using).create(id=worker_id, started_at=now, heartbeat_at=now, **described)


def beat(worker_id: str, using: str, *, rss_bytes: int, running: int) -> bool:
    """Renew a worker's row. False: someone took it for dead and removed it."""
    return bool(
        WorkerProcess.objects.using(using)
        .filter(pk=worker_id)
        .update(heartbeat_at=DatabaseNow(), rss_bytes=rss_bytes, running=running)
    )


def unregister(worker_id: str, using: str) -> None:
    WorkerProcess.objects.using(using).filter(pk=worker_id).delete()


def find(worker_id: str | None, using: str) -> WorkerProcess | None:
    return WorkerProcess.objects.using(using).filter(pk=worker_id).first()


def forget_dead(silent_for: timedelta, using: str) -> int:
    """Remove workers that have not renewed their row for so long."""
    gone, _ = WorkerProcess.objects.using(using).filter(heartbeat_at__lt=DatabaseNow(-silent_for)).delete()
    return gone


def take_turn(name: str, every: timedelta, using: str) -> bool:
    """Whether the chore ``name`` is due; if so it is taken, and due again after ``every``."""
    rows = Interval.objects.using(using).filter(name=name)
    due = rows.filter(ran_at__lte=DatabaseNow(-every))
    if due.exists():  # looked at first: a write takes SQLite's only lock even if it changes nothing
        return bool(due.update(ran_at=DatabaseNow()))
    if rows.exists():
        return False
    # Both sides of a race insert; one does so in vain.
    _, created = rows.get_or_create(name=name, defaults={"ran_at": DatabaseNow()})
    return created
