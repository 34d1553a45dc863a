"""The system checks: what `manage.py check` says of a project."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.checks.registry import registry as check_registry
from django.core.management import BaseCommand, call_command
from django.core.management.base import SystemCheckError
from django.db import connections, models, router
from django.test import override_settings
from django.test.utils import isolate_apps

from django_jobqueue import DeadJob, Job, job, registry
from django_jobqueue.checks import (
    check_command,
    check_database,
    check_foreign_keys,
    check_handlers,
    check_journal,
    check_middleware,
    check_options,
    check_pool,
    check_routers,
    databases,
    project,
)
from django_jobqueue.management.commands.runworker import Command as RunWorker
from django_jobqueue.worker.connections import find_pool_size
from tests.processes import ROOT

MIDDLEWARE = "tests.testapp.middleware"


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know the handlers of the app alone, and forget what a test registers."""
    known = {
        name: made
        for name, made in registry._registry.items()
        if made.target.__module__.startswith("tests.testapp.")
    }
    monkeypatch.setattr(registry, "_registry", known)
    monkeypatch.setattr(registry, "_announced", {})
    monkeypatch.setattr(registry, "duplicates", [])


def told(found: list[CheckMessage]) -> list[tuple[str | None, str, str | None]]:
    return [(message.id, message.msg, message.hint) for message in found]


def test_tests_themselves_have_nothing_to_complain_about() -> None:
    found = run_checks(tags=["jobqueue"])
    assert [message for message in found if not message.is_silenced()] == []


def test_unknown_setting_is_e001() -> None:
    with override_settings(JOBQUEUE={"CONCURENCY": 1}):
        assert told(check_options()) == [
            (
                "jobqueue.E001",
                "JOBQUEUE has no key 'CONCURENCY'.",
                "Did you mean 'CONCURRENCY'?",
            )
        ]


def test_every_wrong_setting_is_an_e001_of_its_own() -> None:
    with override_settings(JOBQUEUE={"CONCURRENCY": 0, "BATCH_SIZE": "x", "Q": 1}):
        found = check_options()
    assert [message.id for message in found] == ["jobqueue.E001"] * 3


