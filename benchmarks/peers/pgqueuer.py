"""PgQueuer on PostgreSQL, with batches of 100 on psycopg's asynchronous connection."""

from __future__ import annotations

import asyncio

import psycopg
from pgqueuer import PgQueuer
from pgqueuer.types import QueueExecutionMode

from .. import marks
from ..measure import Numbers

BATCH = 100
WARM_UP = 5 * BATCH  # its loop pauses once, for a second, after the first batches


def prepare(database: str) -> None:
    async def install() -> None:
        async with await _connect(database) as connection:
            await PgQueuer.from_psycopg_connection(connection).queries.install()

    asyncio.run(install())


def drain(database: str, jobs: int) -> Numbers:
    async def work() -> None:
        async with await _connect(database) as connection:
            queue = PgQueuer.from_psycopg_connection(connection)
            await queue.queries.clear_queue()

            @queue.entrypoint("noop")
            async def noop(job: object) -> None:
                marks.mark()

            for start in range(0, jobs, 1_000):
                count = min(1_000, jobs - start)
                await queue.queries.enqueue(["noop"] * count, [None] * count, [0] * count)
            marks.expect(jobs, warm_up=WARM_UP)
            await queue.run(batch_size=BATCH, mode=QueueExecutionMode.drain)

    asyncio.run(work())
    return marks.numbers()


async def _connect(database: str) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(database, autocommit=True)
