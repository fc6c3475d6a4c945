"""Running ``manage.py`` commands as child processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

from django.conf import settings

PATIENCE = 15.0  # seconds for a child to stop by itself


class Child:
    """``manage.py`` with ``arguments``, from entering the block to leaving it."""

    def __init__(self, *arguments: str, log: Path | None = None) -> None:
        self.name = arguments[0]
        self._command = [sys.executable, "-u", str(Path(settings.BASE_DIR) / "manage.py"), *arguments]
        self._log = log

    def __enter__(self) -> Child:
        # In a session of its own, so that Ctrl-C in the terminal reaches it once, by way of stop().
        if self._log is None:
            self._process = subprocess.Popen(self._command, start_new_session=True)
        else:
            with self._log.open("ab") as file:
                self._process = subprocess.Popen(
                    self._command, start_new_session=True, stdout=file, stderr=subprocess.STDOUT
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; a signal's number, negative, if that ended it."""
        return self._process.poll()

    def stop(self) -> int:
        """Ask it to end, and see to it that it does. Returns its exit code."""
        if self.exit_code is None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()
