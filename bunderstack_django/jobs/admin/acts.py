"""What the pages do to a row, in words: each act either says what it did or why it left the row alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from ... import conf
from ...exceptions import DedupeConflict, JobDoesNotExist, JobNotFinished
from .. import operations
from ..models import Job
from ..states import ACTIVE, Status
from ..store import records
from .liveness import Liveness, liveness


class Done(NamedTuple):
    """What became of a row."""

    one: Any  # on its own page
    many: Any  # in a report on several


class LeftAlone(Exception):
    """An act does not apply to the row as it is now. ``reason`` is the end of a sentence, for one row or several."""

    def __init__(self, reason: Any, **values: str) -> None:
        self.reason = reason
        self.values = values
        super().__init__(self.of(1))

    def of(self, count: int) -> str:
        return str(self.reason % {**self.values, "count": count})

    @property
    def sentence(self) -> str:
        return _("Nothing was done: %(reason)s.") % {"reason": self}


class Act(NamedTuple):
    """An operation that the admin offers."""

    label: Any
    do: Callable[[Any, str], Done]  # (key, database); raises LeftAlone
    objection: Callable[[Any], LeftAlone | None]  # to the row as it was read: decides what a page offers
    keeps_row: bool = True


@dataclass(slots=True)
class Report:
    """How an act on several rows went."""

    done: dict[Any, Done] = field(default_factory=dict)  # by key
    left: list[LeftAlone] = field(default_factory=list)

    def __str__(self) -> str:
        done = [str(each.many) % {"count": count} for each, count in Counter(self.done.values()).items()]
        return "; ".join([*done, *self.refusals()]) or _("Nothing was done: what was selected is gone.")

    def refusals(self) -> list[str]:
        alike: dict[str, list[LeftAlone]] = {}
        for each in self.left:
            alike.setdefault(str(each), []).append(each)
        text = _("%(count)d left alone: %(reason)s")
        return [text % {"count": len(group), "reason": group[0].of(len(group))} for group in alike.values()]


def act_on(keys: Iterable[Any], act: Act, using: str) -> Report:
    """Do ``act`` to each row by itself."""
    report = Report()
    for key in keys:
        try:
            report.done[key] = act.do(key, using)
        except LeftAlone as refusal:
            report.left.append(refusal)
    return report


_WHY: Final[dict[str | None, Any]] = {
    None: ngettext_lazy("it is gone", "they are gone", "count"),
    Status.SCHEDULED: ngettext_lazy("it is scheduled", "they are scheduled", "count"),
    Status.PENDING: ngettext_lazy("it is waiting for a worker", "they are waiting for a worker", "count"),
    Status.RUNNING: ngettext_lazy("it is still running", "they are still running", "count"),
    Status.SUCCEEDED: ngettext_lazy("it has succeeded", "they have succeeded", "count"),
    Status.FAILED: ngettext_lazy("it has failed", "they have failed", "count"),
    Status.CANCELLED: ngettext_lazy("it was cancelled", "they were cancelled", "count"),
}
_UNKNOWN = ngettext_lazy("its status is not a known one", "their status is not a known one", "count")
_HELD = ngettext_lazy("job %(holder)s holds its dedupe key", "job %(holder)s holds their dedupe key", "count")
_ASKED_BEFORE = ngettext_lazy("it was asked to stop before", "they were asked to stop before", "count")
_ALIVE = ngettext_lazy("it may still be alive", "they may still be alive", "count")

_RETRIED = Done(gettext_lazy("The job will run again."), gettext_lazy("%(count)d retried"))
_CANCELLED = Done(gettext_lazy("The job is cancelled."), gettext_lazy("%(count)d cancelled"))
_ASKED = Done(
    gettext_lazy("The job was asked to stop; it is cancelled once its handler gives in."),
    gettext_lazy("%(count)d asked to stop"),
)
_DUE = Done(gettext_lazy("The job is due now."), gettext_lazy("%(count)d due now"))
_DELETED = Done(gettext_lazy("Deleted."), gettext_lazy("%(count)d deleted"))


def _because(status: str | None) -> LeftAlone:
    return LeftAlone(_WHY.get(status, _UNKNOWN))


def _as_it_is(job_id: Any, using: str) -> LeftAlone:
    return _because(records.status_of(job_id, using))


def _retry(job_id: Any, using: str) -> Done:
    try:
        records.retry(job_id, using)
    except DedupeConflict:
        raise _held(job_id, using) from None
    except (JobDoesNotExist, JobNotFinished):
        raise _as_it_is(job_id, using) from None
    return _RETRIED


def _held(job_id: Any, using: str) -> LeftAlone:
    job = records.get(job_id, using)
    holder = records.holder(job.name, job.dedupe_key or "", using) if job else None
    return LeftAlone(_HELD, holder=str(holder.pk)) if holder else _as_it_is(job_id, using)


def _cancel(job_id: Any, using: str) -> Done:
    if not operations.cancel(job_id):
        raise _as_it_is(job_id, using)
    return _ASKED if records.status_of(job_id, using) == Status.RUNNING else _CANCELLED


def _run_now(job_id: Any, using: str) -> Done:
    if not records.run_now([job_id], using):
        raise _as_it_is(job_id, using)
    return _DUE


def _delete(job_id: Any, using: str) -> Done:
    if not records.delete_ended([job_id], using):
        raise _as_it_is(job_id, using)
    return _DELETED


def _forget_worker(worker_id: Any, using: str) -> Done:
    if not records.forget_worker(worker_id, conf.lease(), using):
        raise LeftAlone(_ALIVE)
    return _DELETED


def _unless_ended(job: Job) -> LeftAlone | None:
    return None if job.is_finished else _because(job.status)


def _unless_cancellable(job: Job) -> LeftAlone | None:
    if job.status not in ACTIVE:
        return _because(job.status)
    return LeftAlone(_ASKED_BEFORE) if job.cancel_requested_at else None


def _unless_scheduled(job: Job) -> LeftAlone | None:
    return None if job.status == Status.SCHEDULED else _because(job.status)


def _unless_gone(worker: Any) -> LeftAlone | None:
    return None if liveness(worker) is Liveness.GONE else LeftAlone(_ALIVE)


RETRY: Final = Act(gettext_lazy("Retry"), _retry, _unless_ended)
RUN_NOW: Final = Act(gettext_lazy("Run now"), _run_now, _unless_scheduled)
CANCEL: Final = Act(gettext_lazy("Cancel"), _cancel, _unless_cancellable)
DELETE: Final = Act(gettext_lazy("Delete"), _delete, _unless_ended, keeps_row=False)
FORGET: Final = Act(gettext_lazy("Delete"), _forget_worker, _unless_gone, keeps_row=False)
