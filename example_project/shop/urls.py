"""The shop's URLs. Every URL that changes data requires POST."""

from django.urls import path

from . import views

app_name = "shop"
urlpatterns = [
    path("", views.index, name="index"),
    path("live/", views.live, name="live"),
    path("start/<slug:name>/", views.start, name="start"),
    path("jobs/<uuid:id>/cancel/", views.cancel, name="cancel"),
    path("jobs/<uuid:id>/requeue/", views.requeue, name="requeue"),
    path("orders/<int:id>/partner/", views.ask_partner, name="ask-partner"),
    path("photos/<int:id>.png", views.photo, name="photo"),
]
