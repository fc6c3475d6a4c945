"""The admin pages of worker processes."""

from __future__ import annotations

from django.contrib import admin
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..models import WorkerProcess
from ..store import records
from . import acts, details, display
from .base import ReadOnlyAdmin
from .liveness import liveness

MOST_JOBS = 100


@admin.register(WorkerProcess)
class WorkerProcessAdmin(ReadOnlyAdmin):
    list_display = ("id", "state", "host", "pid", "queue_names", "threads", "running", "memory", "started")
    search_fields = ("id", "host")
    ordering = ("host", "pid", "id")
    actions = ("delete_selected",)
    deletion = acts.FORGET
    fieldsets = (
        (None, {"fields": ("id", "state", ("host", "pid", "identity"), ("queue_names", "threads"))}),
        (_("Now"), {"fields": (("running", "memory"), "jobs", "started")}),
    )
    readonly_fields = ("state", "queue_names", "memory", "jobs", "started")

    @admin.display(description=_("last heartbeat"))
    def state(self, worker: WorkerProcess) -> str:
        found = liveness(worker)
        seen = display.age(worker.heartbeat_at, details.now_of(worker))
        return format_html("{} {}", display.badge(found.value, found.label), seen)

    @admin.display(description=_("queues"))
    def queue_names(self, worker: WorkerProcess) -> str:
        return ", ".join(display.texts(worker.queues)) or gettext("all")

    @admin.display(description=_("memory"))
    def memory(self, worker: WorkerProcess) -> str:
        return filesizeformat(worker.rss_bytes)

    @admin.display(description=_("started"))
    def started(self, worker: WorkerProcess) -> str:
        return display.age(worker.started_at, details.now_of(worker))

    @admin.display(description=_("jobs it runs"))
    def jobs(self, worker: WorkerProcess) -> str:
        found = records.running_on(worker.pk, details.database_of(worker), MOST_JOBS)
        if not found:
            return display.NOTHING
        links = format_html_join("", "<li>{}</li>", ((details.job_link(job),) for job in found))
        return format_html('<ul class="bunderstack-list">{}</ul>', links)
