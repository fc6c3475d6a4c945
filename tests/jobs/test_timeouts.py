"""JobTimeout is raised in the handler whose time is up, and nowhere else."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from bunderstack_django.exceptions import JobTimeout
from bunderstack_django.jobs.timeouts import Deadlines, awaited
from bunderstack_django.models import Job
from bunderstack_django.testing import tick
from tests.testapp import tasks


def spin(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "done"


def test_a_call_within_its_time_returns():
    assert Deadlines().call(lambda: "value", 5) == "value"
    assert Deadlines().call(lambda: "value", None) == "value"


def test_a_call_beyond_its_time_is_interrupted():
    began = time.monotonic()
    with pytest.raises(JobTimeout):
        Deadlines().call(lambda: spin(30), 0.1)

    assert time.monotonic() - began < 5


def test_an_error_of_the_call_passes_through():
    with pytest.raises(ValueError, match="own"):
        Deadlines().call(lambda: int("own"), 5)


def test_a_call_that_swallows_the_interruption_returns_what_it_returns():
    def stubborn() -> str:
        try:
            spin(30)
        except BaseException:
            return "cleaned up"
        return "never"

    assert Deadlines().call(stubborn, 0.1) == "cleaned up"


def test_an_interruption_that_comes_too_late_never_leaves_the_call():
    deadlines = Deadlines()
    for _ in range(300):
        # Ends at about the instant its guard fires, before or after.
        try:
            deadlines.call(lambda: spin(0.005), 0.005)
        except JobTimeout:
            pass
        spin(0.0005)  # an exception still pending would be raised here


def test_each_thread_is_interrupted_for_itself():
    deadlines, ended = Deadlines(), {}

    def run(name: str, limit: float) -> None:
        try:
            ended[name] = deadlines.call(lambda: spin(0.6), limit)
        except JobTimeout:
            ended[name] = "timeout"

    threads = [threading.Thread(target=run, args=each) for each in (("short", 0.1), ("long", 30))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ended == {"short": "timeout", "long": "done"}


def test_a_coroutine_is_cancelled_at_its_time_and_its_own_timeout_error_is_its_own():
    async def sleep() -> None:
        await asyncio.sleep(30)

    async def fail() -> None:
        raise TimeoutError("own")

    with pytest.raises(JobTimeout):
        asyncio.run(awaited(sleep, 0.05))
    with pytest.raises(TimeoutError, match="own"):
        asyncio.run(awaited(fail, 5))


@pytest.mark.django_db
@pytest.mark.parametrize("task", ["too_long", "too_long_async"])
def test_a_timeout_is_a_failure_of_its_own_reason(task, calls):
    args = ("loop",) if task == "too_long" else ()
    result = getattr(tasks, task).enqueue(*args)
    tick()

    job = Job.objects.get(pk=result.id)
    assert (job.status, job.failure_reason, job.attempts) == ("failed", "timeout", 1)
    assert "longer than its timeout of 0:00:00.300000" in job.errors[0]["message"]
