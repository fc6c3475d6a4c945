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
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
POSTGRES = os.environ.get("TEST_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/bunderstack")
MARIADB = os.environ.get("TEST_MARIADB_URL", "mysql://root@127.0.0.1:3306/bunderstack")

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

    def run(self, extra: list[str]) -> int:
        command = [sys.executable, "-m", "pytest", "-q", *self.arguments, *extra]
        return subprocess.run(command, env={**os.environ, **self.env}, cwd=ROOT, check=False).returncode


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
    outcomes: list[tuple[str, str]] = []
    failed = False
    for leg in LEGS:
        reason = leg.missing()
        if reason is not None:
            failed = failed or in_ci
            outcomes.append((leg.name, f"{'MISSING' if in_ci else 'SKIPPED'}: {reason}"))
            print(f"\n!!! {leg.name} {outcomes[-1][1]}\n", flush=True)
            continue
        print(f"\n=== {leg.name} (Python {sys.version.split()[0]}, Django {_django()}) ===", flush=True)
        began = time.monotonic()
        code = leg.run(arguments)
        failed = failed or code != 0
        outcomes.append(
            (leg.name, f"{'passed' if code == 0 else f'FAILED ({code})'} in {time.monotonic() - began:.0f} s")
        )
    print("\nThe suite, by database:")
    for name, outcome in outcomes:
        print(f"  {name:<20} {outcome}")
    return int(failed)


def _django() -> str:
    import django

    return django.get_version()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
