"""Every exception of the package, in one tree.

BunderstackError
├── InvalidPayload      (also ValueError and TypeError)
├── InvalidOption       (also ValueError)
├── UnknownJob          (also LookupError)
├── DuplicateJob
├── JobDoesNotExist     (also LookupError)
├── JobNotFinished
├── DedupeConflict
└── WorkerLost

Discard, Retry, Snooze and JobCancelled are raised by a handler to say how its job goes on;
JobTimeout is raised in a handler whose time is up.
"""

from __future__ import annotations

from datetime import timedelta


class BunderstackError(Exception):
    """Base class of the package's errors. Do not raise directly."""


class InvalidPayload(BunderstackError, ValueError, TypeError):
    """The arguments of a job do not fit its signature, or cannot be stored."""


class InvalidOption(BunderstackError, ValueError):
    """An option of a job or a setting has a value that is not allowed."""


class UnknownJob(BunderstackError, LookupError):
    """No job of this name is declared."""


class DuplicateJob(BunderstackError):
    """Two functions are declared as jobs of one name."""


class JobDoesNotExist(BunderstackError, LookupError):
    """There is no job of this id."""


class JobNotFinished(BunderstackError):
    """The operation needs a job that has ended."""


class DedupeConflict(BunderstackError):
    """A newer job holds the dedupe key."""


class WorkerLost(BunderstackError):
    """The worker that ran the job stopped renewing its lease."""


class Discard(BunderstackError):
    """Raise in a handler: the job fails at once, without further attempts."""


class Retry(BunderstackError):
    """Raise in a handler: this attempt failed, the next starts after ``after``.

    :param after: a ``timedelta``, or seconds; the job's backoff if omitted.
    """

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message or "The handler asked for a retry.")
        self.after = _as_timedelta(after)


class Snooze(BunderstackError):
    """Raise in a handler: try again after ``after``, without spending an attempt.

    :param after: a ``timedelta``, or seconds.
    """

    def __init__(self, after: timedelta | float, message: str = "") -> None:
        super().__init__(message or "The handler asked to run later.")
        self.after: timedelta = _as_timedelta(after) or timedelta(0)


class JobCancelled(BunderstackError):
    """Raised by ``context.raise_if_cancelled()`` once the job is cancelled."""


class JobTimeout(BaseException):
    """The attempt ran longer than its ``timeout``.

    A BaseException, so that a handler's ``except Exception`` does not swallow it.
    """


def _as_timedelta(value: timedelta | float | None) -> timedelta | None:
    if value is None or isinstance(value, timedelta):
        return value
    return timedelta(seconds=value)
