"""``python -m tests.processes.enqueuer <count> <seconds>``: a web process that enqueues, and counts what was accepted."""

from __future__ import annotations

import sys
import time

import django

if __name__ == "__main__":
    django.setup()
    from django.db import OperationalError, connection

    from tests.processes import tasks

    print("READY", flush=True)  # noqa: T201
    accepted = refused = 0
    for number in range(int(sys.argv[1])):
        try:
            tasks.start.enqueue(f"web{number}")
            accepted += 1
        except OperationalError:
            refused += 1
        time.sleep(float(sys.argv[2]))
    connection.close()
    print(f"ACCEPTED {accepted} REFUSED {refused}", flush=True)  # noqa: T201
