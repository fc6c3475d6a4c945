"""What a measurement is, and taking its median over rounds that each run in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

RESULT: Final = "BENCH-RESULT "
TIMEOUT: Final = 600  # seconds for one round of one case
Numbers = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to measure: a function of a module, called as ``module.measure(**databases, **sizes)``."""

    group: str  # "drain", "enqueue" or "claim"
    system: str  # who is measured
    store: str  # on what
    module: str
    measure: str
    sizes: dict[str, int]
    databases: tuple[str, ...] = ("database",)  # each argument gets a database of its own
    package: str | None = None  # the distribution that must be installed
    prepare: bool = False  # call ``module.prepare`` once before the first round

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.system, self.store


@dataclass
class Taken:
    """The rounds of a case so far, or why there are none."""

    rounds: list[Numbers] = field(default_factory=list)
    skipped: str | None = None

    def median(self, name: str) -> float | None:
        found = [numbers[name] for numbers in self.rounds if name in numbers]
        return median(found) if found else None


class Failed(Exception):
    """A round ended without numbers."""


def call(module: str, function: str, **arguments: Any) -> Numbers:
    """``module.function(**arguments)`` in a fresh process. Raises Failed."""
    command = [sys.executable, "-m", "benchmarks.child", module, function, json.dumps(arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"no result within {TIMEOUT} s") from None
    for line in done.stdout.splitlines():
        if line.startswith(RESULT):
            return json.loads(line.removeprefix(RESULT))  # type: ignore[no-any-return]
    said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
    raise Failed(said[-1][:300])


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Gives a function that tells the seconds the block took."""
    begun = time.perf_counter()
    ended: list[float] = []
    yield lambda: (ended[0] if ended else time.perf_counter()) - begun
    ended.append(time.perf_counter())


def per_second(number: int, work: Callable[[], object]) -> float:
    """How many of ``number`` things per second ``work()`` does."""
    with stopwatch() as seconds:
        work()
    return number / seconds()
