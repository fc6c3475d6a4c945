from __future__ import annotations

from django.contrib import admin
from django.urls import path

from example_project.shop import views

urlpatterns = [
    path("", views.home, name="home"),
    path("orders/sample/", views.place_sample, name="place-sample"),
    path("orders/export/", views.export, name="export"),
    path("orders/<str:number>/receipt/", views.receipt, name="receipt"),
    path("admin/", admin.site.urls),
]
