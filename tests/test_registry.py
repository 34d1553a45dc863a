"""The registry: look-ups, duplicates, and how workers find handlers."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import modify_settings

from django_jobqueue import job, registry
from django_jobqueue.exceptions import (
    UnknownJobType,
)
from django_jobqueue.handlers import Handler
from django_jobqueue.registry import (
    all_handlers,
    autodiscover,
    find_handler,
    get_handler,
)
from tests.testapp.jobs import add

pytestmark = pytest.mark.usefixtures("own_registry")


def test_unknown_job_type_suggests_the_closest_one() -> None:
    with pytest.raises(UnknownJobType) as caught:
        get_handler("testapp.ad")
    assert str(caught.value) == (
        "No handler is registered for the job type 'testapp.ad'. Did you mean "
        "'testapp.add'?"
    )


@pytest.mark.parametrize("name", ["zzzzzzzz", None, 5, ["z"]])
def test_unknown_job_type_without_a_close_match_says_where_handlers_are(
    name: Any,
) -> None:
    with pytest.raises(UnknownJobType) as caught:
        get_handler(name)
    assert str(caught.value) == (
        f"No handler is registered for the job type {name!r}. Handlers are found in "
        f"the `jobs` and `tasks` modules of the installed apps; is the app in "
        f"INSTALLED_APPS?"
    )


@pytest.mark.parametrize("name", [add, print], ids=["handler", "function"])
def test_code_in_place_of_a_job_type_points_to_enqueue_of_a_handler(name: Any) -> None:
    with pytest.raises(UnknownJobType, match=r"Call enqueue\(\) of a handler"):
        get_handler(name)


def test_find_handler_returns_none_for_an_unknown_name() -> None:
    assert find_handler("zzzzzzzz") is None


def test_all_handlers_are_listed_by_name() -> None:
    names = list(all_handlers())
    assert names == sorted(names)
    assert {"testapp.add", "testapp.email"} <= set(names)


def test_second_handler_of_a_name_is_recorded_and_the_first_stays() -> None:
    @job("handlers.twice")
    def first() -> None: ...

    @job("handlers.twice")
    def second() -> None: ...

    assert get_handler("handlers.twice") is first
    [(name, one, two)] = registry.duplicates
    assert name == "handlers.twice"
    assert one.endswith("first")
    assert two.endswith("second")


def test_module_imported_again_replaces_its_handlers() -> None:
    def define() -> Handler[..., Any]:
        @job("handlers.reloaded")
        def reloaded() -> None: ...

        return reloaded

    define()
    again = define()
    assert get_handler("handlers.reloaded") is again
    assert registry.duplicates == []


@pytest.fixture
def apps_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of apps; their modules are removed after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write_app(folder: Path, name: str, modules: dict[str, str]) -> None:
    """Write an app; each of its modules has one job with the given name."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    for path, job_name in modules.items():
        file = folder / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"from django_jobqueue import job\n@job({job_name!r})\ndef found(): ...\n"
        )


def discovered(*apps: str) -> set[str]:
    before = set(all_handlers())
    with modify_settings(INSTALLED_APPS={"append": list(apps)}):
        autodiscover()
    return set(all_handlers()) - before


def test_jobs_and_tasks_modules_are_found(apps_folder: Path) -> None:
    modules = {"jobs.py": "one", "tasks.py": "two", "other.py": "three"}
    write_app(apps_folder, "jq_modules", modules)
    assert discovered("jq_modules") == {"one", "two"}


def test_jobs_packages_are_found_recursively(apps_folder: Path) -> None:
    modules = {
        "jobs/__init__.py": "top",
        "jobs/mail.py": "mail",
        "jobs/reports/__init__.py": "reports",
        "jobs/reports/daily.py": "daily",
        "jobs/reports/deep/__init__.py": "deep",
        "jobs/reports/deep/down.py": "down",
        "tasks/__init__.py": "tasks",
        "tasks/more.py": "more",
    }
    write_app(apps_folder, "jq_packages", modules)
    assert discovered("jq_packages") == set(modules.values())


def test_app_without_jobs_is_skipped(apps_folder: Path) -> None:
    write_app(apps_folder, "jq_empty", {"other.py": "never"})
    assert discovered("jq_empty") == set()


@pytest.mark.parametrize("path", ["jobs.py", "jobs/__init__.py", "jobs/mail.py"])
def test_broken_module_is_not_skipped(apps_folder: Path, path: str) -> None:
    modules = {"jobs/__init__.py": "fine"} if path == "jobs/mail.py" else {}
    write_app(apps_folder, "jq_broken", modules)
    file = apps_folder / "jq_broken" / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("import no_such_module_anywhere\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        discovered("jq_broken")


def test_job_of_a_package_is_called_by_its_app(apps_folder: Path) -> None:
    write_app(apps_folder, "jq_label", {"jobs/__init__.py": "jq"})
    (apps_folder / "jq_label" / "jobs" / "mail.py").write_text(
        "from django_jobqueue import job\n@job\ndef send(): ...\n"
    )
    assert discovered("jq_label") == {"jq", "jq_label.send"}