def test_wrong_variable_is_e001(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_CONCURRENCY", "many")
    [(code, message, _)] = told(check_options())
    assert code == "jobqueue.E001"
    assert message == (
        "The environment variable WORKER_CONCURRENCY must be a whole number from 1 to "
        "10000; it is 'many'."
    )


def test_contradiction_is_e001() -> None:
    with override_settings(JOBQUEUE={"HEARTBEAT_TTL": 10}):
        [(code, message, hint)] = told(check_options())
    assert code == "jobqueue.E001"
    assert message.startswith("HEARTBEAT_TTL must be at least three times")
    assert hint == "A worker that misses one beat must not be taken for dead."


def test_times_without_zones_are_e002() -> None:
    with override_settings(USE_TZ=False):
        assert told(check_options()) == [
            (
                "jobqueue.E002",
                "USE_TZ is False; django_jobqueue compares moments, not wall clocks.",
                "Set USE_TZ = True. TIME_ZONE still chooses what people see.",
            )
        ]


def test_unknown_database_is_e003() -> None:
    with override_settings(JOBQUEUE={"DATABASE": "jobs"}):
        assert told(check_options()) == [
            (
                "jobqueue.E003",
                "JOBQUEUE['DATABASE'] is 'jobs', which DATABASES lacks.",
                "DATABASES has 'default', 'business'.",
            )
        ]


def test_two_handlers_of_one_name_are_e010() -> None:
    @job("checks.twice")
    def first() -> None: ...

    @job("checks.twice")
    def second() -> None: ...

    place = f"{__name__}.test_two_handlers_of_one_name_are_e010.<locals>"
    assert told(check_handlers()) == [
        (
            "jobqueue.E010",
            f"Two handlers are named 'checks.twice': {place}.first and {place}.second.",
            "Rename one: @job('another.name').",
        )
    ]


def test_unknown_database_of_a_handler_is_e011() -> None:
    @job("checks.databases", databases=["default", "elsewhere"])
    def scattered() -> None: ...

    assert told(check_handlers()) == [
        (
            "jobqueue.E011",
            "The handler 'checks.databases' names the database 'elsewhere', which "
            "DATABASES lacks.",
            "Correct databases=… or DATABASES.",
        )
    ]


@pytest.mark.django_db(databases=["default", "business"])
@pytest.mark.parametrize("flags", [{}, {"tags": ["jobqueue"]}])
def test_manage_py_check_fails_on_an_error(flags: dict[str, Any]) -> None:
    with (
        override_settings(JOBQUEUE={"CONCURENCY": 1}),
        pytest.raises(SystemCheckError, match=r"jobqueue\.E001"),
    ):
        call_command("check", **flags)


# --- databases


class _Elsewhere:
    """A router that sends our models to another database."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "business" if model._meta.app_label == "jobqueue" else None


class _Splitting:
    """A router that keeps some of our tables out of the jobs' database."""

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        if app_label != "jobqueue" or model_name not in {"deadjob", "attempt"}:
            return None
        return db == "business"


class _Silent:
    """A router that has nothing to say of writes."""


def test_pool_smaller_than_concurrency_is_w004(monkeypatch: pytest.MonkeyPatch) -> None:
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "pool", {"min_size": 1, "max_size": 3})
    assert told(check_pool()) == [
        (
            "jobqueue.W004",
            "The pool of the database 'default' has 3 connections, and a worker runs "
            "10 jobs at a time.",
            "runworker will lower its concurrency to 3. Raise "
            "OPTIONS['pool']['max_size'], or lower JOBQUEUE['CONCURRENCY'].",
        )
    ]
    with override_settings(JOBQUEUE={"CONCURRENCY": 3}):
        assert check_pool() == []


@pytest.mark.parametrize(
    ("pool", "size"),
    [
        ({}, None),
        (False, None),
        (True, 4),
        ({"min_size": 2}, 2),
        ({"min_size": 2, "max_size": None}, 2),
        ({"max_size": 8}, 8),
    ],
)
def test_size_of_a_pool_is_that_of_psycopg(
    pool: Any, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "pool", pool)
    assert find_pool_size("default") == size


def pretend(monkeypatch: pytest.MonkeyPatch, vendor: str, *, can_skip: bool) -> None:
    """Put a database of another kind in the place of `default`."""
    features = SimpleNamespace(has_select_for_update_skip_locked=can_skip)
    database = SimpleNamespace(vendor=vendor, display_name="MySQL", features=features)
    monkeypatch.setattr(databases, "connections", {"default": database})


def test_database_without_skip_locked_is_e005(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "mysql", can_skip=False)
    [(code, message, hint)] = told(check_database(databases=["default"]))
    assert code == "jobqueue.E005"
    assert message.startswith("The database 'default' (MySQL) has no SELECT … FOR")
    assert "JOBQUEUE['DATABASE'] names the alias" in str(hint)


