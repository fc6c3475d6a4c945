"""Running every case in turn, round after round: what slows the machine down for a while slows all alike."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from . import services
from .measure import Case, Taken, call

Results = dict[tuple[str, str, str], Taken]


def run(cases: list[Case], rounds: int) -> Results:
    results: Results = {case.key: Taken(skipped=_obstacle(case)) for case in cases}
    with ExitStack() as stack:
        places = _Places(stack)
        for case in cases:
            _attempt(results[case.key], partial(places.prepare, case))
        for number in range(1, rounds + 1):
            for case in cases:
                measure = partial(_measure, case, places, results[case.key], number)
                _attempt(results[case.key], measure)
    for case in cases:
        if reason := results[case.key].skipped:
            _say(f"!!! SKIPPED {' / '.join(case.key)}: {reason}")
    return results


class _Places:
    """The databases of the cases: one per system and store, made and filled once."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._urls: dict[tuple[str, str, str], str] = {}
        self._prepared: set[tuple[str, ...]] = set()

    def arguments(self, case: Case) -> dict[str, str]:
        for name in case.databases:
            key = (case.system, case.store, name)
            if key not in self._urls:
                label = "_".join(key).lower().replace("-", "_").replace(" ", "_")
                self._urls[key] = self._stack.enter_context(services.database(case.store, label))
        return {name: self._urls[case.system, case.store, name] for name in case.databases}

    def prepare(self, case: Case) -> None:
        arguments = self.arguments(case)
        key = (case.module, *arguments.values())
        if case.prepare and key not in self._prepared:
            _say(f"preparing {case.system} / {case.store}")
            call(case.module, "prepare", **arguments, **(case.sizes if len(arguments) > 1 else {}))
            self._prepared.add(key)


def _attempt(taken: Taken, step: Callable[[], None]) -> None:
    """One queue that cannot be measured must not end the rest."""
    if taken.skipped is None:
        try:
            step()
        except Exception as error:
            taken.skipped = f"{type(error).__name__}: {error}"


def _measure(case: Case, places: _Places, taken: Taken, number: int) -> None:
    _say(f"round {number}: {' / '.join(case.key)}")
    taken.rounds.append(call(case.module, case.measure, **places.arguments(case), **case.sizes))


def _obstacle(case: Case) -> str | None:
    """Why a case cannot be measured here, or None."""
    if case.package is not None:
        try:
            version(case.package)
        except PackageNotFoundError:
            return f"{case.package} is not installed"
    return services.problem(case.store)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
