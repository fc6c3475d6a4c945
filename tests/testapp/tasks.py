"""Sample jobs."""

from bunderstack_django import job


@job
def noop() -> None: ...


@job(retries=2)
def add(a: int, b: int) -> int:
    return a + b
