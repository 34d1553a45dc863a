"""The reading path in docs/design/reading-the-code.md is valid and short.

A stop lists files to read: `file.py` stands for the whole file,
`file.py`: `function`, `Class.method` for these only.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_layers import LAYERS, PACKAGE

pytestmark = pytest.mark.once

PAGE = PACKAGE.parent / "docs" / "design" / "reading-the-code.md"
STOPS = 12
MAX_LINES = 3000

STOP = re.compile(r"^### (\d+)\. (.+)$", re.MULTILINE)
ITEM = re.compile(r"^- `([\w/]+\.py)`(?::((?:\s+`[\w.]+`,?)+))?", re.MULTILINE)
NAME = re.compile(r"`([\w.]+)`")


@dataclass(frozen=True, slots=True)
class Item:
    """One file of a stop, with the names to read in it; none: the whole file."""

    stop: int
    path: str
    names: tuple[str, ...]


def read_stops() -> dict[int, str]:
    parts = STOP.split(PAGE.read_text())[1:]
    texts = [re.split(r"^## ", text, flags=re.MULTILINE)[0] for text in parts[2::3]]
    return dict(zip(map(int, parts[::3]), texts, strict=True))


def list_items() -> list[Item]:
    return [
        Item(number, path, tuple(NAME.findall(names)))
        for number, text in read_stops().items()
        for path, names in ITEM.findall(text)
    ]


def count_lines(item: Item) -> int:
    source = (PACKAGE / item.path).read_text()
    if not item.names:
        return source.count("\n")
    found = find_definitions(ast.parse(source))
    return sum(found[name] for name in item.names)


def find_definitions(tree: ast.Module) -> dict[str, int]:
    """Return {"function" or "Class.method" or "CONSTANT": number of lines}."""
    found = {}
    for node in tree.body:
        for name in _list_names(node):
            found[name] = _measure(node)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{name}": _measure(part)
                for part in node.body
                for name in _list_names(part)
            }
    return found


def _list_names(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [each.id for each in node.targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _measure(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_there_are_twelve_stops_and_each_names_something_to_read() -> None:
    assert list(read_stops()) == list(range(1, STOPS + 1))
    assert {item.stop for item in list_items()} == set(range(1, STOPS + 1))


@pytest.mark.parametrize("item", list_items(), ids=lambda item: item.path)
def test_every_named_file_and_definition_exists(item: Item) -> None:
    assert (PACKAGE / item.path).is_file()
    found = find_definitions(ast.parse((PACKAGE / item.path).read_text()))
    assert [name for name in item.names if name not in found] == []


def test_the_path_is_short_enough_for_one_sitting() -> None:
    lines = sum(count_lines(item) for item in list_items())
    assert lines <= MAX_LINES, f"the reading path has {lines} lines"


def test_every_module_mentioned_anywhere_on_the_page_exists() -> None:
    for path in re.findall(r"`([\w/]+(?:\.py|/))`", PAGE.read_text()):
        roots = (PACKAGE, PACKAGE.parent)
        assert any((root / path).exists() for root in roots), path


def test_the_layer_table_lists_every_module() -> None:
    text = PAGE.read_text().partition("## Layers")[2].partition("\n## ")[0]
    documented = [set(NAME.findall(row)) for row in text.splitlines() if "| `" in row]
    existing = {
        path.stem
        for path in [*PACKAGE.glob("*.py"), *map(Path.absolute, PACKAGE.iterdir())]
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    expected = [names & existing - {"__init__"} for names in LAYERS]
    assert documented == [names for names in expected if names]
