"""The admin pages of jobs."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin, messages
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
from .base import MOST_ROWS, ReadOnlyAdmin
from .listing import JobList

OFFERED: Final = {"retry": acts.RETRY, "run_now": acts.RUN_NOW, "cancel": acts.CANCEL}


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = (details.status, "name", "queue_name", "enqueued", details.attempts, details.duration)
    list_display_links = ("name",)
    list_filter = (
        filters.StatusFilter,
        filters.FailureReasonFilter,
        filters.EnqueuedFilter,
        filters.QueueFilter,
        filters.NameFilter,
    )
    show_full_result_count = False
    search_fields = ("name",)
    search_help_text = _("An id, or part of a name.")
    ordering = ("-id",)  # UUIDv7: the newest first
    actions = ("retry_selected", "cancel_selected", "run_now_selected", "delete_selected")
    deletion = acts.DELETE

    @admin.display(description=_("enqueued"))
    def enqueued(self, job: Job) -> str:
        return display.age(job.enqueued_at, details.now_of(job))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(request, {"most_rows": MOST_ROWS, **(extra_context or {})})

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        return JobList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        term = "".join(search_term.split())  # neither an id nor a name has spaces, but what is pasted may
        if not term:
            return queryset, False
        job_id = records.parse_id(term)
        if job_id is not None:
            return queryset.filter(pk=job_id), False
        # Not icontains: no database has statistics on upper(name), and PostgreSQL then walks the whole table.
        return queryset.filter(name__contains=term), False

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

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Job | None = None,
    ) -> HttpResponse:
        context["offered"] = self._offered(request, obj)
        return super().render_change_form(request, context, add, change, form_url, obj)

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
            done = act.do(job.pk, details.database_of(job))
        except acts.LeftAlone as refusal:
            self.message_user(request, refusal.sentence, messages.ERROR)
            return
        self.note(request, [job], act.label)
        self.message_user(request, str(done.one), messages.SUCCESS)

    def _offered(self, request: HttpRequest, job: Job | None) -> dict[str, Any]:
        """The labels of the acts that the job's page has buttons for."""
        if job is None or not self.has_operate_permission(request):
            return {}
        return {name: act.label for name, act in OFFERED.items() if act.objection(job) is None}

    def _page_with_filters(self, request: HttpRequest, object_id: str) -> str:
        kept: Any = {"preserved_filters": self.get_preserved_filters(request), "opts": self.opts}
        return add_preserved_filters(kept, self.page_of(object_id))
