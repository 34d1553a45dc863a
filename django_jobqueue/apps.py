"""The app: imports handlers and registers checks when Django is ready."""

import os
import sys

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class JobQueueConfig(AppConfig):
    name = "django_jobqueue"
    label = "jobqueue"
    verbose_name = _("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401
        from .options import read_options
        from .registry import autodiscover

        autodiscover()
        # The checks report what is wrong with the options.
        options, _ = read_options({})
        if options.embed_worker:
            self._embed_worker()

    def _embed_worker(self) -> None:
        from .worker.startup.embedded import is_web_process, start_embedded_worker

        if is_web_process(sys.argv, os.environ):
            start_embedded_worker()
