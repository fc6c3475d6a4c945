"""What the pages share: rows are looked at and acted on, never edited."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected as confirm_deletion
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db.models import ExpressionWrapper, Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...db.fields import UTCDateTimeField
from ...runtime.clock import DatabaseNow
from ..backends import databases
from .acts import Act, LeftAlone, Report, act_on
from .details import database_of

MOST_ROWS = 1_000  # taken by one action, each by its own conditional statement


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Nobody edits a row; who has the change permission may run the actions.

    Each row comes with ``db_now``, the database's clock, which alone tells what is due, late or old.
    """

    class Media:
        css = {"all": ["bunderstack_django/admin.css"]}

    deletion: Act
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        allowed = super().has_delete_permission(request, obj)
        return allowed and (obj is None or self.deletion.objection(obj) is None)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        now = ExpressionWrapper(DatabaseNow(), output_field=UTCDateTimeField())
        rows: QuerySet[Any] = super().get_queryset(request).using(databases()[0]).annotate(db_now=now)
        return rows

    def act_on_selected(self, request: HttpRequest, queryset: QuerySet[Any], act: Act) -> Report:
        """Do ``act`` to each selected row, tell how that went, and note it in the rows' histories."""
        rows = self.taken(request, queryset)
        report = act_on([row.pk for row in rows], act, queryset.db)
        done = [row for row in rows if row.pk in report.done]
        if done:
            flag = CHANGE if act.keeps_row else DELETION
            self.note(request, done, act.label, flag)
        self.message_user(request, str(report), messages.WARNING if report.left else messages.SUCCESS)
        return report

    @admin.action(permissions=["delete"], description=gettext_lazy("Delete selected %(verbose_name_plural)s"))
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Takes the place of Django's own: the rows that may go are confirmed, the others named."""
        if request.POST.get("post"):
            self.act_on_selected(request, queryset, self.deletion)
            return None
        rows = self.taken(request, queryset)
        objections = {row.pk: self.deletion.objection(row) for row in rows}
        left = Report(left=[each for each in objections.values() if each is not None])
        if left.left or not rows:
            self.message_user(request, str(left), messages.WARNING)
        chosen = queryset.filter(pk__in=[key for key, each in objections.items() if each is None])
        # Fetched before it is handed on, else the confirmation counts it by a query.
        return confirm_deletion(self, request, chosen) if len(chosen) else None

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        """Raises LeftAlone if the row may no longer go."""
        self.deletion.do(obj.pk, database_of(obj))

    def taken(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """The selected rows, of which "all that match" may be more than one action takes."""
        rows = list(queryset[: MOST_ROWS + 1])
        if len(rows) > MOST_ROWS:
            text = _("More rows match than one action takes: these are the first %(count)s.")
            self.message_user(request, text % {"count": MOST_ROWS}, messages.WARNING)
        return rows[:MOST_ROWS]

    def note(self, request: HttpRequest, rows: list[Any], label: Any, flag: int = CHANGE) -> None:
        """Say in the history of ``rows`` who did what."""
        LogEntry.objects.log_actions(request.user.pk, rows, flag, str(label))  # type: ignore[arg-type]

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            return super().delete_view(request, object_id, extra_context)
        except LeftAlone as refusal:
            self.message_user(request, refusal.sentence, messages.ERROR)
            return HttpResponseRedirect(self.page_of(object_id))

    def page_of(self, quoted: str) -> str:
        """The address of a row's page, by its quoted key."""
        opts = self.opts
        return reverse(
            f"admin:{opts.app_label}_{opts.model_name}_change",
            args=[quoted],
            current_app=self.admin_site.name,
        )
