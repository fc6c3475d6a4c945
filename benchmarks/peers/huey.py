"""Huey's SQLite storage: no results, one worker thread, the same ``synchronous`` as we have."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from huey.api import Huey
from huey.storage import SqliteStorage

from .. import marks
from ..measure import TIMEOUT, Numbers
from ..project import synchronous


class Storage(SqliteStorage):
    """Huey knows FULL (as shipped) and OFF; this gives it the setting that our own databases are opened with."""

    level: str

    def _create_connection(self) -> Any:
        connection = super()._create_connection()
        connection.execute(f"PRAGMA synchronous={self.level}")
        return connection


def drain(database: str, jobs: int) -> Numbers:
    Storage.level = synchronous(database)
    queue = Huey("bench", storage_class=Storage, filename=urlsplit(database).path, results=False)
    queue.flush()
    noop = queue.task()(marks.mark)
    for _ in range(jobs):
        noop()
    consumer = queue.create_consumer(workers=1, periodic=False, check_worker_health=False)
    marks.expect(jobs)
    consumer.start()
    marks.reached.wait(TIMEOUT)
    consumer.stop()
    return marks.numbers()
