"""Settings of the test project, for pytest, mypy and the workers that tests start.

JOBQUEUE_TEST_DATABASE chooses `postgresql` (the default, at DATABASE_URL) or `sqlite`.
Tests write only to databases named `test_…` with a suffix for each run, so two runs can
share a server. A worker process started by a test reads their names from
JOBQUEUE_TEST_NAME_<alias> (see `worker_env` in conftest.py).
"""

import os
from pathlib import Path
from typing import Any

import environ

env = environ.Env()

DATABASE = env.str("JOBQUEUE_TEST_DATABASE", default="postgresql")
RUN = env.str("JOBQUEUE_TEST_RUN", default=str(os.getpid()))


def postgresql_database(alias: str) -> dict[str, Any]:
    database = env.db_url("DATABASE_URL", default="postgres://127.0.0.1/jobqueue")
    name = database["NAME"] or "jobqueue"
    if alias != "default":
        name = f"{name}_{alias}"
    return {
        **database,
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "TEST": {"NAME": f"test_{name}_{RUN}"},
    }


def sqlite_database(alias: str) -> dict[str, Any]:
    # Files, since worker processes open them too. Only tests need one.
    directory = env.str("JOBQUEUE_TEST_DIRECTORY", default="")
    test_name = str(Path(directory) / f"test_{alias}_{RUN}.sqlite3")
    options = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
    }
    # A worker must work without these options: startproject writes none.
    if env.bool("JOBQUEUE_TEST_NO_OPTIONS", default=False):
        options = {}
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        "TEST": {"NAME": test_name if directory else None},
        "OPTIONS": options,
    }


def database_for(alias: str) -> dict[str, Any]:
    match DATABASE:
        case "postgresql":
            database = postgresql_database(alias)
        case "sqlite":
            database = sqlite_database(alias)
        case other:
            raise ValueError(
                "JOBQUEUE_TEST_DATABASE must be postgresql or sqlite, "
                f"but it is {other!r}."
            )
    if name := env.str(f"JOBQUEUE_TEST_NAME_{alias}", default=""):
        database["NAME"] = name
    # Tests of a worker's connections change these, in its process only.
    age = env.str("JOBQUEUE_TEST_CONN_MAX_AGE", default="0")
    database["CONN_MAX_AGE"] = None if age == "None" else int(age)
    if level := env.int("JOBQUEUE_TEST_ISOLATION", default=0):
        database["OPTIONS"] = {"isolation_level": level}
    if size := env.int("JOBQUEUE_TEST_POOL", default=0):
        database["OPTIONS"] = {"pool": {"min_size": 1, "max_size": size, "timeout": 5}}
    return database


DATABASES = {alias: database_for(alias) for alias in ("default", "business")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_jobqueue",
    "tests.testapp",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
SECRET_KEY = "not a secret: nothing but tests uses it"
ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
# tests/faults/test_commit.py deliberately has an atomic handler of two databases.
SILENCED_SYSTEM_CHECKS = ["jobqueue.W012"]

TASKS = {
    "default": {"BACKEND": "django_jobqueue.backend.JobQueueBackend", "QUEUES": []},
}

# Tests of faults change this in a worker's process: see tests/faults/points.py.
if "JOBQUEUE_TEST_CRASHES" in os.environ:
    INSTALLED_APPS.append("tests.faults.points.CrashPointsConfig")
# For a child that cannot start although its supervisor can.
if "JOBQUEUE_CHILD" in os.environ and "JOBQUEUE_TEST_CHILD_FAILS" in os.environ:
    raise SystemExit(int(os.environ["JOBQUEUE_TEST_CHILD_FAILS"]))
if "JOBQUEUE_TEST_WEDGES" in os.environ:
    INSTALLED_APPS.append("tests.faults.wedges.WedgesConfig")
