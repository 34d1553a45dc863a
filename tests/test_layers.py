"""The layers of the package, read from its source: which module may import which.

A module imports from its own layer and from those below. The thin public methods on
models and handlers import their transition inside the function. These are the only
upward imports, listed here by name. Raw SQL is in lifecycle/ and storage/ only.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

PACKAGE = Path(__file__).parent.parent / "django_jobqueue"
MODULES = sorted(PACKAGE.rglob("*.py"))

LAYERS = [
    {"exceptions", "states", "failures", "suggestions", "log_events"}
    | {"database_errors"},
    {"options"},
    {"backoff", "outcomes", "signals", "job_log", "payloads", "context", "joboptions"}
    | {"arguments"},
    {"discovery", "handlers", "middleware", "models", "registry"},
    {"storage"},
    {"lifecycle"},
    {"scheduling", "limits", "composition", "observing", "queue_numbers", "stats"},
    {"worker"},
    {"backend", "admin", "testing", "checks", "apps", "migrations"}
    | {"management", "cli"},
    {"__init__"},
]
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names}

# (module, imported module): inside a function, never at the top of a module.
UPWARD_IMPORTS = {
    ("handlers", "storage.new_jobs"),
    ("models.dead_job", "lifecycle.requeue"),
    ("models.job", "lifecycle.cancel"),
    ("models.job", "lifecycle.reschedule"),
    ("models.job", "lifecycle.enqueue"),
    ("models.job", "lifecycle.enqueue_again"),
    ("models.job", "lifecycle.enqueue_many"),
    ("models.job", "storage.new_jobs"),
    ("models.job", "storage.wait"),
    ("worker.running.prepare", "backend.handler"),
}

VAGUE_NAMES = {"utils", "helpers", "common", "manager", "base", "types"}
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|COPY)\s")


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"


def layer_of(module: str) -> int:
    return LAYER_OF[module.partition(".")[0]]


def is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imported_modules(path: Path, node: ast.AST) -> Iterator[str]:
    """Yield the modules of the package that an import statement imports."""
    found: list[str] = []
    if isinstance(node, ast.Import):
        found = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        package = [PACKAGE.name, *path.relative_to(PACKAGE).parts[:-1]]
        start = package[: len(package) - node.level + 1] if node.level else []
        source = ".".join([*start, *filter(None, [node.module])])
        found = [f"{source}.{alias.name}" for alias in node.names]
    for name in found:
        root, _, rest = name.partition(".")
        if root != PACKAGE.name:
            continue
        # `from .models import Job` imports a name from a module, not a module.
        while rest and not is_module(rest):
            rest = rest.rpartition(".")[0]
        if rest or not name.endswith("__version__"):
            yield rest or "__init__"


def imports(
    path: Path, node: ast.AST, *, is_inside: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield each imported module and whether the import is inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        for module in imported_modules(path, child):
            yield module, is_inside
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from imports(path, child, is_inside=is_inside or function)


def upward_imports(path: Path) -> Iterator[tuple[str, str, bool]]:
    module = name_of(path)
    for imported, is_inside in imports(path, ast.parse(path.read_text())):
        if layer_of(imported) > layer_of(module):
            yield module, imported, is_inside


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_has_a_layer_and_a_specific_name(path: Path) -> None:
    assert name_of(path).partition(".")[0] in LAYER_OF, "give it a place in LAYERS"
    assert path.stem not in VAGUE_NAMES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_imports_only_from_its_layer_and_below(path: Path) -> None:
    assert [found for found in upward_imports(path) if not found[2]] == []


def test_upward_imports_inside_functions_are_the_listed_ones() -> None:
    found = {
        (module, imported)
        for path in MODULES
        for module, imported, is_inside in upward_imports(path)
        if is_inside
    }
    assert found == UPWARD_IMPORTS


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_raw_sql_is_in_lifecycle_and_storage_only(path: Path) -> None:
    if name_of(path).startswith(("lifecycle", "storage", "migrations")):
        return
    constants = (
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert [text for text in constants if SQL.match(text)] == []
