"""Celery over RabbitMQ with its fastest setting: the solo pool, early acknowledgement, a large prefetch, no results."""

from __future__ import annotations

import logging
import warnings

from celery import Celery
from celery.exceptions import WorkerShutdown
from kombu import Queue

from .. import marks, services
from ..measure import Numbers

QUEUE = services.PREFIX + "celery"


def drain(database: str, jobs: int) -> Numbers:
    app = _app(database)

    @app.task(name="noop", ignore_result=True)
    def noop() -> None:
        marks.mark()
        if marks.reached.is_set():
            raise WorkerShutdown(0)

    with app.connection_for_write() as connection:
        queue = Queue(QUEUE, channel=connection.default_channel)
        queue.declare()
        queue.purge()
        producer = app.amqp.Producer(connection.default_channel)
        for _ in range(jobs):
            noop.apply_async(producer=producer)
        marks.expect(jobs)
        try:
            _work(app)
        finally:
            queue.delete()
    return marks.numbers()


def _app(broker: str) -> Celery:
    app = Celery("bench", broker=broker, set_as_current=True)
    app.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        worker_prefetch_multiplier=500,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=False,
    )
    return app


def _work(app: Celery) -> None:
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")  # that it should not run as root
    options = [
        "--pool=solo",
        "--without-gossip",
        "--without-mingle",
        "--without-heartbeat",
        "--loglevel=ERROR",
    ]
    try:
        app.worker_main(["--quiet", "worker", *options])
    except SystemExit:
        pass
