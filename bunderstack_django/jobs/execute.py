"""Running one claimed job: from the row to an outcome. Total: whatever a handler raises becomes an outcome."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from asgiref.sync import async_to_sync

from .. import conf
from ..compat import TaskResult, TaskResultStatus
from ..db.fields import dumps
from ..exceptions import InvalidPayload, JobTimeout, UnknownJob
from ..runtime.clock import as_utc
from . import states
from .declare import JobContext, JobTask, registry
from .errors import JobError, clean, describe, remembered
from .payload import encode, plain, split
from .results import as_list, task_error
from .signals import announce_started
from .states import FailureReason, Status, Tally, Verdict
from .store.rows import Claimed, Pulse, Settlement
from .timeouts import awaited, deadlines

logger = logging.getLogger("bunderstack_django.jobs")

MAX_LOG_LINES: Final = 200
MAX_LOG_LINE: Final = 2_000  # characters
UNKNOWN_JOB_DELAY: Final = timedelta(seconds=30)


class Run:
    """A claimed job while this process has it: what its context, its heartbeat and its timeout share."""

    __slots__ = (
        "_is_stopping",
        "_lock",
        "_new_log",
        "_new_progress",
        "_result",
        "_written_log",
        "claimed",
        "ended",
        "is_handed_out",
        "is_overdue",
        "is_settling",
        "leased_at",
        "lost",
        "marked_started",
        "received",
        "started",
        "task",
        "was_cancelled",
        "was_interrupted",
    )

    def __init__(
        self,
        claimed: Claimed,
        is_stopping: Callable[[], bool] = lambda: False,
        leased_at: float | None = None,
    ) -> None:
        self.claimed = claimed
        self.task: JobTask | None = None
        self.received = time.monotonic()
        # When the statement was sent, in monotonic seconds, that last gave or renewed the lease.
        self.leased_at = self.received if leased_at is None else leased_at
        self.was_interrupted = False  # by its timeout
        self.is_overdue = False  # its last heartbeat found the row locked by another
        self.started: float | None = None
        self.ended: float | None = None
        self.marked_started = claimed.started_at is not None
        self.was_cancelled = claimed.cancel_requested_at is not None
        self.lost = False
        self.is_handed_out = False  # to a handler thread, or to wait for one
        self.is_settling = False  # its outcome is being written: it may vanish from under a heartbeat
        self._is_stopping = is_stopping
        self._lock = threading.Lock()
        self._new_progress: str | None = None
        self._new_log: list[Any] | None = None
        self._written_log: list[Any] | None = None
        self._result: TaskResult | None = None

    # What JobContext shows.

    @property
    def job_id(self) -> str:
        key = self.claimed.id
        return str(key if isinstance(key, UUID) else UUID(key))

    @property
    def attempt(self) -> int:
        return self.claimed.attempts

    @property
    def cancelled(self) -> bool:
        return self.was_cancelled or self.lost

    @property
    def stopping(self) -> bool:
        return self._is_stopping()

    def progress(self, fraction: float, message: str = "") -> None:
        share = float(fraction)
        if not 0 <= share <= 1:
            raise ValueError(f"progress is a fraction from 0 to 1, not {fraction!r}.")
        self._new_progress = dumps({"fraction": share, "message": clean(str(message))[:MAX_LOG_LINE]})

    def log(self, message: str) -> None:
        line = {"at": self.now().isoformat(), "message": clean(str(message))[:MAX_LOG_LINE]}
        with self._lock:
            kept = self._new_log or self._written_log or _list(self.claimed.log)
            self._new_log = [*kept, line][-MAX_LOG_LINES:]

    # What the process tells the database.

    def now(self) -> datetime:
        """The database's time, reckoned from the claim: this host's clock may be wrong."""
        return as_utc(self.claimed.last_attempted_at) + timedelta(seconds=time.monotonic() - self.received)

    def forget_news(self) -> None:
        """Drop progress and log lines not yet written."""
        with self._lock:
            self._new_progress = self._new_log = None

    def interrupted(self) -> None:
        """Its timeout was raised in the handler, which may or may not let it pass."""
        self.was_interrupted = True

    @property
    def is_running(self) -> bool:
        return self.started is not None and self.ended is None

    @property
    def has_news(self) -> bool:
        """Whether there is something to write before the next heartbeat."""
        if self._new_progress is not None or self._new_log is not None or self.is_overdue:
            return not self.is_settling
        return self.is_running and not self.marked_started and time.monotonic() - (self.started or 0.0) > 1

    def renewed(self, pulse: Pulse, *, cancelled: bool, at: float) -> None:
        """``pulse``, sent at this monotonic instant, was written."""
        self.leased_at = at
        self.is_overdue = False
        self.was_cancelled = self.was_cancelled or cancelled
        self.marked_started = self.marked_started or pulse.started_ago is not None
        with self._lock:
            if pulse.progress is not None and self._new_progress == pulse.progress:
                self._new_progress = None
            if self._new_log is not None and pulse.log == dumps(self._new_log):
                self._written_log, self._new_log = self._new_log, None

    def pulse(self) -> Pulse:
        """A heartbeat with what is new since the last."""
        with self._lock:
            progress, log = self._new_progress, self._new_log
        started_ago = None
        if self.started is not None and not self.marked_started:
            started_ago = time.monotonic() - self.started
        return Pulse(
            id=self.claimed.id,
            token=self.claimed.lease_token,
            started_ago=started_ago,
            progress=progress,
            log=None if log is None else dumps(log),
        )

    def settlement(
        self, verdict: Verdict, *, errors: str | None = None, result: str | None = None
    ) -> Settlement:
        """The row as ``verdict`` leaves it."""
        claimed = self.claimed
        moment = time.monotonic()
        with self._lock:
            progress, log = self._new_progress, self._new_log
        return Settlement(
            id=claimed.id,
            token=claimed.lease_token,
            status=verdict.status,
            reason=verdict.reason,
            attempts=claimed.attempts - verdict.uncharged,
            crashes=claimed.crashes + verdict.crashed,
            recovered=claimed.recovered,
            delay=None if verdict.delay is None else verdict.delay.total_seconds(),
            worker_ids=_without_last(claimed.worker_ids) if verdict.uncharged else None,
            started_ago=None if self.started is None else moment - self.started,
            ended_ago=0.0 if self.ended is None else moment - self.ended,
            errors=errors,
            result=result,
            progress=progress,
            log=None if log is None else dumps(log),
        )

    def result(self) -> TaskResult:
        """Django's view of the running job, made when first asked for."""
        if self._result is None:
            self._result = _running_result(self)
        return self._result


