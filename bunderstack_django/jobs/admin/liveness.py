"""Whether a worker process is there, by how long ago it last wrote its row."""

from __future__ import annotations

from typing import Any

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from ... import conf

BEATS_MISSED = 2  # a heartbeat may be this many intervals old before it counts as late


class Liveness(TextChoices):
    ALIVE = "alive", _("Alive")
    LATE = "late", _("Late")
    GONE = "gone", _("Gone")


def liveness(worker: Any) -> Liveness:
    """How a WorkerProcess, read with ``db_now``, stands. Gone: its leases have lapsed, others take its jobs."""
    silence = worker.db_now - worker.heartbeat_at
    if silence > conf.lease():
        return Liveness.GONE
    return Liveness.LATE if silence > conf.heartbeat() * BEATS_MISSED else Liveness.ALIVE
