"""`manage.py check` in a fresh project and in one with every fault."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from tests.processes import ROOT

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
def test_a_fresh_project_passes_and_a_bad_one_gets_every_message(
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
