"""Jobs that leave evidence in files, so that what they did can be counted across processes."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group

from bunderstack_django import Backoff, JobContext, job
from bunderstack_django.compat import task_finished

NO_WAIT = Backoff(base=timedelta(0), jitter=0)
LONGEST = 60.0  # seconds after which a handler stops waiting, so that a broken test leaves nothing behind


def note(event: str, *values: object) -> None:
    """Append one line to the evidence; whole even when many processes write."""
    line = " ".join([event, *map(str, values), str(os.getpid()), f"{time.monotonic():.3f}"])
    file = os.open(Path(os.environ["PROCESS_EVIDENCE"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def is_raised(flag: str) -> bool:
    return (Path(os.environ["PROCESS_EVIDENCE"]).parent / f"flag-{flag}").exists()


def wait_for(flag: str) -> None:
    end = time.monotonic() + LONGEST
    while not is_raised(flag) and time.monotonic() < end:
        time.sleep(0.02)


def note_failed(job_id: str, args: list[Any], kwargs: dict[str, Any], error: Any) -> None:
    note("on_failed", job_id, error.exception_class)


def note_finished(task_result: Any, **kwargs: Any) -> None:
    note("finished", task_result.id)


if os.environ.get("PROCESS_SIGNALS"):
    task_finished.connect(note_finished)


@job(retries=0)
def start(key: str) -> None:
    note("start", key)


@job(retries=0)
def nap(key: str, seconds: float) -> None:
    note("start", key)
    time.sleep(seconds)


@job(retries=0, timeout=None)
def hold(key: str, flag: str = "go") -> str:
    """Run until ``flag`` is raised."""
    note("start", key)
    wait_for(flag)
    note("end", key)
    return key


@job(retries=0, timeout=None, on_failed=note_failed)
def hold_then_fail(key: str, flag: str = "go") -> None:
    note("start", key)
    wait_for(flag)
    raise RuntimeError("on purpose")


@job(retries=3, timeout=None, takes_context=True)
def watch(context: JobContext, key: str, flag: str = "go") -> str:
    """Run until ``flag`` is raised; note when the context changes."""
    note("start", key)
    context.progress(0.25, "a quarter")
    context.log("under way")
    seen: set[str] = set()
    end = time.monotonic() + LONGEST
    while not is_raised(flag) and time.monotonic() < end:
        for name in ("stopping", "cancelled"):
            if getattr(context, name) and name not in seen:
                seen.add(name)
                note(name, key)
        time.sleep(0.02)
    return key


@job(retries=3, timeout=None, takes_context=True)
def obey(context: JobContext, key: str) -> None:
    """Run until cancelled."""
    note("start", key)
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        context.raise_if_cancelled()
        time.sleep(0.02)


@job(retries=0)
def find_group(key: int) -> None:
    note("start", key, "found" if Group.objects.filter(pk=key).exists() else "missing")


@job(retries=0)
def chain(left: int) -> None:
    """Enqueue the next while this one runs."""
    note("start", left)
    if left:
        chain.enqueue(left - 1)


@job(retries=1, backoff=NO_WAIT, on_failed=note_failed)
def fail_twice(key: str) -> None:
    note("start", key)
    raise RuntimeError("on purpose")


@job(retries=0, on_failed=note_failed)
def fail(key: str) -> None:
    note("start", key)
    raise RuntimeError("on purpose")


@job(retries=0)
def leave_a_thread(key: str) -> None:
    """Return while threads of the handler's go on, which Python would wait for at its end."""
    note("start", key)
    ThreadPoolExecutor(1).submit(wait_for, "never")
    threading.Thread(target=wait_for, args=("never",), daemon=False).start()


@job(retries=0)
async def leave_async(how: str) -> None:
    await asyncio.sleep(0)
    match how:
        case "exit":
            sys.exit(0)
        case "interrupt":
            raise KeyboardInterrupt
        case "generator":
            raise GeneratorExit
        case "cancelled":
            raise asyncio.CancelledError


@job(retries=0, timeout=1)
def overrun(how: str) -> None:
    note("start", how)
    end = time.monotonic() + 1.6
    match how:
        case "loop":
            while time.monotonic() < end + 30:
                pass
        case "sleep":
            time.sleep(1.6)
        case "c-call":
            select.select([], [], [], 1.6)


@job(retries=0, queue_name="mail")
def mail(key: str) -> None:
    note("start", key)


if os.environ.get("PROCESS_HAS_OLD_TASK"):

    @job(name="old.task", retries=2)
    def old_task(key: str) -> None:
        note("start", key)
