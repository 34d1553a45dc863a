"""The Django project of every system that needs one, on DATABASE_URL.

BENCH_SYSTEM names the adapter and thereby the installed app; the default is ours.
All other settings keep the defaults of Django and of the system.
"""

import os
from typing import Any
from urllib.parse import urlsplit

SYSTEM = os.environ.get("BENCH_SYSTEM", "jobqueue")

# The peers get persistent connections, as Django and some of them advise for
# throughput (Celery would reconnect for each job); ours runs with Django's default.
CONN_MAX_AGE = 0 if SYSTEM in ("jobqueue", "raw_rows") else 600
OPTIONS: dict[str, Any] = {}
if PREPARED := os.environ.get("BENCH_PREPARED"):
    OPTIONS = {"server_side_binding": True, "prepare_threshold": int(PREPARED)}
APPS = {
    "jobqueue": ["django_jobqueue"],
    "raw_rows": ["django_jobqueue"],
    "django_tasks_db": ["django_tasks_db"],
    "django_ox": ["django_ox"],
    "dj_queue": ["dj_queue"],
    "django_q2": ["django_q"],
}
BACKENDS = {
    "django_tasks_db": "django_tasks_db.DatabaseBackend",
    "django_ox": "django_ox.backend.OxBackend",
    "dj_queue": "dj_queue.backend.DjQueueBackend",
}


def read_database(url: str) -> dict[str, Any]:
    """Return a DATABASES entry; its name always begins with jobqueue_bench."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path}
    name = parts.path.lstrip("/")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        # DATABASE_URL may hold real data: never write to any other database.
        "NAME": name if name.startswith("jobqueue_bench") else "jobqueue_bench",
        "CONN_MAX_AGE": CONN_MAX_AGE,
        "OPTIONS": OPTIONS,
    }


DATABASES = {"default": read_database(os.environ["DATABASE_URL"])}
SECRET_KEY = "not a secret: nothing but benchmarks uses it"
USE_TZ = True
INSTALLED_APPS = [*APPS.get(SYSTEM, []), "benchmarks"]
if SYSTEM in APPS and "django_jobqueue" not in INSTALLED_APPS:
    # Without this, logging one line per job would dominate the measurement.
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "root": {"level": "WARNING", "handlers": []},
    }
if SYSTEM in BACKENDS:
    TASKS: dict[str, Any] = {"default": {"BACKEND": BACKENDS[SYSTEM], "OPTIONS": {}}}
if SYSTEM == "dj_queue":
    TASKS["default"]["OPTIONS"]["workers"] = [
        {
            "queues": "*",
            "threads": int(os.environ.get("BENCH_THREADS", "3")),
            "processes": int(os.environ.get("BENCH_PROCESSES", "1")),
            "polling_interval": 0.1,
            "prefetch_multiplier": 2,
        }
    ]
if SYSTEM == "django_q2":
    Q_CLUSTER = {
        "name": "bench",
        "orm": "default",
        "workers": int(os.environ.get("BENCH_PROCESSES", "1")),
        "bulk": 100,
        "queue_limit": 200,
        "timeout": 60,
        "retry": 120,
        "recycle": 1_000_000,
        "save_limit": 0,
        "scheduler": False,
        "log_level": "WARNING",
    }
