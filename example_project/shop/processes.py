"""Running ``manage.py`` commands as child processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType, TracebackType

from django.conf import settings

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 15.0  # seconds for a child to stop by itself


def interrupt_on_signals() -> None:
    """Let SIGTERM and a closed terminal raise KeyboardInterrupt, as Ctrl-C does; once, as stopping takes its time."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for each in STOPPING:
        signal.signal(each, interrupt)


class Child:
    """``manage.py`` with ``arguments``, from entering the block to leaving it."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self.name = arguments[0]
        self.log = log
        self._command = [sys.executable, "-u", str(settings.BASE_DIR / "manage.py"), *arguments]

    def __enter__(self) -> Child:
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(  # noqa: S603 - this very Python and manage.py
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal reaches it once, by way of stop()
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
