"""Procrastinate on PostgreSQL, with psycopg's asynchronous connections."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from procrastinate import App, PsycopgConnector

from .. import marks
from ..measure import Numbers, stopwatch
from ..services import credentials

BULK = 1_000  # jobs in one call
CONCURRENCY = 10  # jobs at a time; more made it no faster


def prepare(database: str) -> None:
    async def install() -> None:
        app, _ = _app(database)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    asyncio.run(install())


def drain(database: str, jobs: int) -> Numbers:
    async def work() -> None:
        app, noop = _app(database)
        async with app.open_async():
            await _empty(app)
            await noop.batch_defer_async(*({} for _ in range(jobs)))
            marks.expect(jobs)
            await app.run_worker_async(
                wait=False, concurrency=CONCURRENCY, install_signal_handlers=False, listen_notify=False
            )
            marks.stop()

    asyncio.run(work())
    return marks.numbers()


def enqueue(database: str, jobs: int, bulk: int) -> Numbers:
    async def measure() -> Numbers:
        app, noop = _app(database)
        async with app.open_async():
            await _empty(app)
            await noop.defer_async()
            with stopwatch() as one:
                for _ in range(jobs):
                    await noop.defer_async()
            with stopwatch() as many:
                for _ in range(bulk // BULK):
                    await noop.batch_defer_async(*({} for _ in range(BULK)))
            return {"one": jobs / one(), "bulk": bulk / many()}

    return asyncio.run(measure())


def _app(database: str) -> tuple[App, Any]:
    parts = urlsplit(database)
    given = {key: value for key, value in credentials(parts).items() if value}
    app = App(connector=PsycopgConnector(kwargs={**given, "dbname": parts.path.lstrip("/")}))

    @app.task(name="noop")
    async def noop() -> None:
        marks.mark()

    return app, noop


async def _empty(app: App) -> None:
    await app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
