"""The results as tables: aligned for a terminal, or in Markdown."""

from __future__ import annotations

from dataclasses import dataclass

from .plan import DTDB
from .runner import Results
from .targets import Target

MISSING = "–"


@dataclass(frozen=True)
class Table:
    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def aligned(self) -> str:
        widths = [
            max(len(row[column]) for row in (self.head, *self.rows)) for column in range(len(self.head))
        ]
        lines = [self._line(self.head, widths), "  ".join("-" * width for width in widths)]
        return "\n".join([self.title, *lines, *(self._line(row, widths) for row in self.rows)])

    def markdown(self) -> str:
        rule = "|---|" + "--:|" * (len(self.head) - 1)
        return "\n".join(
            [f"| {' | '.join(self.head)} |", rule, *(f"| {' | '.join(row)} |" for row in self.rows)]
        )

    @staticmethod
    def _line(cells: tuple[str, ...], widths: list[int]) -> str:
        first, *rest = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join([first, *rest]).rstrip()


def tables(results: Results) -> list[Table]:
    return [_drain(results), _enqueue(results), _claim(results)]


def targets_table(found: list[Target]) -> Table:
    rows = [
        (
            each.what,
            each.wanted + (" (aim)" if each.aim else ""),
            each.shown,
            {None: "?", True: "✓", False: "✗"}[each.met],
        )
        for each in found
    ]
    return Table("Targets", ("what", "wanted", "measured", "met"), rows)


def _drain(results: Results) -> Table:
    head = (
        "drain of no-op jobs, one process",
        "jobs/s",
        f"× {DTDB}",
        "CPU µs/job",
        "commits/job",
        "statements/job",
    )
    rows = []
    for (group, system, store), taken in results.items():
        if group != "drain":
            continue
        rate = taken.median("per_second")
        rival = results.get(("drain", DTDB, store.removesuffix(" FULL")))
        counted = results.get(("statements", system, store))
        rows.append(
            (
                f"{system}, {store}",
                _number(rate, "{:,.0f}"),
                _ratio(rate, rival.median("per_second") if rival else None),
                _number(taken.median("cpu_us"), "{:,.0f}"),
                _number(taken.median("commits"), "{:.3f}"),
                _number(counted.median("statements") if counted else None, "{:.3f}"),
            )
        )
    return Table("Drain", head, rows)


def _enqueue(results: Results) -> Table:
    head = ("enqueue", "one by one /s", f"× {DTDB}", "1,000 a call /s", f"× {DTDB}", "bulk ÷ one")
    rows = []
    for (group, system, store), taken in results.items():
        if group != "enqueue":
            continue
        one, bulk = taken.median("one"), taken.median("bulk")
        rival = results.get(("enqueue", DTDB, store))
        rows.append(
            (
                f"{system}, {store}",
                _number(one, "{:,.0f}"),
                _ratio(one, rival.median("one") if rival else None),
                _number(bulk, "{:,.0f}"),
                _ratio(bulk, rival.median("bulk") if rival else None),
                _ratio(bulk, one),
            )
        )
    return Table("Enqueue", head, rows)


def _claim(results: Results) -> Table:
    head = ("claim of 10 (10,000 pending)", "only pending, ms", "with the others, ms", "ratio")
    rows = [
        (
            f"{system}, {store}",
            _number(taken.median("only_pending"), "{:.2f}"),
            _number(taken.median("with_others"), "{:.2f}"),
            _ratio(taken.median("with_others"), taken.median("only_pending")),
        )
        for (group, system, store), taken in results.items()
        if group == "claim"
    ]
    return Table("Claim", head, rows)


def _number(found: float | None, form: str) -> str:
    return MISSING if found is None else form.format(found)


def _ratio(above: float | None, below: float | None) -> str:
    if above is None or not below:
        return MISSING
    return f"{above / below:.1f} ×" if above / below >= 10 else f"{above / below:.2f} ×"
