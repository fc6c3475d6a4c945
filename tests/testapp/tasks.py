"""Sample jobs."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from bunderstack_django import Backoff, Discard, JobContext, Retry, Snooze, job
from bunderstack_django.compat import Task

calls: list[Any] = []  # what handlers saw in this process; cleared by the fixture of that name


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    since: date


class Boom(Exception):
    pass


class Unprintable(Exception):
    """Cannot be printed, pickled or rebuilt."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


@dataclass
class FailedCall:
    job_id: str
    args: list[Any]
    kwargs: dict[str, Any]
    error: Any


failures: list[FailedCall] = []


def note_failure(job_id: str, args: list[Any], kwargs: dict[str, Any], error: Any) -> None:
    failures.append(FailedCall(job_id, args, kwargs, error))


def broken_on_failed(job_id: str, args: list[Any], kwargs: dict[str, Any], error: Any) -> None:
    raise Boom("on_failed")


NO_WAIT = Backoff(base=timedelta(0), jitter=0)


@job
def noop() -> None: ...


@job(retries=2)
def add(a: int, b: int) -> int:
    return a + b


@job(retries=0)
def echo(value=None):  # type: ignore[no-untyped-def]
    calls.append(value)
    return


@job(retries=0)
def typed(
    moment: datetime,
    day: date,
    key: UUID,
    price: Decimal,
    colour: Colour,
    address: Address | None = None,
    share: float = 0.0,
    tags: list[Colour] = [],  # noqa: B006
) -> None:
    calls.append((moment, day, key, price, colour, address, share, tags))


@job(retries=2, backoff=Backoff(base=timedelta(seconds=10), jitter=0), on_failed=note_failure)
def fail(message: str = "boom") -> None:
    calls.append(message)
    raise Boom(message)


@job(retries=1, backoff=NO_WAIT, on_failed=broken_on_failed)
def fail_with_broken_on_failed() -> None:
    raise Boom("handler")


@job(retries=5, backoff=NO_WAIT, retry_on=Boom)
def retry_on_boom(kind: str) -> None:
    raise {"boom": Boom, "value": ValueError}[kind](kind)


@job(retries=5, backoff=NO_WAIT, discard_on=(Boom,), retry_on=Exception)
def discard_on_boom() -> None:
    raise Boom("discard")


@job(retries=5)
def discard() -> None:
    raise Discard("not worth it")


@job(retries=1)
def retry_later(after: int) -> None:
    raise Retry("busy", after=after)


@job(retries=0)
def snooze(seconds: int) -> None:
    raise Snooze(seconds)


@job(retries=0)
def leave(how: str) -> None:
    """End in a way that is no Exception."""
    match how:
        case "exit 0":
            sys.exit(0)
        case "exit 3":
            sys.exit(3)
        case "exit text":
            sys.exit("text")
        case "interrupt":
            raise KeyboardInterrupt
        case "generator":
            raise GeneratorExit
        case "recursion":
            leave.call("recursion")


@job(retries=1, backoff=NO_WAIT)
def unprintable() -> None:
    raise Unprintable(1, 2)


@job(retries=0)
def cyclic_cause() -> None:
    first, second = Boom("first"), Boom("second")
    first.__cause__, second.__cause__ = second, first
    raise first


@job(retries=0)
def large_error() -> None:
    raise Boom("x" * 5_000_000 + "\0\ud800")


@job(retries=3)
def unstorable_result() -> object:
    return object()


@job(retries=0, takes_context=True)
def with_context(context: JobContext, lines: int = 1) -> dict[str, Any]:
    context.progress(0.5, "half way")
    for number in range(lines):
        context.log(f"line {number}")
    return {"job_id": context.job_id, "attempt": context.attempt, "cancelled": context.cancelled}


@job(retries=3, backoff=NO_WAIT, takes_context=True)
def obey_cancel(context: JobContext) -> None:
    for _ in range(1000):
        context.raise_if_cancelled()
        time.sleep(0.02)


@job(retries=0)
async def add_async(a: int, b: int) -> int:
    return a + b


@job(retries=0, timeout=0.3)
def too_long(how: str, seconds: float = 20) -> None:
    calls.append(how)
    end = time.monotonic() + seconds
    match how:
        case "loop":
            while time.monotonic() < end:
                pass
        case "sleep":
            time.sleep(seconds)


@job(retries=0, timeout=0.3)
async def too_long_async() -> None:
    import asyncio

    await asyncio.sleep(20)


@job(name="custom.name", aliases=("old.name",), queue_name="mail", priority=7)
def named() -> str:
    return "named"


def is_job(task: object) -> bool:
    return isinstance(task, Task)