@pytest.mark.parametrize(
    ("vendor", "can_skip", "asked"),
    [
        ("mysql", True, ["default"]),
        ("sqlite", False, ["default"]),
        ("mysql", False, ["business"]),
        ("mysql", False, None),
    ],
    ids=["has it", "needs none", "of another database", "without databases="],
)
def test_database_is_asked_only_where_it_matters(
    vendor: str,
    can_skip: bool,
    asked: list[str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, vendor, can_skip=can_skip)
    assert check_database(databases=asked) == []


@pytest.mark.django_db
def test_our_own_database_passes_the_check_that_connects() -> None:
    found = run_checks(tags=["database"], databases=["default"])
    assert [message for message in found if str(message.id).startswith("jobq")] == []


def make_sqlite(
    monkeypatch: pytest.MonkeyPatch, path: Path | str, **options: str
) -> None:
    """Put an SQLite file in the place of `default`."""
    database = SimpleNamespace(
        vendor="sqlite", settings_dict={"NAME": path, "OPTIONS": options}
    )
    monkeypatch.setattr(databases, "connections", {"default": database})


def make_file(path: Path, journal: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("CREATE TABLE one (id)")
    return path


@pytest.mark.parametrize("journal", ["delete", None])
def test_sqlite_without_wal_is_w006(
    journal: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "db.sqlite3"
    if journal is not None:
        make_file(path, journal)
    make_sqlite(monkeypatch, path, init_command="PRAGMA synchronous=NORMAL")
    [(code, message, hint)] = told(check_journal())
    assert code == "jobqueue.W006"
    assert message.startswith("The SQLite database 'default' has no write-ahead log")
    assert "PRAGMA journal_mode=WAL" in str(hint)


def test_sqlite_with_wal_passes_whoever_switched_it_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = tmp_path / "none.sqlite3"
    make_sqlite(monkeypatch, missing, init_command="pragma journal_mode = 'wal';")
    assert check_journal() == []
    make_sqlite(monkeypatch, make_file(tmp_path / "db.sqlite3", "wal"))
    assert check_journal() == []
    make_sqlite(monkeypatch, ":memory:")
    assert check_journal() == []


def test_journal_is_looked_at_with_deploy_only() -> None:
    def is_registered(**flags: bool) -> bool:
        return check_journal in check_registry.get_checks(**flags)

    assert is_registered(include_deployment_checks=True)
    assert not is_registered(include_deployment_checks=False)


def route(monkeypatch: pytest.MonkeyPatch, *routers: Any) -> None:
    monkeypatch.setattr(router, "routers", list(routers))


def test_router_that_splits_our_tables_is_e007(monkeypatch: pytest.MonkeyPatch) -> None:
    route(monkeypatch, _Splitting())
    assert told(check_routers()) == [
        (
            "jobqueue.E007",
            "DATABASE_ROUTERS keep tables of django_jobqueue out of the database "
            "'default': Attempt, DeadJob.",
            "Let allow_migrate('default', 'jobqueue') return True or None: all tables "
            "must be where JOBQUEUE['DATABASE'] says.",
        )
    ]


def test_router_that_points_elsewhere_is_w008(monkeypatch: pytest.MonkeyPatch) -> None:
    route(monkeypatch, _Silent(), _Elsewhere())
    [(code, message, hint)] = told(check_routers())
    assert code == "jobqueue.W008"
    assert message.startswith(
        "The router _Elsewhere sends writes elsewhere than JOBQUEUE['DATABASE'], "
        "which is 'default': "
    )
    assert "Job to 'business'" in message
    assert "return 'default' or None" in str(hint)


def test_router_that_points_to_the_jobs_database_is_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    route(monkeypatch, _Elsewhere())
    with override_settings(JOBQUEUE={"DATABASE": "business"}):
        assert check_routers() == []


@pytest.mark.parametrize("check", [check_pool, check_journal, check_routers])
def test_unknown_database_is_reported_once(check: Any) -> None:
    with override_settings(JOBQUEUE={"DATABASE": "jobs"}):
        assert check() == []


# --- handlers and middleware


def test_atomic_with_several_databases_is_w012() -> None:
    @job("checks.atomic", atomic=True, databases=["business", "default"])
    def both() -> None: ...

    assert told(check_handlers()) == [
        (
            "jobqueue.W012",
            "The handler 'checks.atomic' is atomic and writes to 'business' too, but "
            "only what it writes to 'default', where the jobs are, is there exactly "
            "once.",
            "'default' commits last: after a crash in between, the job runs again. See "
            "that its writes to 'business' may be repeated, then silence this.",
        )
    ]


def test_atomic_with_the_jobs_database_alone_is_fine() -> None:
    @job("checks.atomic", atomic=True, databases=["default"])
    def one() -> None: ...

    assert check_handlers() == []


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("tests.nowhere.set_tenant", "No module named 'tests.nowhere'"),
        (f"{MIDDLEWARE}.nobody", "does not define a"),
        (f"{MIDDLEWARE}.not_callable", "must be a function or class"),
    ],
)
def test_middleware_that_is_not_there_is_e030(path: str, part: str) -> None:
    with override_settings(JOBQUEUE={"MIDDLEWARE": [path]}):
        [(code, message, _)] = told(check_middleware())
    assert code == "jobqueue.E030"
    assert path in message
    assert part in message


@pytest.mark.parametrize(
    ("name", "kind"), [("only_sync", "async"), ("only_async", "sync")]
)
def test_middleware_that_does_not_fit_a_handler_is_e031(name: str, kind: str) -> None:
    with override_settings(JOBQUEUE={"MIDDLEWARE": [f"{MIDDLEWARE}.{name}"]}):
        [(code, message, hint)] = told(check_middleware())
    assert code == "jobqueue.E031"
    assert message.startswith(
        f"The middleware '{MIDDLEWARE}.{name}' cannot run around {kind} handlers, such "
        f"as '"
    )
    assert "sync_and_async_middleware" in str(hint)


def test_middleware_for_both_is_fine() -> None:
    with override_settings(JOBQUEUE={"MIDDLEWARE": [f"{MIDDLEWARE}.outer"]}):
        assert check_middleware() == []


@pytest.mark.parametrize("value", ["set_tenant", 3, [3], {"a.b": 1}])
def test_middleware_of_the_wrong_type_is_e001(value: Any) -> None:
    with override_settings(JOBQUEUE={"MIDDLEWARE": value}):
        [(code, message, _)] = told(check_options())
    assert code == "jobqueue.E001"
    assert "a list of dotted paths such as 'shop.middleware.set_language'" in message


def test_queues_that_are_all_excluded_are_e001() -> None:
    given = {"QUEUES": ["mail", "low"], "EXCLUDE_QUEUES": ["low", "mail", "x"]}
    with override_settings(JOBQUEUE=given):
        [(code, message, _)] = told(check_options())
    assert code == "jobqueue.E001"
    assert message == "EXCLUDE_QUEUES leaves nothing of QUEUES to serve: low, mail."
    with override_settings(JOBQUEUE={**given, "EXCLUDE_QUEUES": ["low"]}):
        assert check_options() == []


# --- the rest of the project


def test_foreign_keys_to_our_tables_are_e013(monkeypatch: pytest.MonkeyPatch) -> None:
    with isolate_apps("tests.testapp") as isolated:

        class Invoice(models.Model):  # noqa: DJ008
            job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="+")
            dead = models.OneToOneField(
                DeadJob,
                on_delete=models.SET_NULL,
                null=True,
                db_constraint=False,
                related_name="+",
            )
            job_id_only = models.UUIDField(null=True)

            class Meta:
                app_label = "testapp"

        class Group(models.Model):  # noqa: DJ008
            jobs = models.ManyToManyField(Job, related_name="+")
            invoices = models.ManyToManyField(Invoice, related_name="+")

            class Meta:
                app_label = "testapp"

    monkeypatch.setattr(project, "apps", isolated)
    found = check_foreign_keys()
    assert {message.id for message in found} == {"jobqueue.E013"}
    assert sorted(message.msg.partition(" is ")[0] for message in found) == [
        "testapp.Group_jobs.job",
        "testapp.Invoice.dead",
        "testapp.Invoice.job",
    ]
    assert "Keep the id: models.UUIDField" in str(found[0].hint)


