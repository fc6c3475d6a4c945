"""Real worker processes for tests: started, watched with deadlines, and always reaped."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from django.db import DatabaseError, connection

from bunderstack_django.models import Job

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds until a wait fails; far beyond what a loaded machine needs
SHORT_LEASE = 1.5


def until(condition: Callable[[], Any], what: str = "", timeout: float = PATIENCE) -> Any:
    """The first true value of ``condition()``."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {timeout:g} s: {what or condition}"
        time.sleep(0.02)
    return value


def stays(condition: Callable[[], Any], seconds: float, what: str = "") -> None:
    """``condition()`` holds for ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition(), f"no longer true: {what or condition}"
        time.sleep(0.02)


def row(result: Any) -> Job:
    return Job.objects.get(pk=result.id)


def has_status(result: Any, *statuses: str) -> Callable[[], bool]:
    return lambda: row(result).status in statuses


def all_ended() -> bool:
    return not Job.objects.filter(status__in=["scheduled", "pending", "running"]).exists()


def statuses() -> Counter[str]:
    return Counter(Job.objects.values_list("status", flat=True))


class Evidence:
    """What handlers noted, in any process."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "evidence"
        self._directory = directory

    def lines(self, event: str) -> list[list[str]]:
        if not self.file.exists():
            return []
        lines = [line.split(" ") for line in self.file.read_text().splitlines()]
        return [line[1:] for line in lines if line[0] == event]

    def starts(self, key: object | None = None) -> int:
        return len([line for line in self.lines("start") if key is None or line[0] == str(key)])

    def counted(self, event: str = "start") -> Counter[str]:
        return Counter(line[0] for line in self.lines(event))

    def raise_flag(self, name: str = "go") -> None:
        (self._directory / f"flag-{name}").touch()

    def wait_for(self, event: str, key: object, count: int = 1) -> None:
        until(lambda: self.counted(event)[str(key)] >= count, f"{count} × {event} {key}")


class Process:
    """A child process and its output."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self.arguments = arguments
        self._popen = subprocess.Popen(
            arguments,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            preexec_fn=_end_with_parent,
        )
        self.pid = self._popen.pid
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def wait_for_line(self, pattern: str, timeout: float = PATIENCE) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.output)
            assert match or self.is_alive or self._reader.is_alive(), (
                f"ended without {pattern!r}:\n{self.output}"
            )
            return match

        return until(found, f"the line {pattern!r}", timeout)

    def is_up(self) -> Process:
        """Wait until it works: it has said so, and its threads have started."""
        self.wait_for_line(r"Worker \S+ runs ")
        until(lambda: psutil.Process(self.pid).num_threads() > 1, "threads")
        return self

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit code."""
        code = self._popen.wait(timeout)
        self._reader.join(5)
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = PATIENCE) -> float:
        """Stop politely. Asserts exit 0; returns the seconds it took."""
        before = time.monotonic()
        self.send(number)
        assert self.wait(timeout) == 0
        return time.monotonic() - before

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def reap(self) -> None:
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGKILL)
            self._popen.wait()
        self._reader.join(5)
        assert self._popen.stdout is not None
        self._popen.stdout.close()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._lines.append(line)


def _end_with_parent() -> None:
    """Linux: be killed when the test process is, which then reaps nobody."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Workers:
    """Starts workers on the test database, and ends them all."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.database = database_settings()
        self._processes: list[Process] = []

    def start(self, *options: str, **changes: Any) -> Process:
        """``runworker`` with these options, looking for jobs every 0.1 s unless they say otherwise."""
        if "--poll-interval" not in options:
            options = ("--poll-interval", "0.1", *options)
        return self.run("runworker", *options, **changes)

    def run(
        self,
        *arguments: str,
        module: str = "django",
        lease: float = 30.0,
        bunderstack: dict[str, Any] | None = None,
        database: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        **overrides: Any,
    ) -> Process:
        """``python -m module arguments``, with these settings overridden."""
        overrides["DATABASES"] = {"default": {**self.database, **(database or {})}}
        overrides["BUNDERSTACK"] = {"LEASE": lease, **(bunderstack or {})}
        env = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.processes.settings",
            "PROCESS_SETTINGS": json.dumps(overrides),
            "PROCESS_EVIDENCE": str(self.evidence.file),
            "PYTHONUNBUFFERED": "1",
            **(environment or {}),
        }
        process = Process([sys.executable, "-W", "error", "-m", module, *arguments], env)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End what still runs, and print what was said: pytest shows it when the test failed."""
        for process in self._processes:
            process.reap()
            print(f"--- {process.pid}: {' '.join(process.arguments[3:])}\n{process.output}")  # noqa: T201


def database_settings() -> dict[str, Any]:
    """The test database, as another process may connect to it."""
    keys = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
    return {key: connection.settings_dict[key] for key in keys if connection.settings_dict.get(key)}


def cut_connections() -> int:
    """End every connection to the test database but this process's own. Returns how many."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return len(cursor.fetchall())
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        keys = [key for (key,) in cursor.fetchall()]
        for key in keys:
            with contextlib.suppress(DatabaseError):  # it may have ended by itself
                cursor.execute(f"KILL CONNECTION {key:d}")
        return len(keys)


class Proxy:
    """A TCP way to the database that can be closed: then it cuts, and refuses after counting."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_open = True
        self.refused: list[float] = []  # instants
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def cut(self) -> None:
        self.is_open = False
        self._close_all()

    def restore(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._close_all()
        for thread in self._threads:
            thread.join(5)

    def _run(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.is_open:
                self.refused.append(time.monotonic())
                client.close()
                continue
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            self._run(self._pump, client, server)
            self._run(self._pump, server, client)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _close_all(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()


@contextlib.contextmanager
def proxied() -> Iterator[tuple[Proxy, dict[str, Any]]]:
    """A proxy to the database server, and the settings that lead through it."""
    given = database_settings()
    port = {"postgresql": 5432, "mysql": 3306}[connection.vendor]
    proxy = Proxy(given.get("HOST") or "127.0.0.1", int(given.get("PORT") or port))
    # Without TLS: libpq would try each connection twice.
    extra = {"sslmode": "disable"} if connection.vendor == "postgresql" else {}
    options = {**given.get("OPTIONS", {}), **extra}
    try:
        yield proxy, {"HOST": "127.0.0.1", "PORT": str(proxy.port), "OPTIONS": options}
    finally:
        proxy.close()
