"""The layers of the package: imports point downwards and form no circle, and shared rooms know no system.

Every import counts: at the top of a file, inside a function, and for type checkers alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from surefoot._core.registry import SYSTEMS
from surefoot_check.systems import SYSTEMS as CHECKED

SRC = Path(__file__).resolve().parents[1] / "src"
ROOMS = ("_two_layer", "_linear_resnet", "_implicit", "_step_sizes", "_inverse", "_orthogonal", "_deconvolution")
"""One a system, ``_orthogonal`` for the learned SVD."""
FRAME = ("command", "report")
"""Modules of a room whose names start so are parts of program and reports: these find them by name, and nothing else does."""
LAYERS = (
    ("surefoot.__main__", "surefoot.cli"),
    ("surefoot._cli", *(f"surefoot.{room}.{name}" for room in ROOMS for name in FRAME)),
    ("surefoot_experiments",),
    ("surefoot._report",),
    ("surefoot",),  # public names and the list of systems
    tuple(f"surefoot.{room}" for room in ROOMS),
    ("surefoot._lasso", "surefoot._equilibrium"),
    ("surefoot._learning", "surefoot._problems"),
    ("surefoot._linalg", "surefoot._data"),
    ("surefoot._core",),
    ("surefoot_check",),
)
"""From the top: a module imports modules of its own layer and of those below."""
KNOWN_CIRCLES: tuple[set[str], ...] = ()
"""To become none: no other is allowed."""
SHARED = tuple(f"surefoot.{room}" for room in ("_core", "_data", "_linalg", "_learning", "_report", "_cli"))
KNOWN_PROGRAM = frozenset(
    f"surefoot._cli.{name}"
    for name in (
        *("inspection", "training"),
        "demo",  # a program about two-layer networks: this one may stay
    )
)
"""Modules of the program that still know a system. To become the demo alone: no other is allowed."""


def _modules() -> dict[str, Path]:
    return {_name(file): file for package in sorted(SRC.iterdir()) for file in sorted(package.rglob("*.py"))}


def _name(file: Path) -> str:
    parts = file.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports() -> dict[str, frozenset[str]]:
    """The modules of this distribution that each one names in an import."""
    modules = _modules()
    return {name: frozenset(_imported(name, file, modules.keys())) - {name} for name, file in modules.items()}


def _imported(name: str, file: Path, known: Iterator[str] | object) -> Iterator[str]:
    assert hasattr(known, "__contains__")
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
                parts = package[: len(package) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in known:
                    yield inner
                elif base in known:
                    yield base


def layer(module: str) -> int:
    """Index of the layer whose entry fits best: the longest."""
    fits = [(len(entry), index) for index, entries in enumerate(LAYERS) for entry in entries if _within(module, entry)]
    return max(fits)[1]


def _within(module: str, entry: str) -> bool:
    if entry.rsplit(".", 1)[-1] in FRAME:
        return module.startswith(entry)
    return module == entry or module.startswith(f"{entry}.")


def circles() -> set[frozenset[str]]:
    """Sets of modules that import each other, by way of others too."""
    graph = imports()
    below = {name: set(found) for name, found in graph.items()}
    changed = True
    while changed:
        changed = False
        for found in below.values():
            more = set().union(*(below[other] for other in found)) - found
            if more:
                found |= more
                changed = True
    return {
        frozenset(other for other in found if name in below[other]) for name, found in below.items() if name in found
    }


def room(module: str) -> str:
    """The system's room that a module is in; empty for others."""
    parts = module.split(".")
    return parts[1] if parts[0] == "surefoot" and len(parts) > 1 and parts[1] in ROOMS else ""


def shared(module: str) -> bool:
    """Whether a module is of a shared room, and none of those of the program that still know a system."""
    library = module.startswith(SHARED) and module not in KNOWN_PROGRAM
    checker = re.fullmatch(r"surefoot_check(\.rigor(\.\w+)?|\.\w+)?", module) is not None
    folders = {f"surefoot_check.{name.replace('-', '_')}" for name in CHECKED}
    return library or (checker and module not in folders | {"surefoot_check.systems"})


def test_imports_point_downwards() -> None:
    upwards = [(a, b) for a, found in imports().items() for b in found if layer(b) < layer(a)]
    assert not upwards


def test_no_shared_room_imports_a_room_and_no_room_another() -> None:
    folders = {name.replace("-", "_") for name in CHECKED}
    wrong = [
        (a, b)
        for a, found in imports().items()
        for b in found
        if (shared(a) and (room(b) or (b.startswith("surefoot_check.") and b.split(".")[1] in folders)))
        or (room(a) and room(b) and room(a) != room(b))
    ]
    assert not wrong


def test_no_circles_but_the_known_ones() -> None:
    assert [c for c in circles() if not any(c <= known for known in KNOWN_CIRCLES)] == []


def test_a_circle_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = dict(imports())
    graph["surefoot_check.statement"] |= {"surefoot._core.claims"}  # which imports it
    monkeypatch.setitem(globals(), "imports", lambda: graph)
    assert any({"surefoot_check.statement", "surefoot._core.claims"} <= circle for circle in circles())
    with pytest.raises(AssertionError):
        test_imports_point_downwards()


def named(module: str, file: Path) -> list[str]:
    """The systems that a module's strings and names speak of, docstrings and comments left out."""
    known = re.compile("|".join(rf"^{re.escape(s.name)}(/.*)?$|^_?{s.name.replace('-', '_')}$" for s in SYSTEMS))
    classes = re.compile("|".join(s.network_name.rsplit(".", 1)[-1] for s in SYSTEMS))
    tree = ast.parse(file.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            found += [node.value] if known.search(node.value) or classes.search(node.value) else []
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            found += [name] if classes.search(name) else []
    return found


def test_shared_rooms_name_no_system() -> None:
    other = "surefoot._linalg"  # where an inverse is a matrix's, and implicit a way to differentiate
    asked = {m: file for m, file in _modules().items() if shared(m) and not m.startswith(other)}
    said = {module: named(module, file) for module, file in asked.items()}
    assert {module: found for module, found in said.items() if found} == {}


def test_a_name_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "shared.py"
    file.write_text('"""About two-layer networks."""\nif system == "two-layer":\n    theorem = "inverse/order"\n')
    assert named("shared", file) == ["two-layer", "inverse/order"]
