"""`runworker --reload`: running jobs end, then the new code is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from django_jobqueue import Job
from django_jobqueue.models import Attempt
from tests.processes import WorkerProcess
from tests.testapp import leftover_jobs
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(240),
]
Env = dict[str, str]

CODE = """
def return_version(touch="", until=""):
    from tests.testapp.jobs import touch_and_wait

    touch_and_wait(touch, until)
    return {version!r}
"""


@pytest.fixture
def project(worker_env: Env, tmp_path: Path) -> tuple[Path, Env]:
    """Return a module of a project and the environment in which it is loaded."""
    package = tmp_path / "reloaded"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(CODE.format(version="old"))
    (tmp_path / "reloaded_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'reloaded']\n"
    )
    path = f"{tmp_path}{os.pathsep}{worker_env['PYTHONPATH']}"
    names = {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "reloaded_settings"}
    return package / "jobs.py", {**worker_env, **names}


def enqueue_version(**files: str) -> Job:
    return leftover_jobs.call_function.enqueue(
        path="reloaded.jobs.return_version", **files
    )


def test_reload_lets_a_running_job_end_and_goes_on_with_the_new_code(
    project: tuple[Path, Env], tmp_path: Path
) -> None:
    module, env = project
    started, end = tmp_path / "started", tmp_path / "end"
    long = enqueue_version(touch=str(started), until=str(end))
    # A reload waits for the job, although the shutdown timeout is 0.
    with WorkerProcess(env, "--reload", "--shutdown-timeout", "0") as worker:
        wait_until(started.exists)
        module.write_text(CODE.format(version="newer"))
        wait_until(lambda: worker.has_logged("worker drains"))
        waiting = enqueue_version()
        end.touch()
        done = long.wait(timeout=60)
        assert (done.result, done.attempts) == ("old", 1)
        assert waiting.wait(timeout=60).result == "newer"

        module.write_text("def broken(:\n")
        worker.wait_until_logged("the code cannot be loaded", "SyntaxError")
        module.write_text(CODE.format(version="the newest"))
        assert enqueue_version().wait(timeout=60).result == "the newest"
        assert worker.stop() == 0
    assert not Attempt.objects.exists()
