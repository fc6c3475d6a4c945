from django.tasks import task

from ..marks import mark


@task
def noop() -> None:
    mark()
