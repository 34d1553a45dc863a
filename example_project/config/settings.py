"""Settings of the example, read with django-environ.

DATABASE_URL           database of shop and jobs; default: db.sqlite3 beside manage.py
BUSINESS_DATABASE_URL  the second database; default: business.sqlite3 beside the first,
                       or on PostgreSQL the name of the first with `_business`
SECRET_KEY, DEBUG, ALLOWED_HOSTS, PAYMENT_FAILURE_RATE
"""

from pathlib import Path
from typing import Any

import django
import environ
from django.core.exceptions import ImproperlyConfigured

PROJECT = Path(__file__).resolve().parent.parent

env = environ.Env()

DEBUG = env.bool("DEBUG", default=True)
# The default is safe only because the demo listens on the loopback interface.
SECRET_KEY = env.str("SECRET_KEY", default="an example, not a secret")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])


def read_database(variable: str) -> dict[str, Any] | None:
    """Return the database that the variable names, or None if it is not set."""
    if not env.str(variable, default=""):
        return None
    database = env.db_url(variable)
    if database.get("ENGINE") == "django.db.backends.sqlite3":
        return sqlite_database(database["NAME"])
    if database.get("ENGINE") == "django.db.backends.postgresql":
        # Without a name libpq uses that of the user, but Django raises an error.
        return database | {"NAME": database["NAME"] or "shop"}
    raise ImproperlyConfigured(
        f"{variable} must begin with postgres:// or sqlite:///, "
        f"not with {env.str(variable).partition(':')[0]!r}."
    )


def sqlite_database(path: str | Path) -> dict[str, Any]:
    """Return a SQLite database that web, worker and shell can write to concurrently."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {
            # Take the write lock at the beginning: a transaction that reads first and
            # writes later would fail with "database is locked" instead of waiting.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        },
    }


def business_beside(database: dict[str, Any]) -> dict[str, Any]:
    """Return the second database for a given first one."""
    if database["ENGINE"] == "django.db.backends.sqlite3":
        return sqlite_database(Path(database["NAME"]).with_name("business.sqlite3"))
    return database | {"NAME": f"{database['NAME']}_business"}


_default = read_database("DATABASE_URL") or sqlite_database(PROJECT / "db.sqlite3")
DATABASES = {
    "default": _default,
    "business": read_database("BUSINESS_DATABASE_URL") or business_beside(_default),
}
DATABASE_ROUTERS = ["shop.routers.LedgerRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# All options have good defaults. The demo runs for hours: keep succeeded jobs for one
# hour instead of a day.
JOBQUEUE = {
    "RETENTION": {"succeeded": 3600, "cancelled": 3600},
    "MIDDLEWARE": ["shop.middleware.set_language"],
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_jobqueue",
    "shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
STATIC_URL = "static/"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

# Mails are printed to the worker's log.
_CONSOLE = "django.core.mail.backends.console.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _CONSOLE}}
else:
    EMAIL_BACKEND = _CONSOLE
DEFAULT_FROM_EMAIL = "Corner shop <shop@example.com>"

# How often the simulated payment provider fails, from 0 to 1.
PAYMENT_FAILURE_RATE = env.float("PAYMENT_FAILURE_RATE", default=0.4)
# How many seconds a visitor waits for the partner's response.
PARTNER_TIMEOUT = env.float("PARTNER_TIMEOUT", default=5)