class _Channels(BaseCommand):
    """A `runworker` of somebody else."""


class _Extended(RunWorker):
    """A project's own `runworker`, made of ours."""


def test_runworker_of_another_app_is_w014(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {"runworker": "channels"}
    monkeypatch.setattr(project, "get_commands", lambda: commands)
    monkeypatch.setattr(project, "load_command_class", lambda *_: _Channels())
    assert told(check_command()) == [
        (
            "jobqueue.W014",
            "manage.py runworker is a command of 'channels', not of django_jobqueue.",
            "Put 'django_jobqueue' above 'channels' in INSTALLED_APPS, or start "
            "workers with: manage.py jobqueue worker",
        )
    ]


@pytest.mark.parametrize("is_loaded", [False, True])
def test_runworker_that_extends_ours_is_fine(
    is_loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = {"runworker": _Extended() if is_loaded else "shop"}
    monkeypatch.setattr(project, "get_commands", lambda: commands)
    monkeypatch.setattr(project, "load_command_class", lambda *_: _Extended())
    assert check_command() == []


def test_a_child_does_not_repeat_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(JOBQUEUE={"CONCURENCY": 1}):
        with pytest.raises(SystemCheckError):
            RunWorker().check(tags=["jobqueue"])
        monkeypatch.setenv("JOBQUEUE_CHILD", "{}")
        RunWorker().check(tags=["jobqueue"])


# --- whole projects

FAULTS = """
INSTALLED_APPS = ["rival", *INSTALLED_APPS, "django_jobqueue"]
USE_TZ = False
DATABASES["other"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
DATABASE_ROUTERS = ["rival.routers.Elsewhere"]
JOBQUEUE = {"CONCURENCY": 3, "MIDDLEWARE": ["rival.nothing", "rival.jobs.only_sync"]}
"""
ROUTERS = """
class Elsewhere:
    def db_for_write(self, model, **hints):
        return "other"

    def allow_migrate(self, db, app_label, **hints):
        return app_label != "jobqueue"
"""
RIVAL_COMMAND = """
from django.core.management import BaseCommand


class Command(BaseCommand):
    pass
"""
RIVAL_MODELS = """
from django.db import models


class Invoice(models.Model):
    job = models.ForeignKey("jobqueue.Job", models.CASCADE)
"""
RIVAL_JOBS = """
from django_jobqueue import job


def only_sync(call_next):
    return call_next


@job("rival.same", atomic=True, databases=["default", "other"])
def one(): ...


@job("rival.same")
def two(): ...


@job(databases=["nowhere"])
def three(): ...


@job
async def four(): ...
"""


def run_check(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "manage.py", "check", *flags],
        cwd=directory,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
def test_a_fresh_project_has_no_faults_and_a_bad_one_is_told_all_of_them(
    tmp_path: Path,
) -> None:
    call_command("startproject", "mysite", str(tmp_path))
    settings_file = tmp_path / "mysite" / "settings.py"
    fresh = settings_file.read_text()
    settings_file.write_text(fresh + '\nINSTALLED_APPS += ["django_jobqueue"]\n')
    done = run_check(tmp_path, "--fail-level", "DEBUG")
    assert (done.returncode, "no issues" in done.stdout) == (0, True), done.stderr

    settings_file.write_text(fresh + FAULTS)
    rival = tmp_path / "rival"
    (rival / "management" / "commands").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "jobs.py": RIVAL_JOBS,
        "models.py": RIVAL_MODELS,
        "routers.py": ROUTERS,
        "management/__init__.py": "",
        "management/commands/__init__.py": "",
        "management/commands/runworker.py": RIVAL_COMMAND,
    }.items():
        (rival / name).write_text(text)
    done = run_check(tmp_path, "--deploy", "--tag", "jobqueue")
    assert done.returncode == 1
    assert sorted(set(re.findall(r"jobqueue\.\w\d+", done.stderr))) == [
        "jobqueue.E001",
        "jobqueue.E002",
        "jobqueue.E007",
        "jobqueue.E010",
        "jobqueue.E011",
        "jobqueue.E013",
        "jobqueue.E030",
        "jobqueue.E031",
        "jobqueue.W006",
        "jobqueue.W008",
        "jobqueue.W012",
        "jobqueue.W014",
    ]
    assert "Did you mean 'CONCURRENCY'?" in done.stderr
