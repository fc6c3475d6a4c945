"""Writing docs/reference/performance.md."""

from __future__ import annotations

from pathlib import Path

from .plan import Sizes
from .runner import Results
from .tables import tables, targets_table
from .targets import Target

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "performance.md"
EXPLAINED = Path(__file__).parent / "where_the_time_goes.md"


def write(
    results: Results, found: list[Target], machine: dict[str, str], versions: dict[str, str], sizes: Sizes
) -> Path:
    """Write the page; returns where."""
    drain, enqueue, claim = tables(results)
    skipped = [f"{' / '.join(key)}: {taken.skipped}" for key, taken in results.items() if taken.skipped]
    parts = [
        "# Performance",
        "Written by `make bench BENCH_ARGS=--write-docs`; do not edit by hand.",
        (
            f"Medians of {sizes.rounds} rounds, each measurement in a process of its own, all systems in turn on "
            "one machine. Absolute figures move from machine to machine; the ratios within a run are what counts."
        ),
        "## Targets",
        targets_table(found).markdown(),
        "Lines marked *(aim)* are wished for, not required.",
        "## Drain",
        (
            f"One worker process and a backlog of no-op jobs ({sizes.fast:,} for fast queues, fewer for slow ones), "
            "timed inside the process from the first job to the end. Each peer runs with its "
            "fastest setting; on SQLite with the same `synchronous` as ours (NORMAL, or FULL as Huey ships)."
        ),
        drain.markdown(),
        "## Enqueue",
        (
            "Each job or call commits by itself. django-tasks-db has no call for many: its column is 1,000 "
            "enqueues in one transaction. Procrastinate's is `batch_defer`."
        ),
        enqueue.markdown(),
        "## Claim",
        (
            "A committed claim of ten jobs, with 10,000 pending rows in the table, and with "
            f"{sizes.others:,} scheduled and {sizes.others:,} ended rows beside them."
        ),
        claim.markdown(),
        EXPLAINED.read_text().strip(),
        "## Machine and versions",
        *_list({**machine, **versions}),
        *(["## Not measured", "\n".join(f"- {each}" for each in skipped)] if skipped else []),
    ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n\n".join(parts) + "\n")
    return PAGE.relative_to(PAGE.parent.parent.parent)


def _list(entries: dict[str, str]) -> list[str]:
    return ["\n".join(f"- {name}: {value}" for name, value in entries.items())]
