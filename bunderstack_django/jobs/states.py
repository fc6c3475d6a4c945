"""The states of a job and how each attempt moves it on. Decisions only: nothing here touches a row.

                 ┌──────────── due ───────────┐
enqueue ──► scheduled ◄──┐                    ▼
   │            ▲        │ retry, snooze   pending ◄── give-back, crash, operator retry
   └────────────┼────────┼───────────────────►│ claim
                │        └──────────────── running ──► succeeded | failed | cancelled
                └── cancel() ends scheduled and pending jobs at once ──► cancelled
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from ..exceptions import Discard, JobCancelled, JobTimeout, Retry, Snooze
from .backoff import wait_after


class Status(StrEnum):
    SCHEDULED = "scheduled"  # not yet due; retries in backoff too
    PENDING = "pending"  # claimable
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


ACTIVE: Final = (Status.SCHEDULED, Status.PENDING, Status.RUNNING)
TERMINAL: Final = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)


class FailureReason(StrEnum):
    ERROR = "error"
    TIMEOUT = "timeout"
    PAYLOAD = "payload"
    UNKNOWN_JOB = "unknown_job"
    LOST = "lost"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a job's declaration says about failures."""

    backoff: Callable[[int], timedelta]
    retry_on: tuple[type[BaseException], ...] = ()  # empty = all
    discard_on: tuple[type[BaseException], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The counters of a running job, this attempt included."""

    attempts: int
    crashes: int
    max_attempts: int

    @property
    def failures(self) -> int:
        """Attempts that ended by themselves; a crash is counted apart and spends no retry."""
        return self.attempts - self.crashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Where a job goes from ``running``."""

    status: Status
    reason: FailureReason | None = None
    delay: timedelta | None = None  # until it is due again
    uncharged: bool = False  # the attempt is given back
    crashed: bool = False  # counts as a crash


SUCCEEDED: Final = Verdict(status=Status.SUCCEEDED)
CANCELLED: Final = Verdict(status=Status.CANCELLED)


def give_back(delay: timedelta = timedelta(0)) -> Verdict:
    """Return the job as if it had not been claimed."""
    if delay > timedelta(0):
        return Verdict(status=Status.SCHEDULED, delay=delay, uncharged=True)
    return Verdict(status=Status.PENDING, uncharged=True)


def after_exception(error: BaseException, policy: Policy, tally: Tally) -> Verdict:
    """What becomes of a job whose handler raised ``error``."""
    match error:
        case JobCancelled():
            return CANCELLED
        case Snooze():
            return give_back(wait_after(lambda _: error.after, 1))
        case Discard():
            return Verdict(status=Status.FAILED, reason=FailureReason.DISCARDED)
        case JobTimeout():
            return _retry_or_fail(FailureReason.TIMEOUT, None, policy, tally)
        case Retry():
            return _retry_or_fail(FailureReason.ERROR, error.after, policy, tally)
    if policy.discard_on and isinstance(error, policy.discard_on):
        return Verdict(status=Status.FAILED, reason=FailureReason.DISCARDED)
    if policy.retry_on and not isinstance(error, policy.retry_on):
        return Verdict(status=Status.FAILED, reason=FailureReason.ERROR)
    return _retry_or_fail(FailureReason.ERROR, None, policy, tally)


def after_crash(tally: Tally, *, started: bool, max_crashes: int) -> Verdict:
    """What becomes of a job whose worker died, by whether its handler is known to have started."""
    if not started:
        return give_back()
    if tally.crashes + 1 >= max_crashes:
        return Verdict(status=Status.FAILED, reason=FailureReason.LOST, crashed=True)
    return Verdict(status=Status.PENDING, crashed=True)


def failed(reason: FailureReason) -> Verdict:
    """Failed for good, whatever retries are left."""
    return Verdict(status=Status.FAILED, reason=reason)


def _retry_or_fail(reason: FailureReason, after: timedelta | None, policy: Policy, tally: Tally) -> Verdict:
    if tally.failures >= tally.max_attempts:
        return failed(reason)
    delay = wait_after(policy.backoff, tally.failures) if after is None else wait_after(lambda _: after, 1)
    return Verdict(status=Status.SCHEDULED, reason=None, delay=delay)
