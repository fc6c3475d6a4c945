from bunderstack_django import job

from ..marks import mark


@job
def noop() -> None:
    mark()