@dataclass(slots=True)
class Outcome:
    """How a run ended, not yet written."""

    run: Run
    verdict: Verdict
    error: JobError | None = None
    result: str | None = None  # JSON text
    is_last_resort: bool = False  # what stands in for an outcome that could not be stored

    def as_refused(self, error: Exception) -> Outcome:
        """The failure to record where the database would not have this outcome."""
        described = describe(error, attempt=self.run.claimed.attempts, worker=self.run.claimed.worker)
        self.run.forget_news()
        return Outcome(self.run, states.failed(FailureReason.ERROR), error=described, is_last_resort=True)

    def settlement(self) -> Settlement:
        errors = None
        if self.error is not None:
            before = [] if self.is_last_resort else _list(self.run.claimed.errors)
            errors = dumps(remembered(before, self.error))
        return self.run.settlement(self.verdict, errors=errors, result=self.result)

    @property
    def value(self) -> Any:
        """The result in JSON form; None without one."""
        return None if self.result is None else json.loads(self.result)

    @property
    def duration(self) -> float:
        """Seconds the handler ran."""
        run = self.run
        return 0.0 if run.started is None or run.ended is None else run.ended - run.started


def execute(run: Run) -> Outcome:
    """Run a claimed job's handler in this thread."""
    claimed = run.claimed
    task = registry.find(claimed.name)
    if task is None:
        return _unknown(run)
    run.task = task
    try:
        args, kwargs = task.schema.load(json.loads(claimed.payload))
    except (ValueError, TypeError, RecursionError) as error:
        return _payload_unfit(run, error)
    if task.takes_context:
        args.insert(0, JobContext(run, run.result))
    announce_started(run)
    seconds = None if task.timeout is None else task.timeout.total_seconds()
    run.started = time.monotonic()
    try:
        if task.is_async:
            value = async_to_sync(partial(awaited, partial(task.func, *args, **kwargs), seconds))()
        else:
            value = deadlines.call(partial(task.func, *args, **kwargs), seconds, on_fire=run.interrupted)
    except BaseException as error:  # noqa: BLE001 - SystemExit and its like fail this job, not the worker
        run.ended = time.monotonic()
        return _raised(run, task, error)
    run.ended = time.monotonic()
    return _returned(run, task, value)


