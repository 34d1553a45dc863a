"""The examples on the pages: each imports the names it uses, and each runs.

Names are resolved in every block of every page. The blocks of the pages in RUN are
executed in a project with an app `shop` that has the handlers the pages mention.
`make test-quickstart` follows the steps of README.md and quickstart.md with real
commands.
"""

import ast
import builtins
import inspect
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_jobqueue import job, registry
from django_jobqueue.testing import eager_jobs
from tests.factories import make_dead_job, make_job
from tests.test_docs import PYTHON_BLOCKS

pytestmark = [pytest.mark.once, pytest.mark.django_db]

RUN = (
    "README.md",
    "docs/index.md",
    "docs/quickstart.md",
    "docs/guides/async.md",
    "docs/guides/enqueueing.md",
    "docs/guides/handlers.md",
    "docs/guides/middleware.md",
    "docs/guides/retries-and-dead-letters.md",
    "docs/guides/running-workers.md",
    "docs/reference/settings.md",
    "docs/reference/signals.md",
)
# Blocks that cannot be run here, with the reason.
NOT_RUN = {
    "docs/quickstart.md 3": "waits for a worker",
}
# Names that already exist in the file to which the reader adds the block.
OF_SETTINGS = {"INSTALLED_APPS": [], "DATABASES": {}, "BASE_DIR": Path("/srv/mysite")}
HANDLERS = [
    "call_webhook",
    "fetch_rates",
    "greet",
    "refresh_search",
    "send_newsletter",
    "send_receipt",
    "send_welcome",
]


def is_settings(text: str) -> bool:
    return text.startswith("# mysite/settings.py\n")


def unresolved(text: str) -> set[str]:
    """Return the names that a block reads but does not bind."""
    bound: set[str] = set()
    read: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {(each.asname or each.name).split(".")[0] for each in names}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bound.add(node.name)
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name):
                bound.add(name)
    return read - bound - set(dir(builtins))


@pytest.mark.parametrize(("name", "text"), PYTHON_BLOCKS)
def test_block_imports_what_it_uses(name: str, text: str) -> None:
    given = set(OF_SETTINGS) if is_settings(text) else set()
    assert unresolved(text) - given == set()


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the app of the pages; remove what the blocks register."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "duplicates", [])
    jobs, models = ModuleType("shop.jobs"), ModuleType("shop.models")
    for name in HANDLERS:

        @job(f"shop.{name}")
        def function(**kwargs: Any) -> str:
            return "done"

        setattr(jobs, name, function)
    create = SimpleNamespace(create=lambda **kwargs: SimpleNamespace(pk=1))
    vars(models)["Customer"] = SimpleNamespace(objects=create)
    requests = ModuleType("requests")
    vars(requests).update(ConnectionError=ConnectionError, Timeout=TimeoutError)
    for module in (ModuleType("shop"), jobs, models, requests):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def run(code: CodeType, namespace: dict[str, Any]) -> None:
    if code.co_flags & inspect.CO_COROUTINE:
        # A top-level `await` makes the code that of a coroutine function.
        async_to_sync(FunctionType(code, namespace))()
    else:
        exec(code, namespace)


BLOCKS_TO_RUN = [
    block
    for block in PYTHON_BLOCKS
    if str(block.id).startswith(RUN) and block.id not in NOT_RUN
]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(("name", "text"), BLOCKS_TO_RUN)
def test_block_runs(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_job()
    make_dead_job()
    make_dead_job(job_type="shop.fetch_rates")
    # Blocks set environment variables, as the files of a project do.
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    code = compile(
        text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    namespace = {"__name__": "tests.documented"}
    if is_settings(text):
        namespace |= OF_SETTINGS
    run(code, namespace)


def test_every_exception_names_a_block_that_exists() -> None:
    assert set(NOT_RUN) <= {str(block.id) for block in PYTHON_BLOCKS}


@pytest.mark.usefixtures("shop")
def test_handler_of_the_quickstart_returns_what_the_page_says() -> None:
    [text] = [
        block.values[1] for block in PYTHON_BLOCKS if block.id == "docs/quickstart.md 2"
    ]
    namespace: dict[str, Any] = {"__name__": "tests.documented"}
    exec(str(text), namespace)
    with eager_jobs():
        assert namespace["greet"].enqueue(name="Grace").result == "Hello Grace"
