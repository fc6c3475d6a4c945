"""``python -m tests.processes.wrong_clock runworker …``: a process whose clocks are off by the seconds in a file.

Everything that Python code reads a wall clock with is patched before anything else is imported; what the C
library tells SQLite stays right, and so does the monotonic clock, as when a host's clock is stepped.
"""

from __future__ import annotations

import contextlib
import datetime as datetime_module
import os
import sys
import time
from pathlib import Path
from typing import Any

with contextlib.suppress(ImportError):
    import psycopg  # noqa: F401 - written in C, it compares its idea of a datetime with the one it finds

_file = Path(os.environ["PROCESS_CLOCK"])
_time, _time_ns, _datetime, _date = time.time, time.time_ns, datetime_module.datetime, datetime_module.date


def offset() -> float:
    return float(_file.read_text() or 0)


class _Kind(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _datetime)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, _datetime)


class Datetime(_datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return _datetime.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return _datetime.fromtimestamp(time.time(), datetime_module.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return _datetime.fromtimestamp(time.time())


def patch() -> None:
    time.time = lambda: _time() + offset()
    time.time_ns = lambda: _time_ns() + int(offset() * 1e9)
    datetime_module.datetime = Datetime  # type: ignore[misc]


if __name__ == "__main__":
    patch()
    from django.utils import timezone

    print(f"CLOCK {(timezone.now().timestamp() - _time()):+.0f}", flush=True)  # noqa: T201
    from django.core.management import execute_from_command_line

    execute_from_command_line(["manage.py", *sys.argv[1:]])
