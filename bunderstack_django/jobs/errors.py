"""What is kept of an exception: always something, never too much, safe for every database."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from typing import Any, Final

MAX_MESSAGE: Final = 2_000  # characters
MAX_TRACEBACK: Final = 16_000  # characters, the end is kept: it names the raising line
MAX_ERRORS: Final = 25  # attempts remembered per job, the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """The error of one attempt."""

    exception_class: str  # dotted path
    message: str
    traceback: str
    attempt: int = 0
    worker: str = ""
    at: str = ""  # ISO 8601, UTC

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe(error: BaseException, *, attempt: int = 0, worker: str = "", at: str = "") -> JobError:
    """``error`` as text. Total: an exception that cannot be printed is described by its class."""
    kind = type(error)
    return JobError(
        exception_class=f"{kind.__module__}.{kind.__qualname__}",
        message=_clip(clean(_message(error)), MAX_MESSAGE),
        traceback=_clip_front(clean(_traceback(error)), MAX_TRACEBACK),
        attempt=attempt,
        worker=worker,
        at=at,
    )


def remembered(errors: list[Any], error: JobError) -> list[Any]:
    """``errors`` with ``error`` added, without the oldest beyond the limit."""
    return [*errors, error.as_dict()][-MAX_ERRORS:]


def clean(text: str) -> str:
    """``text`` without what a database cannot hold: NUL and lone surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - a handler's own __str__, which may raise anything
        return "<the message could not be printed>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - see above
        try:
            return "".join(traceback.format_tb(error.__traceback__)) + type(error).__qualname__
        except BaseException:  # noqa: BLE001
            return type(error).__qualname__


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _clip_front(text: str, limit: int) -> str:
    return text if len(text) <= limit else "…" + text[-(limit - 1) :]
