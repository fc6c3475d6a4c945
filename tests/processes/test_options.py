"""What ``runworker`` is told, and what it says."""

from __future__ import annotations

import signal

import pytest
from django.db import connection

from bunderstack_django import enqueue_many
from bunderstack_django.compat import DummyBackend
from bunderstack_django.models import Job, WorkerProcess

from . import tasks
from .harness import all_ended, has_status, row, statuses, stays, until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

OURS = {"BACKEND": "bunderstack_django.backend.DatabaseBackend"}


def test_drain_runs_what_is_pending_and_exits_0(workers, evidence):
    enqueue_many([tasks.start.bind(f"job{number}") for number in range(40)])
    later = tasks.start.using(delay=3600).enqueue("later")
    worker = workers.start("--drain")

    assert worker.wait() == 0
    assert set(evidence.counted().values()) == {1}
    assert evidence.starts() == 40
    assert row(later).status == "scheduled"
    assert "40 succeeded" in worker.output.splitlines()[-1]


def test_drain_on_an_empty_table_ends_at_once(workers):
    worker = workers.start("--drain", "--poll-interval", "60")
    worker.wait_for_line(r"Worker \S+ runs ")

    assert worker.wait(5) == 0  # not after the next look


@pytest.mark.parametrize("threads", ["1", "4"])
def test_drain_runs_the_jobs_that_jobs_enqueue_too(workers, evidence, threads):
    tasks.chain.enqueue(3)
    worker = workers.start("--drain", "--threads", threads, "--poll-interval", "3")

    assert worker.wait() == 0
    assert evidence.starts() == 4
    assert statuses() == {"succeeded": 4}


def test_drain_runs_a_job_that_crashed_before_beside_others(workers, evidence):
    """Such a job is not kept waiting behind others but given back, which must not end the drain."""
    for number in range(30):
        tasks.start.using(priority=2).enqueue(f"job{number}")
    for number in range(10):
        crashed = tasks.start.using(priority=1).enqueue(f"crashed{number}")
        Job.objects.filter(pk=crashed.id).update(crashes=1, attempts=1)
    worker = workers.start("--drain", "--threads", "2", "--poll-interval", "3")

    assert worker.wait() == 0
    assert statuses() == {"succeeded": 40}
    assert set(evidence.counted().values()) == {1}
    assert set(Job.objects.values_list("attempts", "crashes")) == {(1, 0), (2, 1)}


def test_max_jobs_runs_exactly_so_many(workers, evidence):
    enqueue_many([tasks.start.bind(f"job{number}") for number in range(60)])
    worker = workers.start("--max-jobs", "23")

    assert worker.wait() == 0
    assert evidence.starts() == 23
    assert statuses() == {"succeeded": 23, "pending": 37}
    assert not Job.objects.filter(status="pending", attempts__gt=0).exists()


def test_max_jobs_holds_while_a_handler_thread_is_slow_to_report(workers, evidence):
    """Between the end of a handler and the arrival of its outcome the job counts, too."""
    enqueue_many([tasks.start.bind(f"job{number}") for number in range(20)])
    worker = workers.run(
        "slow-reports",
        *("runworker", "--max-jobs", "5", "--threads", "4", "--poll-interval", "0.01"),
        module="tests.processes.saboteur",
    )

    assert worker.wait() == 0
    assert evidence.starts() == 5
    assert statuses() == {"succeeded": 5, "pending": 15}


def test_only_the_queues_asked_for_are_served(workers, evidence):
    mail, other = tasks.mail.enqueue("mail"), tasks.start.enqueue("default")
    worker = workers.start("--queues", "mail")
    until(has_status(mail, "succeeded"))
    stays(has_status(other, "pending"), 0.5)

    assert "runs queues mail " in worker.output
    assert evidence.starts("default") == 0


def test_excluded_queues_are_not_served(workers, evidence):
    mail, other = tasks.mail.enqueue("mail"), tasks.start.enqueue("default")
    workers.start("--exclude-queues", "mail")
    until(has_status(other, "succeeded"))
    stays(has_status(mail, "pending"), 0.5)

    assert evidence.starts("mail") == 0


def test_a_queue_that_no_job_uses_is_served_with_a_warning_that_names_the_nearest(workers):
    worker = workers.start("--queues", "mial").is_up()

    worker.wait_for_line("No declared job uses the queue 'mial'. Did you mean 'mail'?")
    assert worker.stop() < 5


