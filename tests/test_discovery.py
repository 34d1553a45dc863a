"""Handlers that no worker would import: the warning, the check, and their texts."""

import importlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import modify_settings

from django_jobqueue import discovery
from django_jobqueue.checks import check_installed_apps, installed_apps
from tests.processes import ROOT

JOB = "from django_jobqueue import job\n\n\n@job\ndef greet(name): ...\n"
TASK = "from django.tasks import task\n\n\n@task\ndef greet(name): ...\n"

pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an importable folder that the check treats as the project's code."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(installed_apps, "find_project_folder", lambda: tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    discovery.unreachable.clear()


def write(folder: Path, path: str, text: str = JOB) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    for parent in file.relative_to(folder).parents:
        if parent != Path():
            (folder / parent / "__init__.py").touch()
    file.write_text(text)


def reported() -> list[str]:
    found = check_installed_apps()
    assert {message.id for message in found} <= {"jobqueue.W015"}
    return [message.msg for message in found]


def test_job_outside_of_every_installed_app_warns_at_its_own_line(
    project: Path,
) -> None:
    write(project, "forgotten/jobs.py")
    with pytest.warns(RuntimeWarning) as caught:
        importlib.import_module("forgotten.jobs")
    [warning] = caught
    assert str(warning.message) == (
        "The handler 'forgotten.jobs.greet' is in forgotten.jobs, which belongs to no "
        "app in INSTALLED_APPS: workers would not find it. Add 'forgotten' to "
        "INSTALLED_APPS."
    )
    assert warning.filename == str(project / "forgotten" / "jobs.py")
    assert JOB.splitlines()[warning.lineno - 1] == "@job"


def test_job_with_a_name_warns_too(project: Path) -> None:
    write(project, "named/jobs.py", JOB.replace("@job", "@job('any.name')"))
    with pytest.warns(RuntimeWarning, match=r"The handler 'any\.name' is in named"):
        importlib.import_module("named.jobs")


def test_job_of_an_app_in_a_module_that_workers_do_not_import_warns(
    project: Path,
) -> None:
    write(project, "jq_shop/views.py")
    with (
        modify_settings(INSTALLED_APPS={"append": "jq_shop"}),
        pytest.warns(RuntimeWarning) as caught,
    ):
        importlib.import_module("jq_shop.views")
    assert str(caught[0].message) == (
        "The handler 'jq_shop.greet' is in jq_shop.views, which workers do not import: "
        "they would not find it. Move it to jq_shop.jobs, or import it there."
    )


@pytest.mark.parametrize("path", ["jobs.py", "jobs/mail.py", "tasks.py"])
def test_job_that_workers_import_does_not_warn(project: Path, path: str) -> None:
    write(project, f"jq_good/{path}")
    module = f"jq_good.{path.removesuffix('.py').replace('/', '.')}"
    with modify_settings(INSTALLED_APPS={"append": "jq_good"}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            importlib.import_module(module)
        assert reported() == []


@pytest.mark.parametrize("path", ["somewhere/tests/jobs.py", "test_somewhere.py"])
def test_job_of_a_test_module_does_not_warn(project: Path, path: str) -> None:
    write(project, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.import_module(path.removesuffix(".py").replace("/", "."))


@pytest.mark.slow
def test_job_in_a_project_without_our_app_warns(tmp_path: Path) -> None:
    call_command("startproject", "mysite", str(tmp_path))
    write(tmp_path, "shop/jobs.py")
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "-c", "import shop.jobs"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Add 'django_jobqueue' to INSTALLED_APPS and run" in done.stderr


def test_check_finds_handlers_of_an_app_that_is_not_installed(project: Path) -> None:
    write(project, "forgotten/jobs.py")
    write(project, "forgotten/apps.py", "")
    write(project, "apps/deep/jobs/mail.py")
    write(project, "apps/deep/models.py", "")
    write(project, "plain/jobs.py", "# Not one of ours.\n")
    for elsewhere in ("node_modules/other", "second/shop", "venv/lib"):
        write(project, f"{elsewhere}/jobs.py")
        write(project, f"{elsewhere}/apps.py", "")
    write(project, "second/manage.py", "")
    write(project, "third/jobs.py")
    write(project, "third/models.py", "")
    write(project, "third/settings.py", "")
    (project / "venv" / "pyvenv.cfg").touch()
    assert reported() == [
        "apps.deep.jobs.mail has handlers, but belongs to no app in INSTALLED_APPS: "
        "workers would not find it. Add 'apps.deep' to INSTALLED_APPS.",
        "forgotten.jobs has handlers, but belongs to no app in INSTALLED_APPS: workers "
        "would not find it. Add 'forgotten' to INSTALLED_APPS.",
    ]
    assert "forgotten.jobs" not in sys.modules


def test_check_accepts_a_module_that_was_imported_at_the_start(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "shared/jobs.py")
    write(project, "shared/apps.py", "")
    with monkeypatch.context() as starting:
        starting.setattr(discovery.apps, "ready", False)
        importlib.import_module("shared.jobs")
    assert reported() == []


@pytest.mark.parametrize(
    ("backend", "count"),
    [
        ("django_jobqueue.backend.JobQueueBackend", 1),
        ("django.tasks.backends.dummy.DummyBackend", 0),
    ],
)
def test_check_finds_tasks_only_with_our_backend(
    project: Path, monkeypatch: pytest.MonkeyPatch, backend: str, count: int
) -> None:
    write(project, "forgotten/tasks.py", TASK)
    write(project, "forgotten/apps.py", "")
    monkeypatch.setattr(
        installed_apps.settings, "TASKS", {"default": {"BACKEND": backend}}
    )
    assert len(reported()) == count


@pytest.mark.slow
def test_forgotten_app_is_named_by_check_and_when_it_is_imported(
    tmp_path: Path,
) -> None:
    call_command("startproject", "mysite", str(tmp_path))
    settings = tmp_path / "mysite" / "settings.py"
    settings.write_text(
        settings.read_text() + '\nINSTALLED_APPS += ["django_jobqueue"]\n'
    )
    write(tmp_path, "shop/jobs.py")
    write(tmp_path, "shop/apps.py", "")
    write(tmp_path, "mysite/jobs.py")
    for command in (["check"], ["shell", "-c", "from shop.jobs import greet"]):
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=tmp_path,
            env={"PATH": "", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "Add 'shop' to INSTALLED_APPS." in done.stderr
        assert ("Add 'mysite' to" in done.stderr) == (command == ["check"])
