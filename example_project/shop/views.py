"""One page: buttons that start jobs, and the state of those jobs.

Every visitor may press every button: the demo listens on the loopback interface only.
"""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import cache_control, never_cache
from django.views.decorators.http import require_POST, require_safe

from django_jobqueue import DeadJob, Job
from django_jobqueue.exceptions import JobDead, WaitTimeout

from .actions import ACTIONS
from .board import admin_list, read_board
from .jobs import call_webhook
from .models import Photo

MAX_JOBS_PER_VISITOR = 6


@require_safe
@never_cache
def index(request: HttpRequest) -> HttpResponse:
    """Return the whole page."""
    links = {
        "jobs": admin_list("job"),
        "dead_jobs": admin_list("deadjob"),
        "workers": admin_list("workerheartbeat"),
    }
    page = {"actions": ACTIONS.values(), "links": links}
    return render(request, "shop/index.html", page | _read_board(request))


@require_safe
@never_cache
def live(request: HttpRequest) -> HttpResponse:
    """Return the part that changes, for live.js."""
    return render(request, "shop/board.html", _read_board(request))


@require_POST
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Start the action of a button."""
    if name not in ACTIONS:
        raise Http404(f"There is no action {name!r}.")
    job = ACTIONS[name].start()
    ids = [str(job.pk), *request.session.get("jobs", [])]
    request.session["jobs"] = list(dict.fromkeys(ids))[:MAX_JOBS_PER_VISITOR]
    text = f"{ACTIONS[name].title}: {job.job_type} was enqueued."
    if not job.was_created:
        text = f"{ACTIONS[name].title}: {job.job_type} was waiting already."
    messages.success(request, text)
    return redirect("shop:index")


@require_POST
def cancel(request: HttpRequest, id: UUID) -> HttpResponse:
    """Cancel a waiting job, or ask a running one to stop."""
    job = get_object_or_404(Job.objects.all(), pk=id)
    texts = {
        "cancelled": f"{job.job_type} was cancelled.",
        "requested": f"{job.job_type} was asked to stop.",
        "ended": f"{job.job_type} had ended already.",
    }
    messages.success(request, texts[job.cancel()])
    return redirect("shop:index")


@require_POST
async def ask_partner(request: HttpRequest, id: int) -> HttpResponse:
    """Notify the partner of an order in a job, and wait for its result.

    Under ASGI this blocks nothing: between two polls the event loop is free.
    """
    job = await call_webhook.aenqueue(order_id=id)
    try:
        ended = await job.await_end(timeout=settings.PARTNER_TIMEOUT)
    except WaitTimeout:
        await job.acancel()
        return JsonResponse({"job": str(job.pk), "status": job.status}, status=503)
    except JobDead as error:
        return JsonResponse({"job": str(job.pk), "error": str(error)}, status=502)
    return JsonResponse({"job": str(job.pk), "result": ended.result})


@require_POST
def requeue(request: HttpRequest, id: UUID) -> HttpResponse:
    """Requeue a dead job."""
    dead = get_object_or_404(DeadJob.objects.all(), pk=id)
    if dead.requeue() is None:
        messages.warning(request, f"{dead.job_type} could not be requeued.")
    else:
        messages.success(request, f"{dead.job_type} was requeued.")
    return redirect("shop:index")


@require_safe
@cache_control(max_age=3600)
def photo(request: HttpRequest, id: int) -> HttpResponse:
    """Return the thumbnail of a photo, or 404 while there is none."""
    found = get_object_or_404(Photo.objects.exclude(thumbnail=b""), pk=id)
    return HttpResponse(bytes(found.thumbnail), content_type="image/png")


def _read_board(request: HttpRequest) -> dict[str, object]:
    return read_board(request.session.get("jobs", []))
