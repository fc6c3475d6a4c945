"""Values as people read them. Total: a column that holds anything at all is shown as what it is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..errors import clean
from ..models import Job

NOTHING: Final = "–"
MOST_TEXT: Final = 50_000  # characters of one value on a page

_UNITS: Final = (
    (86_400, gettext_lazy("%(count)s d")),
    (3_600, gettext_lazy("%(count)s h")),
    (60, gettext_lazy("%(count)s min")),
    (1, gettext_lazy("%(count)s s")),
)


class AttemptError(NamedTuple):
    """The error of one attempt; what is not known of it is empty."""

    attempt: str = ""
    exception_class: str = ""
    message: str = ""
    traceback: str = ""
    worker: str = ""
    at: str = ""


def badge(kind: str, text: Any) -> str:
    return format_html('<span class="bunderstack-badge bunderstack-{}">{}</span>', kind, text)


def with_note(text: str, note: str) -> str:
    """``text``, and beside it in small what else there is to know."""
    return format_html('{} <small class="bunderstack-note">{}</small>', text, note) if note else text


def moment(at: datetime | None, now: datetime) -> str:
    """An instant in the reader's time zone, how far off it is, and in UTC as a title."""
    if at is None:
        return NOTHING
    local = timezone.localtime(at, timezone.get_current_timezone())
    return with_note(_time(at, f"{local:%Y-%m-%d %H:%M:%S %Z}"), distance(at, now))


def age(at: datetime, now: datetime) -> str:
    """How long ago an instant is, the instant in UTC as a title."""
    return _time(at, distance(at, now))


def distance(at: datetime, now: datetime) -> str:
    if at > now:
        return _("in %(span)s") % {"span": duration(at - now)}
    return _("%(span)s ago") % {"span": duration(now - at)}


def duration(span: timedelta) -> str:
    """A span in its two largest units."""
    seconds = max(span.total_seconds(), 0.0)
    if seconds < 1:
        return _("%(count)s ms") % {"count": round(seconds * 1000)}
    if seconds < 10:
        return _("%(count)s s") % {"count": number_format(seconds, 1)}
    left = round(seconds)
    parts: list[tuple[int, Any]] = []
    for size, text in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, text))
    return " ".join(str(text) % {"count": count} for count, text in parts[:2] if count)


def run_time(job: Job, now: datetime) -> str:
    """How long the latest attempt's handler took, or has been at it."""
    if job.started_at is None or not (job.finished_at or job.locked_until):
        return NOTHING
    if job.finished_at is not None:
        return duration(job.finished_at - job.started_at)
    return with_note(duration(now - job.started_at), _("so far"))


def attempts(job: Job) -> str:
    """``2 of 4``: a crash spends no retry, and is told apart."""
    text = _("%(count)d of %(most)d") % {"count": job.attempts - job.crashes, "most": job.max_attempts}
    crashes = ngettext("%(count)d crash", "%(count)d crashes", job.crashes) % {"count": job.crashes}
    return with_note(text, crashes if job.crashes else "")


def as_json(value: Any) -> str:
    """A JSON value, indented; cut where a page would choke on it."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return _("It is nested too deep to be shown.")
    return as_text(text)


def as_text(value: Any) -> str:
    """Any value as text that can be sent to a browser."""
    text = clean(value if isinstance(value, str) else str(value))
    if len(text) <= MOST_TEXT:
        return text
    return text[:MOST_TEXT] + _("… (%(count)s characters more)") % {"count": len(text) - MOST_TEXT}


def code(text: str) -> str:
    return format_html('<pre class="bunderstack-code">{}</pre>', text)


def unreadable(value: Any) -> str:
    """A column that does not hold what it should."""
    return format_html("<p>{}</p>{}", _("What is stored here cannot be read:"), code(_raw(value)))


def fraction(progress: Any) -> float | None:
    """How far the work is, from 0 to 1; None if the column does not say."""
    share = progress.get("fraction") if isinstance(progress, dict) else None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        return None
    return float(share)


def attempt_errors(errors: list[Any], now: datetime) -> list[AttemptError]:
    """The errors of a job, the newest first."""
    return [_attempt_error(each, now) for each in reversed(errors)]


def log_lines(lines: list[Any], now: datetime) -> list[tuple[str, str]]:
    """When and what, for each line that a handler kept."""
    return [
        (_moment_of_text(each.get("at"), now), as_text(each.get("message", "")))
        if isinstance(each, dict)
        else ("", _raw(each))
        for each in lines
    ]


def texts(values: Any) -> list[str]:
    """A column that should be a list of texts."""
    return [as_text(each) for each in values] if isinstance(values, list) else [_raw(values)]


def _attempt_error(error: Any, now: datetime) -> AttemptError:
    if not isinstance(error, dict):
        return AttemptError(message=_raw(error))
    known = {name: as_text(error[name]) for name in AttemptError._fields if error.get(name)}
    return AttemptError(**{**known, "at": _moment_of_text(error.get("at"), now)})


def _moment_of_text(text: Any, now: datetime) -> str:
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return as_text(text or "")
    return moment(at.replace(tzinfo=UTC) if at.tzinfo is None else at, now)


def _raw(value: Any) -> str:
    return as_text(value) if isinstance(value, str) else as_json(value)


def _time(at: datetime, text: str) -> str:
    utc = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC", text
    )
