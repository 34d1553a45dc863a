"""The URLs of the test project: the admin, where the queue's pages live."""

from django.contrib import admin
from django.urls import path

urlpatterns = [
    path("admin/", admin.site.urls),
]
