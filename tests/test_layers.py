"""The layers of the package: imports point downwards and form no circle, and shared rooms know no system.

Every import counts: at the top of a file, inside a function, and for type checkers alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

from surefoot._core.registry import SYSTEMS
from surefoot_check.systems import SYSTEMS as CHECKED

SRC = Path(__file__).resolve().parents[1] / "src"
ROOMS = (
    "_two_layer",
    "_linear_resnet",
    "_implicit",
    "_feed_forward",
    "_step_sizes",
    "_inverse",
    "_orthogonal",
    "_deconvolution",
)
"""One a system, ``_orthogonal`` for the learned SVD."""
FOLDERS = tuple(name.replace("-", "_") for name in CHECKED)
"""Of the checker, one a system."""
OTHER_FORMATS = ("surefoot_check.holdout",)
"""Of the checker, formats of certificates that are of no system; they may use the problems of one."""
FRAME = ("command", "report")
"""Modules of a room whose names start so are parts of program and reports: these find them by name, and nothing else does."""
LAYERS = {
    "the program": ("surefoot.__main__", "surefoot.cli"),
    "its commands": (
        "surefoot._cli",
        "surefoot.extending.command",
        *(f"surefoot.{room}.{name}" for room in (*ROOMS, "_layers", "_holdout") for name in FRAME),
    ),
    "experiments": ("surefoot_experiments",),
    "reports": ("surefoot._report", "surefoot.extending.report"),
    "public names, and the list of systems": ("surefoot",),
    "estimators": ("surefoot._estimators",),
    "certificates of solvers": ("surefoot._holdout",),
    "systems": (*(f"surefoot.{room}" for room in ROOMS), "surefoot._layers"),
    "solvers without a system": ("surefoot._lasso", "surefoot._logistic.solver", "surefoot._equilibrium"),
    "training, batches of problems": ("surefoot._learning", "surefoot._problems", "surefoot._logistic"),
    "linear algebra, data": ("surefoot._linalg", "surefoot._data"),
    "core": ("surefoot._core",),
    "the checker's program": ("surefoot_check.__main__",),
    "the checker's work, and its lists": ("surefoot_check", "surefoot_check.step_sizes.layers"),
    "its systems": tuple(f"surefoot_check.{folder}" for folder in FOLDERS),
    "what those are made of": tuple(
        f"surefoot_check.{name}"
        for name in (
            *("system", "descent", "linear_maps", "minibatch", "near_a_fit"),
            *("completion", "problems", "statement", "numbers", "arrays"),
        )
    ),
    "trusted arithmetic": ("surefoot_check.rigor",),
}
"""From the top. A module belongs to the longest entry that its name starts with; it imports its own layer and those below."""
SHARED = (
    *(f"surefoot.{room}" for room in ("_core", "_data", "_linalg", "_learning", "_report", "_cli")),
    "surefoot.cli",
    "surefoot_check",
)
"""They import no room and name no system, apart from the rooms and the lists inside ``surefoot_check``."""
LISTS = {"surefoot_check.systems", "surefoot_check.formats", "surefoot._report.formats"}
"""Of systems, and of the formats of other certificates and their reports, by which their rooms are found."""


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


def _imported(name: str, file: Path, known: Collection[str]) -> Iterator[str]:
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
    entries = enumerate(LAYERS.values())
    fits = [(len(entry), index) for index, layer in entries for entry in layer if _within(module, entry)]
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
    """The system's room that a module is in, in the library or in the checker, by the checker's name for it; empty for others."""
    package, _, inner = module.partition(".")
    name = inner.partition(".")[0]
    if (package, name) in {("surefoot", room) for room in ROOMS} | {("surefoot_check", folder) for folder in FOLDERS}:
        return name.removeprefix("_")
    return ""


def shared(module: str) -> bool:
    """Whether a module is of a shared room."""
    inside = any(_within(module, entry) for entry in SHARED) and not any(_within(module, x) for x in OTHER_FORMATS)
    return inside and not room(module) and module not in LISTS


def rooms_crossed() -> list[tuple[str, str]]:
    """Imports of a room by a shared room, or by the room of another system."""
    found = imports().items()
    return [(a, b) for a, names in found for b in names if room(b) and (shared(a) or room(a) not in ("", room(b)))]


def test_imports_point_downwards() -> None:
    upwards = [(a, b) for a, found in imports().items() for b in found if layer(b) < layer(a)]
    assert not upwards


def test_no_shared_room_imports_a_room_and_no_room_another() -> None:
    assert rooms_crossed() == []


def test_no_circles() -> None:
    assert circles() == set()


def test_every_entry_of_the_lists_is_needed() -> None:
    modules = _modules()
    layers = [entry for layer in LAYERS.values() for entry in layer if entry.rsplit(".", 1)[-1] not in FRAME]
    unused = [
        entry for entry in (*layers, *SHARED, *OTHER_FORMATS) if not any(_within(name, entry) for name in modules)
    ]
    assert unused == []
    assert {f"surefoot.{room}" for room in ROOMS} <= {type(system).__module__.rpartition(".")[0] for system in SYSTEMS}


def test_a_circle_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = dict(imports())
    graph["surefoot_check.statement"] |= {"surefoot._core.claims"}  # which imports it
    monkeypatch.setitem(globals(), "imports", lambda: graph)
    assert any({"surefoot_check.statement", "surefoot._core.claims"} <= circle for circle in circles())
    with pytest.raises(AssertionError):
        test_imports_point_downwards()


WORDS = {"implicit", "inverse", "svd", "step_sizes"}
"""What systems are called, and other things too: ways to differentiate, matrices, properties of a run."""


def named(file: Path) -> list[str]:
    """The systems that a module's strings and names speak of, docstrings and comments left out.

    A name counts anywhere in a string; one that other things have too, only as the whole of it, before the slash of a theorem,
    and after a command.
    """
    own = "|".join(s.name for s in SYSTEMS if s.name not in WORDS)
    common = "|".join(s.name for s in SYSTEMS if s.name in WORDS)
    said = re.compile(rf"\b({own})\b|^_?({common})$|\b({common})/[a-z]|\b(certify|train) ({common})\b")
    variables = re.compile(
        "|".join({rf"^_?{s.name.replace('-', '_')}$" for s in SYSTEMS} - {f"^_?{w}$" for w in WORDS})
    )
    classes = re.compile("|".join(s.network_name.rsplit(".", 1)[-1] for s in SYSTEMS))
    tree = ast.parse(file.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            found += [node.value] if said.search(node.value) or classes.search(node.value) else []
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            found += [name] if classes.search(name) or variables.search(name) else []
    return found


def test_shared_rooms_name_no_system() -> None:
    other = "surefoot._linalg"  # where an inverse is a matrix's, and implicit a way to differentiate
    asked = {m: file for m, file in _modules().items() if shared(m) and not m.startswith(other)}
    said = {module: named(file) for module, file in asked.items()}
    assert {module: found for module, found in said.items() if found} == {}


def test_a_name_would_be_found(tmp_path: Path) -> None:
    file = tmp_path / "shared.py"
    file.write_text('"""About two-layer networks."""\nif system == "two-layer":\n    theorem = "inverse/order"\n')
    assert named(file) == ["two-layer", "inverse/order"]
    file.write_text(
        'help = "of deconvolution and implicit networks", "surefoot train svd", "the inverse"\nStepSizeNet(two_layer)\n'
    )
    assert named(file) == [
        "of deconvolution and implicit networks",
        "surefoot train svd",
        "StepSizeNet",
        "two_layer",
    ]
