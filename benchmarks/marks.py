"""The stopwatch that every no-op handler touches: it runs from the first job to the last."""

from __future__ import annotations

import itertools
import threading
import time

from .measure import Numbers

_calls = itertools.count(1)  # next() on it is atomic
_first, _last = 1, 0
_begun = _ended = (0.0, 0.0)
reached = threading.Event()  # the last job has run


def expect(jobs: int, *, warm_up: int = 0) -> None:
    """Begin anew; ``jobs`` calls of ``mark`` are to come, of which the first ``warm_up`` are not timed."""
    global _calls, _first, _last
    _calls, _first, _last = itertools.count(1), warm_up + 1, jobs
    reached.clear()


def mark() -> None:
    """What a no-op job does."""
    global _begun
    number = next(_calls)
    if number == _first:
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
    timed = _last - _first + 1
    return {"per_second": timed / wall, "cpu_us": cpu / timed * 1e6}
