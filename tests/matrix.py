"""Runs the suite on every database there is: ``python tests/matrix.py [--quick] [pytest arguments]``.

SQLite always, once more with USE_TZ off; PostgreSQL at TEST_POSTGRES_URL and MariaDB at TEST_MARIADB_URL when they
answer. One that does not is passed over loudly; with CI=true it is a failure.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
POSTGRES = os.environ.get("TEST_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/bunderstack")
MARIADB = os.environ.get("TEST_MARIADB_URL", "mysql://root@127.0.0.1:3306/bunderstack")

TOGETHER = 2  # legs at a time: most of the suite's time is spent waiting for processes

# What a suite that has passed once need not do again on another database.
ONCE = ["--ignore=tests/example", "--ignore=tests/docs", "--ignore=tests/test_architecture.py"]


@dataclass
class Leg:
    """One run of the suite."""

    name: str
    env: dict[str, str]
    driver: str | None = None
    arguments: list[str] = field(default_factory=list)

    def missing(self) -> str | None:
        """Why this leg cannot run, or None."""
        if self.driver is None:
            return None
        if importlib.util.find_spec(self.driver) is None:
            return f"the driver {self.driver} is not installed"
        probe = (
            "import django; django.setup(); from django.db import connection; connection.ensure_connection()"
        )
        url, _, database = self.env["TEST_DATABASE_URL"].rpartition("/")
        # The server's own database: the suite makes its test database itself.
        server = {"MySQLdb": "mysql", "psycopg": "postgres"}[self.driver] if database else ""
        env = {**os.environ, **self.env, "TEST_DATABASE_URL": f"{url}/{server}"}
        try:
            done = subprocess.run(
                [sys.executable, "-c", probe],
                env={**env, "DJANGO_SETTINGS_MODULE": "tests.settings"},
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "it did not answer in 30 s"
        return done.stderr.strip().splitlines()[-1] if done.returncode else None

    def run(self, extra: list[str]) -> tuple[int, str, float]:
        """Exit status, output and seconds."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *self.arguments, *extra],
            env={**os.environ, **self.env},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, time.monotonic() - began


LEGS = [
    Leg("SQLite", {"TEST_DATABASE_URL": "sqlite://"}),
    Leg(
        "SQLite, USE_TZ off",
        {"TEST_DATABASE_URL": "sqlite://", "TEST_USE_TZ": "0"},
        None,
        [*ONCE, "-m", "not processes"],
    ),
    Leg("PostgreSQL", {"TEST_DATABASE_URL": POSTGRES}, "psycopg", ONCE),
    Leg("MariaDB", {"TEST_DATABASE_URL": MARIADB}, "MySQLdb", ONCE),
]


def main(arguments: list[str]) -> int:
    if "--quick" in arguments:
        arguments = [*(each for each in arguments if each != "--quick"), "-m", "not processes", *ONCE]
    in_ci = os.environ.get("CI") == "true"
    missing = {leg.name: reason for leg in LEGS if (reason := leg.missing()) is not None}
    for name, reason in missing.items():
        say(f"!!! {name} {'MISSING' if in_ci else 'SKIPPED'}: {reason}")
    running = [leg for leg in LEGS if leg.name not in missing]
    say(f"Python {sys.version.split()[0]}, Django {_django()}: {', '.join(leg.name for leg in running)}")
    summary = [(name, "MISSING" if in_ci else "SKIPPED") for name in missing]
    failed = bool(missing) and in_ci
    with ThreadPoolExecutor(max_workers=TOGETHER) as pool:
        legs = {pool.submit(leg.run, arguments): leg for leg in running}
        for done in as_completed(legs):
            code, output, seconds = done.result()
            say(f"=== {legs[done].name}\n{output}")
            summary.append(
                (legs[done].name, f"{'passed' if code == 0 else f'FAILED ({code})'} in {seconds:.0f} s")
            )
            failed = failed or code != 0
    say("The suite, by database:", *(f"  {name:<20} {outcome}" for name, outcome in summary))
    return int(failed)


def say(*lines: str) -> None:
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    sys.stdout.flush()


def _django() -> str:
    import django

    return django.get_version()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