def _returned(run: Run, task: JobTask, value: Any) -> Outcome:
    if value is None:
        return Outcome(run, states.SUCCEEDED, result="null")
    try:
        text = encode(
            plain(value, "the result"), f"The result of {task.job_name}", conf.value("MAX_PAYLOAD_BYTES")
        )
    except (InvalidPayload, RecursionError) as error:
        return _failed(run, error, states.failed(FailureReason.ERROR))
    return Outcome(run, states.SUCCEEDED, result=text)


def _raised(run: Run, task: JobTask, error: BaseException) -> Outcome:
    try:
        verdict = states.after_exception(error, task.policy, tally(run.claimed))
    except Exception as fault:  # noqa: BLE001 - a backoff of the user's that raises
        return _failed(run, fault, states.failed(FailureReason.ERROR))
    if isinstance(error, JobTimeout):
        told = JobTimeout(f"The attempt ran longer than its timeout of {task.timeout}.")
        told.__cause__ = error.__cause__
        error = told.with_traceback(error.__traceback__)
    if verdict.uncharged or verdict.status == Status.CANCELLED:
        return Outcome(run, verdict)
    return _failed(run, error, verdict)


def _failed(run: Run, error: BaseException, verdict: Verdict) -> Outcome:
    claimed = run.claimed
    described = describe(error, attempt=claimed.attempts, worker=claimed.worker, at=run.now().isoformat())
    return Outcome(run, verdict, error=described)


def _payload_unfit(run: Run, error: Exception) -> Outcome:
    if not isinstance(error, InvalidPayload):
        error = InvalidPayload(f"The stored payload cannot be read: {type(error).__name__}.")
    return _failed(run, error, states.failed(FailureReason.PAYLOAD))


def _unknown(run: Run) -> Outcome:
    """A name this process does not know goes back for others, until it has been unknown for too long."""
    try:
        registry.get(run.claimed.name)
    except UnknownJob as error:
        failure = error
    errors = _list(run.claimed.errors)
    first: datetime | None = None  # a wait that any later error, the second of its own kind too, has ended
    for each in errors:
        since = _unknown_since(each)
        first = since if first is None else None
    if first is None:
        outcome = _failed(run, failure, states.give_back(UNKNOWN_JOB_DELAY))
    elif run.now() - first >= conf.duration("UNKNOWN_JOB_GRACE"):
        outcome = _failed(run, failure, states.failed(FailureReason.UNKNOWN_JOB))
    else:
        outcome = Outcome(run, states.give_back(UNKNOWN_JOB_DELAY))
    return outcome


def _unknown_since(error: Any) -> datetime | None:
    """When a kept error says that the name was unknown; None for another kind."""
    match error:
        case {"exception_class": str(kind), "at": str(at)} if kind.endswith(".UnknownJob"):
            try:
                return as_utc(at)
            except ValueError:
                return None
    return None


def tally(claimed: Claimed) -> Tally:
    return Tally(attempts=claimed.attempts, crashes=claimed.crashes, max_attempts=claimed.max_attempts)


def _list(text: str) -> list[Any]:
    """A list kept as JSON; nothing if a hand-made row holds something else there."""
    try:
        kept = as_list(json.loads(text))
        dumps(kept).encode()  # what was read must be writable again: no NaN, no lone surrogate
    except (ValueError, RecursionError):
        return []
    return kept


def _without_last(worker_ids: str) -> str:
    return dumps(_list(worker_ids)[:-1])


def _running_result(run: Run) -> TaskResult:
    claimed = run.claimed
    try:
        args, kwargs = split(json.loads(claimed.payload))
    except (ValueError, RecursionError):
        args, kwargs = [], {}
    started = as_utc(claimed.started_at or claimed.last_attempted_at)
    return TaskResult(
        task=run.task,  # type: ignore[arg-type]
        id=run.job_id,
        status=TaskResultStatus.RUNNING,
        enqueued_at=as_utc(claimed.enqueued_at),
        started_at=started,
        last_attempted_at=as_utc(claimed.last_attempted_at),
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=claimed.backend,
        errors=[task_error(each) for each in _list(claimed.errors) if isinstance(each, dict)],
        worker_ids=_list(claimed.worker_ids),
    )
