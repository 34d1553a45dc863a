"""Hosting: a web process with a worker beside it, for JOBQUEUE["EMBED_WORKER"].

Called when the app is ready. The worker is a supervisor like any other, with processes
of its own, so that a job cannot harm a request. It looks whether its web process is
still its parent, and drains when it is not: however that ended, no job is lost.
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

from ..options import Options
from ..signals import Event
from .systemd import VARIABLES

logger = logging.getLogger("django_jobqueue.worker")

# The pid of the web process, told to the worker in its environment.
VARIABLE = "JOBQUEUE_WEB_PROCESS"
LONGEST_PAUSE = 60.0

_MAKERS = {
    ("django.core.wsgi", "get_wsgi_application"),
    ("django.core.asgi", "get_asgi_application"),
}


def is_web_process(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Tell whether Django is being set up in a process that will answer requests.

    That is runserver, but not its parent that only watches the code; or a server that
    loads the project's application at this moment. Other commands, tests and scripts
    are none.
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
    # The first one from here: a server may not let threads run yet.
    first = _start_worker()
    threading.Thread(
        target=_keep_running, args=(first,), name="jobqueue-host", daemon=True
    ).start()


def find_web_process() -> int | None:
    """Return the pid of the web process this worker belongs to, None if to none."""
    text = os.environ.get(VARIABLE)
    return None if text is None else int(text)


def forget_web_process() -> None:
    """Take it out of the environment: what a handler starts belongs to none."""
    os.environ.pop(VARIABLE, None)


def fit_to_web_process(options: Options) -> Options:
    """Leave out what makes sense only for a worker that somebody starts as such."""
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
    # By Popen: it closes what a server leaves open for programs it starts itself, such
    # as the socket it listens on.
    return subprocess.Popen(
        [_find_python(), *warnings, "-m", "django", "jobqueue", "worker"],
        env=_make_environment(),
        stdin=subprocess.DEVNULL,
    )


def _make_environment() -> dict[str, str]:
    # The manager of the web process need not hear from us.
    told = {DJANGO_AUTORELOAD_ENV, *VARIABLES}
    inherited = {name: text for name, text in os.environ.items() if name not in told}
    return inherited | {
        VARIABLE: str(os.getpid()),
        # What can be imported here can be imported there.
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def _find_python() -> str:
    """Return the interpreter: sys.executable may be a server that embeds it."""
    if Path(sys.executable or "").name.startswith(("python", "pypy")):
        return sys.executable
    return str(Path(sys.prefix, "bin", "python3"))


def _keep_running(process: subprocess.Popen[bytes]) -> None:
    pause = 1.0
    # One that ends well was told to.
    while code := process.wait():
        logger.error(Event("the embedded worker ended", code=code, again_in=pause))
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        process = _start_worker()
