"""A task declared with Django's own decorator."""

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def plain_task(a: int = 1) -> int:
    return a


@task(takes_context=True)
def plain_with_context(context) -> int:  # type: ignore[no-untyped-def]
    return context.attempt
