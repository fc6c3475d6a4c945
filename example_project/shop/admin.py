from __future__ import annotations

from django.contrib import admin

from .models import Customer, Order, Product


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    list_display = ("name", "email")
    search_fields = ("name", "email")


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ("code", "name", "price")
    search_fields = ("code", "name")


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = (
        "number",
        "placed_at",
        "customer",
        "product_code",
        "quantity",
        "receipt",
        "receipt_problem",
    )
    list_filter = ("receipt",)
    list_select_related = ("customer",)
    search_fields = ("number", "customer__name", "customer__email")
    autocomplete_fields = ("customer",)
    date_hierarchy = "placed_at"
