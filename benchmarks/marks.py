"""The stopwatch that every no-op handler touches: it runs from the first job to the last."""

from __future__ import annotations

import itertools
import threading
import time

from .measure import Numbers

_calls = itertools.count(1)  # next() on it is atomic
_last = 0
_begun = _ended = (0.0, 0.0)
reached = threading.Event()  # the last job has run


def expect(jobs: int) -> None:
    """Begin anew; ``jobs`` calls of ``mark`` are to come."""
    global _calls, _last
    _calls, _last = itertools.count(1), jobs
    reached.clear()


def mark() -> None:
    """What a no-op job does."""
    global _begun
    number = next(_calls)
    if number == 1:
        _begun = time.perf_counter(), time.process_time()
    elif number == _last:
        stop()
        reached.set()


def stop() -> None:
    """The work ends here. Called again, it ends later: a worker that returns once all is written."""
    global _ended
    _ended = time.perf_counter(), time.process_time()


def numbers() -> Numbers:
    if not reached.is_set():
        raise RuntimeError(f"The worker ended after {next(_calls) - 1} of {_last} jobs.")
    wall, cpu = _ended[0] - _begun[0], _ended[1] - _begun[1]
    return {"per_second": _last / wall, "cpu_us": cpu / _last * 1e6}