def test_a_queue_outside_queues_is_refused_in_one_sentence_with_exit_2(workers):
    worker = workers.start("--queues", "mial", TASKS={"default": {**OURS, "QUEUES": ["default", "mail"]}})

    assert worker.wait() == 2
    assert (
        worker.output.strip()
        == "CommandError: Queue 'mial' is not in QUEUES of TASKS, which allows default, mail."
    )


def test_an_unmigrated_database_is_refused_in_one_sentence_with_exit_2(workers, tmp_path):
    empty = {"sqlite": str(tmp_path / "empty.sqlite3"), "postgresql": "postgres", "mysql": "mysql"}
    worker = workers.start(database={"NAME": empty[connection.vendor]})

    assert worker.wait() == 2
    assert "manage.py migrate" in worker.output
    assert "Traceback" not in worker.output
    assert len(worker.output.strip().splitlines()) == 1


def test_a_server_that_does_not_answer_is_not_taken_for_an_unmigrated_one(workers):
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no server; on MariaDB Django's own system checks connect first")
    worker = workers.start(database={"HOST": "127.0.0.1", "PORT": "1"})

    assert worker.wait() != 0
    assert "Traceback" not in worker.output
    assert "migrate" not in worker.output


def test_wrong_option_values_are_refused_with_exit_2_and_the_values_allowed(workers):
    wrong = {
        ("--threads", "0"): "'0' is not a whole number from 1.",
        ("--max-jobs", "-3"): "'-3' is not a whole number from 1.",
        ("--poll-interval", "0"): "'0' is not a number of seconds above 0",
        ("--shutdown-timeout", "soon"): "'soon' is not a number of seconds above 0",
        ("--database", "nowhere"): "There is no database 'nowhere' in DATABASES; there is default.",
        ("--thread-count", "4"): "unrecognized arguments: --thread-count 4",
    }
    started = {options: workers.run("runworker", *options) for options in wrong}

    for options, message in wrong.items():
        assert started[options].wait() == 2
        assert message in started[options].output
        assert "Traceback" not in started[options].output


def test_without_a_backend_of_ours_the_worker_refuses_to_start(workers):
    dummy = f"{DummyBackend.__module__}.{DummyBackend.__qualname__}"
    worker = workers.start(
        TASKS={"default": {"BACKEND": dummy, "QUEUES": []}},
    )

    assert worker.wait() == 2
    assert "Traceback" not in worker.output
    assert "No backend in TASKS is bunderstack_django.backend.DatabaseBackend" in worker.output


def test_a_worker_registers_itself_and_leaves_with_its_end(workers):
    worker = workers.start("--queues", "mail", "--threads", "3").is_up()
    registered = until(lambda: WorkerProcess.objects.first())
    until(lambda: WorkerProcess.objects.get().rss_bytes > 0, "a heartbeat")

    assert (registered.pid, registered.threads, registered.queues) == (worker.pid, 3, ["mail"])
    worker.stop()
    assert not WorkerProcess.objects.exists()


def test_progress_and_log_are_seen_while_the_job_runs(workers, evidence):
    result = tasks.watch.enqueue("seen")
    workers.start(lease=60)  # a heartbeat each 20 s: news must not wait for it
    evidence.wait_for("start", "seen")
    until(lambda: row(result).progress and row(result).log, "progress and log", timeout=10)

    job = row(result)
    assert job.status == "running"
    assert job.progress == {"fraction": 0.25, "message": "a quarter"}
    assert [line["message"] for line in job.log] == ["under way"]
    evidence.raise_flag()
    until(has_status(result, "succeeded"))
    assert row(result).progress == {"fraction": 0.25, "message": "a quarter"}
    assert [line["message"] for line in row(result).log] == ["under way"]


def test_a_cancel_from_another_process_is_seen_by_the_handler_s_context(workers, evidence):
    from bunderstack_django import cancel

    obeys, ignores = tasks.obey.enqueue("obeys"), tasks.watch.enqueue("ignores")
    worker = workers.start(lease=1.5)
    for key in ("obeys", "ignores"):
        evidence.wait_for("start", key)

    assert cancel(obeys.id) is True
    assert cancel(ignores.id) is True
    evidence.wait_for("cancelled", "ignores")
    until(has_status(obeys, "cancelled"))
    evidence.raise_flag()
    until(all_ended)
    assert (row(obeys).attempts, row(obeys).failure_reason) == (1, None)
    assert row(ignores).status == "succeeded"  # it returned
    assert worker.stop(signal.SIGINT) < 5
