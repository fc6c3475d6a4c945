"""A list of jobs that costs the same with ten rows and with ten million: a page and whether more follows."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

BULKY = ("payload", "errors", "result", "progress", "log", "worker_ids")
LAST_PAGE = 1_000  # further down, filters lead there sooner than pages


class OpenEndedPaginator(Paginator):  # type: ignore[type-arg]
    """Pages of rows that are never counted: known are those up to the page asked for, and one more."""

    def __init__(self, rows: QuerySet[Any], per_page: int, *, number: int) -> None:
        super().__init__(rows, per_page)
        self.number = number

    @cached_property
    def _rows(self) -> list[Any]:
        first = (self.number - 1) * self.per_page
        return list(self.object_list[first : first + self.per_page + 1])

    @property
    def rows(self) -> list[Any]:
        """The rows of the page."""
        return self._rows[: self.per_page]

    @property
    def has_more(self) -> bool:
        return len(self._rows) > self.per_page

    @cached_property
    def count(self) -> int:
        """How many rows there are at the least; the number itself unless ``has_more``."""
        return (self.number - 1) * self.per_page + len(self._rows)

    @property
    def seen(self) -> int:
        """How many rows there are up to the end of this page."""
        return self.count - self.has_more


class JobList(ChangeList):
    """The change list without its counts, and without the columns it does not show."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        return super().get_queryset(request, *args, **kwargs).defer(*BULKY)

    def get_results(self, request: HttpRequest) -> None:
        if not 1 <= self.page_num <= LAST_PAGE:
            self.page_num = 1
        pages = self._pages()
        if self.page_num > 1 and not pages.rows:  # deleted, or moved to another filter, meanwhile
            self.page_num = 1
            pages = self._pages()
        self.paginator = pages
        self.result_list = pages.rows
        # Equal, so that the search form does not show them.
        self.result_count = self.full_result_count = pages.count
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.multi_page = self.page_num > 1 or pages.has_more

    def _pages(self) -> OpenEndedPaginator:
        return OpenEndedPaginator(self.queryset, self.list_per_page, number=self.page_num)
