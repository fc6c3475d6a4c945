"""``python -m benchmarks``: measure, print the tables, write the JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from . import documentation, machine
from .plan import FULL, QUICK, cases
from .runner import Results, run
from .tables import tables, targets_table
from .targets import targets

RESULTS = Path(__file__).parent / "results" / "latest.json"
GROUPS = ("drain", "statements", "enqueue", "claim")


def main() -> None:
    options = _options()
    sizes = QUICK if options.quick else FULL
    if options.rounds:
        sizes = replace(sizes, rounds=options.rounds)
    wanted = [
        case
        for case in cases(sizes)
        if case.group in options.only and all(text.lower() in _label(case.key) for text in options.match)
    ]
    described = {"machine": machine.describe(), "versions": machine.versions()}
    begun = time.monotonic()
    results = run(wanted, sizes.rounds)
    found = targets(results)
    for table in (*tables(results), targets_table(found)):
        if table.rows:
            sys.stdout.write(f"\n{table.aligned()}\n")
    sys.stdout.write(
        f"\n{'Quick run, ' if options.quick else ''}{sizes.rounds} round(s), medians, "
        f"{time.monotonic() - begun:.0f} s. Small or busy machines shift the figures; compare within one run.\n"
    )
    report = {
        **described,
        "quick": options.quick,
        "sizes": asdict(sizes),
        "results": _plain(results),
        "targets": [asdict(each) for each in found],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.write(
        f"Written: {RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS}\n"
    )
    if options.write_docs:
        path = documentation.write(results, found, described["machine"], described["versions"], sizes)
        sys.stdout.write(f"Written: {path}\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers, one round, under a minute")
    parser.add_argument("--rounds", type=int, default=0, help="how many rounds to take the median of")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="measure only these")
    parser.add_argument(
        "--match",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="only cases with these in group, system or store",
    )
    parser.add_argument("--write-docs", action="store_true", help="write docs/reference/performance.md too")
    return parser.parse_args()


def _label(key: tuple[str, str, str]) -> str:
    return " / ".join(key).lower()


def _plain(results: Results) -> list[dict[str, object]]:
    return [
        {
            "group": group,
            "system": system,
            "store": store,
            "skipped": taken.skipped,
            "median": {name: taken.median(name) for name in (taken.rounds[0] if taken.rounds else {})},
            "rounds": taken.rounds,
        }
        for (group, system, store), taken in results.items()
    ]


if __name__ == "__main__":
    main()
