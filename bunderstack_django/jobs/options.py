"""What the options of a job may be. Each refusal names the option, the value and what is allowed."""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from ..exceptions import InvalidOption
from .states import TERMINAL

MAX_NAME: Final = 200  # characters of a name, queue or key
MAX_RATE: Final = 10_000
_PERIODS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE: Final = re.compile(r"([1-9][0-9]{0,5})/([smhd])")


class Rate(NamedTuple):
    limit: int
    period: timedelta


def check(task: Any) -> None:
    """Raise InvalidOption for the first option of ``task`` that is not allowed."""
    label = f"Job {task.job_name!r}"
    check_key(f"{label}: name", task.job_name)
    for alias in task.aliases:
        check_key(f"{label}: alias", alias)
    check_key(f"{label}: queue_name", task.queue_name)
    if not _is_int(task.retries) or not 0 <= task.retries <= 1_000_000:
        raise InvalidOption(
            f"{label}: retries must be a whole number from 0 to 1,000,000, not {task.retries!r}."
        )
    if task.timeout is not None and task.timeout <= timedelta(0):
        raise InvalidOption(f"{label}: timeout must be longer than nothing, or None; not {task.timeout!r}.")
    if task.concurrency is not None and (not _is_int(task.concurrency) or task.concurrency < 1):
        raise InvalidOption(
            f"{label}: concurrency must be a whole number from 1, or None; not {task.concurrency!r}."
        )
    if task.rate_limit is not None:
        parse_rate(label, task.rate_limit)
    _check_callables(label, task)
    _check_concurrency_key(label, task)
    if task.dedupe_key is not None:
        check_key(f"{label}: dedupe_key", task.dedupe_key)
    if task.delay is not None and task.run_after is not None:
        raise InvalidOption(f"{label}: give run_after or delay, not both.")


def check_key(label: str, value: Any) -> None:
    """Raise InvalidOption unless ``value`` is a text that every database keeps and compares alike."""
    if not isinstance(value, str) or not value:
        raise InvalidOption(f"{label} must be a text, not {value!r}.")
    if len(value) > MAX_NAME:
        raise InvalidOption(
            f"{label} may have {MAX_NAME} characters at the most; {value[:40]!r}… has {len(value)}."
        )
    if "\0" in value or not (value.isascii() or _is_encodable(value)):
        raise InvalidOption(f"{label} holds a character that cannot be stored: {value!r}.")


def parse_rate(label: str, text: Any) -> Rate:
    """``"30/m"`` as a limit and its period. Raises InvalidOption."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or int(found[1]) > MAX_RATE:
        raise InvalidOption(
            f"{label}: rate_limit must be 'N/s', 'N/m', 'N/h' or 'N/d' with N from 1 to {MAX_RATE:,}; not {text!r}."
        )
    return Rate(int(found[1]), timedelta(seconds=_PERIODS[found[2]]))


def as_classes(option: str, given: Any) -> tuple[type[BaseException], ...]:
    """One exception class or several, as a tuple."""
    classes = (given,) if isinstance(given, type) else tuple(given)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise InvalidOption(f"{option} takes exception classes, not {each!r}.")
    return classes


def as_timeout(given: Any) -> timedelta | None:
    """A ``timedelta``, seconds, or None."""
    if given is None or isinstance(given, timedelta):
        return given
    return _seconds("timeout", given)


def as_delay(given: Any) -> timedelta:
    """A ``timedelta`` or seconds, at most ten years."""
    delay = given if isinstance(given, timedelta) else _seconds("delay", given)
    if abs(delay) > timedelta(days=3660):
        raise InvalidOption(f"delay may be ten years at the most, not {given!r}.")
    return delay


def as_retention(given: Any) -> Any:
    """A ``timedelta`` or seconds for every outcome, or a mapping from outcome; in hashable form."""
    if given is None or isinstance(given, timedelta):
        return given
    if isinstance(given, Mapping):
        unknown = [key for key in given if key not in TERMINAL]
        if unknown:
            raise InvalidOption(f"retention is kept per {', '.join(TERMINAL)}; not {unknown[0]!r}.")
        return tuple((str(key), as_retention(each)) for key, each in given.items())
    return _seconds("retention", given)


def concurrency_key(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The key of one call. Raises InvalidOption if it cannot be stored."""
    given = task.concurrency_key
    if given is None:
        return None
    if callable(given):
        key = given(*args, **kwargs)
    else:
        bound = task.schema.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        key = given.format(**bound.arguments)
    check_key(f"Job {task.job_name!r}: concurrency_key", key)
    return key  # type: ignore[no-any-return]


def _check_callables(label: str, task: Any) -> None:
    for option in ("backoff", "on_failed"):
        given = getattr(task, option)
        if given is not None and not callable(given):
            raise InvalidOption(f"{label}: {option} must be callable, not {given!r}.")


def _check_concurrency_key(label: str, task: Any) -> None:
    given = task.concurrency_key
    if given is None or isinstance(given, Callable):  # type: ignore[arg-type]
        return
    if not isinstance(given, str):
        raise InvalidOption(f"{label}: concurrency_key must be a format string or a callable, not {given!r}.")
    parameters = inspect.signature(task.func).parameters
    try:
        names = [
            field.split(".")[0].split("[")[0] for _, field, _, _ in string.Formatter().parse(given) if field
        ]
    except ValueError as error:
        raise InvalidOption(f"{label}: concurrency_key {given!r} is no format string: {error}.") from None
    for name in names:
        if name not in parameters:
            raise InvalidOption(
                f"{label}: concurrency_key names {name!r}; the parameters are {', '.join(parameters)}."
            )


def _seconds(option: str, given: Any) -> timedelta:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise InvalidOption(f"{option} takes a timedelta or seconds, not {given!r}.")
    try:
        return timedelta(seconds=given)
    except (OverflowError, ValueError):
        raise InvalidOption(f"{option} is out of range: {given!r}.") from None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
