"""The example project, run as a newcomer runs it: by its commands, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OTHERS = ("DATABASE_URL", "DEBUG", "DJANGO_SETTINGS_MODULE", "SECRET_KEY", "FORCE_COLOR", "DJANGO_COLORS")

Start = Callable[..., "subprocess.Popen[str]"]


def environment(folder: Path, **changes: str) -> dict[str, str]:
    """This process's environment, without what would lead the example elsewhere than to ``folder``."""
    kept = {name: value for name, value in os.environ.items() if name not in OTHERS}
    return {**kept, "DEMO_DIR": str(folder), "PYTHONUNBUFFERED": "1", **changes}


def manage(folder: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment(folder, **changes),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The demo, run once: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, manage(folder, "demo")
