"""The admin pages of jobs."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.templatetags.admin_urls import add_preserved_filters
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from ..models import Job
from ..store import records
from . import acts, details, display, filters
from .base import ReadOnlyAdmin
from .listing import JobList

OFFERED: Final = {"retry": acts.RETRY, "run_now": acts.RUN_NOW, "cancel": acts.CANCEL}


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = (details.status, "name", "queue_name", "enqueued", details.attempts, details.duration, "reason")
    list_display_links = ("name",)
    list_filter = (
        filters.StatusFilter,
        filters.FailureReasonFilter,
        filters.EnqueuedFilter,
        filters.QueueFilter,
        filters.NameFilter,
    )
    search_fields = ("name",)
    search_help_text = _("An id, or part of a name.")
    ordering = ("-id",)  # UUIDv7: the newest first
    actions = ("retry_selected", "cancel_selected", "run_now_selected", "delete_selected")
    deletion = acts.DELETE

    @admin.display(description=_("enqueued"))
    def enqueued(self, job: Job) -> str:
        return display.age(job.enqueued_at, details.now_of(job))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        return JobList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        term = "".join(search_term.split())  # neither an id nor a name has spaces, but what is pasted may
        job_id = records.parse_id(term)
        if job_id is not None:
            return queryset.filter(pk=job_id), False
        return queryset.filter(name__icontains=term) if term else queryset, False

    @admin.action(permissions=["operate"], description=_("Retry ended jobs"))
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self.act_on_selected(request, queryset, acts.RETRY)

    @admin.action(permissions=["operate"], description=_("Cancel jobs"))
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self.act_on_selected(request, queryset, acts.CANCEL)

    @admin.action(permissions=["operate"], description=_("Run scheduled jobs now"))
    def run_now_selected(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self.act_on_selected(request, queryset, acts.RUN_NOW)

    # The page of one job.

    def get_fieldsets(self, request: HttpRequest, obj: Job | None = None) -> Any:
        return details.fieldsets(obj) if obj else []

    def get_readonly_fields(self, request: HttpRequest, obj: Job | None = None) -> Any:
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        offered = self._offered(request, unquote(object_id))
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "offered": offered})

    def get_urls(self) -> list[URLPattern]:
        act = path(
            "<path:object_id>/act/",
            self.admin_site.admin_view(self.act_view),
            name="bunderstack_django_job_act",
        )
        return [act, *super().get_urls()]

    def act_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Do what a button on a job's page says."""
        page = self._page_with_filters(request, object_id)
        if request.method != "POST":  # the way back from a log-in
            return HttpResponseRedirect(page)
        if not self.has_operate_permission(request):
            raise PermissionDenied
        act = OFFERED.get(request.POST.get("act", ""))
        if act is None:
            raise BadRequest("No such act.")
        self._act_on_one(request, unquote(object_id), act)
        return HttpResponseRedirect(page)

    def _act_on_one(self, request: HttpRequest, key: str, act: acts.Act) -> None:
        job = self.get_object(request, key)
        if job is None:
            return  # its page tells
        try:
            done = act.do(job.pk, job._state.db)
        except acts.LeftAlone as refusal:
            self.message_user(request, refusal.sentence, messages.ERROR)
            return
        LogEntry.objects.log_actions(request.user.pk, [job], CHANGE, str(act.label))
        self.message_user(request, str(done.one), messages.SUCCESS)

    def _offered(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """The labels of the acts that the job's page has buttons for."""
        job = self.get_object(request, key) if self.has_operate_permission(request) else None
        if job is None:
            return {}
        return {name: act.label for name, act in OFFERED.items() if act.objection(job) is None}

    def _page_with_filters(self, request: HttpRequest, object_id: str) -> str:
        kept = {"preserved_filters": self.get_preserved_filters(request), "opts": self.opts}
        return add_preserved_filters(kept, self.page_of(object_id))
