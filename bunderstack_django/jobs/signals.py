"""Sending django.tasks' signals for jobs, and calling ``on_failed``."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from ..compat import task_finished, task_started
from .backends import only_logged, sender_of
from .payload import split
from .results import STATUSES, task_error
from .states import Status

if TYPE_CHECKING:
    from .execute import Outcome, Run

logger = logging.getLogger("bunderstack_django.jobs")


def announce_started(run: Run) -> None:
    """Send ``task_started``."""
    if only_logged(task_started, logging.INFO):
        return
    _send(task_started, run, run.result())


def announce_settled(outcome: Outcome, status: str) -> None:
    """After the outcome has landed as ``status``: ``task_finished``, then ``on_failed``."""
    final = Status(status)
    if final not in (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED) or outcome.run.task is None:
        return
    level = logging.INFO if final == Status.SUCCEEDED else logging.ERROR
    if not only_logged(task_finished, level):
        _send(task_finished, outcome.run, _finished_result(outcome, final))
    if final == Status.FAILED:
        call_on_failed(outcome.run, outcome.error)


def wants_announcement(outcome: Outcome, status: str) -> bool:
    """Whether ``announce_settled`` has anyone to tell; most jobs have not."""
    if status == Status.SUCCEEDED:
        return not only_logged(task_finished, logging.INFO)
    return status in (Status.FAILED, Status.CANCELLED)


def call_on_failed(run: Run, error: Any) -> None:
    """Call the job's ``on_failed``; what it raises is logged, never retried."""
    task = run.task
    if task is None or task.on_failed is None or error is None:
        return

    try:
        args, kwargs = split(json.loads(run.claimed.payload))
    except ValueError:
        args, kwargs = [], {}
    try:
        task.on_failed(run.job_id, args, kwargs, error)
    except BaseException:
        logger.exception("on_failed raised name=%s id=%s", run.claimed.name, run.job_id)


def _finished_result(outcome: Outcome, status: Status) -> Any:

    run = outcome.run
    result = run.result()
    changes: dict[str, Any] = {"status": STATUSES[status], "finished_at": run.now()}
    if outcome.error is not None:
        changes["errors"] = [*result.errors, task_error(outcome.error.as_dict())]
    if status == Status.SUCCEEDED:
        changes["_return_value"] = outcome.value
    for name, value in changes.items():
        object.__setattr__(result, name, value)
    return result


def _send(signal: Any, run: Run, result: Any) -> None:
    # What a receiver raises is its own fault and must not decide over the job.
    for receiver, answer in signal.send_robust(sender_of(run.claimed.backend), task_result=result):
        if isinstance(answer, Exception):
            logger.error(
                "A receiver of a task signal raised receiver=%r id=%s", receiver, run.job_id, exc_info=answer
            )
