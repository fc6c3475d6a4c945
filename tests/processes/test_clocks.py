"""A19: workers whose own clocks are wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from bunderstack_django.models import Job
from bunderstack_django.runtime import clock

from . import tasks
from .harness import SHORT_LEASE, has_status, row, stays, until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def start(workers, tmp_path):
    """Starts a worker whose clock is off; its file can be rewritten to step the clock."""

    def started(name, offset, *options, **changes):
        file = tmp_path / f"clock-{name}"
        file.write_text(str(offset))
        worker = workers.run(
            "runworker",
            "--poll-interval",
            "0.1",
            *options,
            module="tests.processes.wrong_clock",
            environment={"PROCESS_CLOCK": str(file)},
            **changes,
        )
        worker.wait_for_line(rf"CLOCK [+-]{abs(offset)}")
        return worker.is_up(), file

    return started


def test_a19_a_worker_whose_clock_is_ahead_takes_no_live_lease(start, evidence):
    result = tasks.hold.enqueue("leased")
    start("right", 0, "--threads", "1", lease=30)
    evidence.wait_for("start", "leased")
    start("ahead", 600, lease=SHORT_LEASE)  # recovers often
    other = tasks.start.enqueue("other")
    until(has_status(other, "succeeded"))  # it does work
    stays(lambda: (evidence.starts("leased"), row(result).crashes) == (1, 0), 1.5)
    evidence.raise_flag()
    until(has_status(result, "succeeded"))

    assert row(result).attempts == 1


def test_a19_a_step_of_a_worker_s_clock_does_not_stop_its_renewals(start, evidence):
    result = tasks.hold.enqueue("long")
    _, file = start("stepped", 0, "--threads", "1", lease=SHORT_LEASE)
    evidence.wait_for("start", "long")
    start("other", 0, lease=SHORT_LEASE)
    file.write_text("-3600")
    before = row(result).locked_until
    until(lambda: row(result).locked_until > before + timedelta(seconds=1.3 * SHORT_LEASE), "renewals")
    assert row(result).locked_until < clock.read(connection) + timedelta(seconds=SHORT_LEASE + 0.1)
    evidence.raise_flag()
    until(has_status(result, "succeeded"))

    job = row(result)
    assert (evidence.starts("long"), job.attempts, job.crashes) == (1, 1, 0)
    assert job.enqueued_at <= job.started_at <= job.finished_at <= clock.read(connection)


@pytest.mark.parametrize("offset", [-3600, 600])
def test_a19_a_job_due_now_by_the_database_starts_at_once_on_a_worker_with_a_wrong_clock(
    start, evidence, offset
):
    start("wrong", offset)
    now = clock.read(connection)
    due = tasks.start.using(run_after=now).enqueue("due")
    soon = tasks.start.using(run_after=now + timedelta(seconds=1)).enqueue("soon")
    later = tasks.start.using(run_after=now + timedelta(seconds=300)).enqueue("later")
    until(has_status(soon, "succeeded"))

    for each in (due, soon):
        job = row(each)
        assert timedelta(0) <= job.last_attempted_at - job.run_after < timedelta(seconds=1.5)
    assert row(later).status == "scheduled"
    assert Job.objects.filter(attempts=0).count() == 1
