"""A worker beside a web process, for JOBQUEUE["EMBED_WORKER"].

Called when the app is ready. The worker is a supervisor like any other, with separate
processes: a job cannot harm a request. It checks whether the web process is still its
parent, and drains when it is not. However the web process ended, no job is lost.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

from ...backoff import growing_pauses
from ...log_events import Event
from ...options import Options
from ..health.systemd import NOTIFY_VARIABLES

logger = logging.getLogger("django_jobqueue.worker")

# The pid of the web process, in the environment of its worker.
WEB_PROCESS_VARIABLE = "JOBQUEUE_WEB_PROCESS"
# Between the end of a failed worker and the start of the next one.
FIRST_RESTART_PAUSE_SECONDS = 1.0
LONGEST_RESTART_PAUSE_SECONDS = 60.0

_MAKERS = {
    ("django.core.wsgi", "get_wsgi_application"),
    ("django.core.asgi", "get_asgi_application"),
}


def is_web_process(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether Django is being set up in a process that will answer requests.

    That is runserver, but not its parent that only watches the code; or a server that
    loads the project's application at this moment. Other commands, tests and scripts
    do not count.
    """
    if list(argv[1:2]) == ["runserver"]:
        is_watched = environ.get(DJANGO_AUTORELOAD_ENV) == "true"
        return is_watched or "--noreload" in argv
    return _is_loading_application(sys._getframe())


def _is_loading_application(frame: FrameType | None) -> bool:
    while frame is not None:
        maker = (frame.f_globals.get("__name__"), frame.f_code.co_name)
        if maker in _MAKERS:
            return True
        frame = frame.f_back
    return False


def start_embedded_worker() -> None:
    """Start a worker that ends with this process, and start it again if it fails."""
    if not hasattr(os, "waitid") or not os.environ.get("DJANGO_SETTINGS_MODULE"):
        logger.error(
            Event(
                "EMBED_WORKER needs a POSIX system and DJANGO_SETTINGS_MODULE; "
                "no worker is started. Run manage.py runworker"
            )
        )
        return
    # The first one in this thread: a server may not let threads run yet.
    first = _start_worker()
    threading.Thread(
        target=_keep_running, args=(first,), name="jobqueue-embedded", daemon=True
    ).start()


def find_web_process() -> int | None:
    """Return the pid of this worker's web process, None if it has none."""
    text = os.environ.get(WEB_PROCESS_VARIABLE)
    return None if text is None else int(text)


def forget_web_process() -> None:
    """Remove it from the environment: a program that a handler starts has none."""
    os.environ.pop(WEB_PROCESS_VARIABLE, None)


def fit_to_web_process(options: Options) -> Options:
    """Reset the options that make sense only for `runworker` itself."""
    return replace(
        options,
        once=False,
        burst=False,
        in_process=False,
        reload=False,
        idle_timeout=None,
        health_port=None,
        heartbeat_file=None,
    )


def _start_worker() -> subprocess.Popen[bytes]:
    warnings = [f"-W{option}" for option in sys.warnoptions]
    # Popen closes inherited descriptors, such as the socket that a server listens on.
    return subprocess.Popen(
        [_find_python(), *warnings, "-m", "django", "jobqueue", "worker"],
        env=_make_environment(),
        stdin=subprocess.DEVNULL,
    )


def _make_environment() -> dict[str, str]:
    # The service manager expects messages from the web process only.
    excluded = {DJANGO_AUTORELOAD_ENV, *NOTIFY_VARIABLES}
    inherited = {
        name: text for name, text in os.environ.items() if name not in excluded
    }
    return inherited | {
        WEB_PROCESS_VARIABLE: str(os.getpid()),
        # The worker can import what the web process can.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def _find_python() -> str:
    """Return the path of Python: sys.executable may be a server that embeds it."""
    if Path(sys.executable or "").name.startswith(("python", "pypy")):
        return sys.executable
    return str(Path(sys.prefix, "bin", "python3"))


def _keep_running(process: subprocess.Popen[bytes]) -> None:
    pauses = growing_pauses(FIRST_RESTART_PAUSE_SECONDS, LONGEST_RESTART_PAUSE_SECONDS)
    # A worker that ends with code 0 was asked to.
    while code := process.wait():
        pause = next(pauses)
        logger.error(Event("the embedded worker ended", code=code, again_in=pause))
        time.sleep(pause)
        process = _start_worker()
