from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from bunderstack_django.models import Job

from . import receipts
from .models import Order
from .operations import place_sample_order
from .tasks import export_orders

PAGE_SIZE = 25


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The orders, each with the job of its receipt."""
    counts = dict(Order.objects.order_by().values_list("receipt").annotate(Count("pk")))
    chosen = request.GET.get("receipt", "")
    orders = Order.objects.select_related("customer")
    if chosen in Order.Receipt.values:
        orders = orders.filter(receipt=chosen)
    page = Paginator(orders, PAGE_SIZE).get_page(request.GET.get("page"))
    jobs = Job.objects.in_bulk([order.receipt_job for order in page])
    tabs = [("", "All", sum(counts.values()))]
    tabs += [(value, label, counts.get(value, 0)) for value, label in Order.Receipt.choices]
    return render(
        request,
        "shop/home.html",
        {
            "rows": [(order, jobs.get(order.receipt_job)) for order in page],
            "page": page,
            "chosen": chosen,
            "tabs": tabs,
            "is_empty": not counts,
            "is_waiting": counts.get(Order.Receipt.WAITING, 0) > 0,
        },
    )


@require_safe
def receipt(request: HttpRequest, number: str) -> FileResponse:
    order = get_object_or_404(Order, number=number)
    try:
        return FileResponse(receipts.path_of(order).open("rb"), content_type="text/html; charset=utf-8")
    except FileNotFoundError:
        raise Http404(f"The receipt of order {order.number} is not written yet.") from None


@require_POST
def place_sample(request: HttpRequest) -> HttpResponse:
    order = place_sample_order()
    messages.success(request, f"{order} is placed; its receipt is on its way.")
    return redirect("home")


@require_POST
def export(request: HttpRequest) -> HttpResponse:
    # The key: pressing the button twice does not export twice.
    result = export_orders.using(dedupe_key="export").enqueue()
    messages.success(request, f"The export is job {result.id}.")
    return redirect("home")
