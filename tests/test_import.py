"""Importing surefoot is cheap, and the checker is independent of it: both hold in a fresh process."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

import surefoot
from surefoot._core.registry import SYSTEMS

HEAVY = {"PIL", "flint", "matplotlib", "numba", "pandas", "pywt", "rich", "scipy", "sklearn", "tyro"}


def run(program: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert result.returncode == 0, result.stderr
    return result.stdout


def loaded_by(*statements: str) -> list[set[str]]:
    """The top-level modules that a fresh interpreter holds after each of the statements."""
    program = ["import sys", "found = []"]
    for statement in statements:
        program += [statement, "found.append(list(sys.modules))"]
    program += ["import json", "print(json.dumps(found))"]
    return [{name.partition(".")[0] for name in names} for names in json.loads(run("\n".join(program)))]


def test_imports_load_no_heavy_module() -> None:
    alone, before, library, experiments = loaded_by(
        "import surefoot; surefoot.__version__, dir(surefoot), hasattr(surefoot, 'missing')",
        "import torch, numpy",
        "import surefoot as sf; [getattr(sf, name) for name in sf.__all__ if name != 'estimators']; import surefoot.extending",
        "import surefoot_experiments",
    )
    assert alone & {"torch", "numpy", "surefoot_check"} == set()
    assert "surefoot_check" in library - before and "surefoot_experiments" in experiments - library
    assert (experiments - before) & HEAVY == set()


def test_the_library_and_its_command_line_start_without_the_experiments() -> None:
    assert "surefoot_experiments" not in loaded_by("from surefoot import *; import surefoot.cli")[0]


def test_the_table_of_public_names_is_what_type_checkers_see() -> None:
    """Every name is listed, and is what the module for type checkers has; the table has nothing else."""
    body = ast.parse(Path(surefoot.__file__).read_text()).body
    (shown,) = (n for n in body if isinstance(n, ast.If) and isinstance(n.test, ast.Name))
    seen = defaultdict(list)
    for line in shown.body:
        assert isinstance(line, ast.ImportFrom)
        seen[line.module] += [alias.name for alias in line.names]
    modules = seen.pop(None)
    assert {module: tuple(names) for module, names in seen.items()} == surefoot._NAMES
    assert sorted([*sum(seen.values(), modules), "__version__"]) == sorted(surefoot.__all__) == sorted(dir(surefoot))
    for module, names in seen.items():
        for name in names:
            assert getattr(surefoot, name) is getattr(import_module(f"surefoot.{module}"), name)
    for name in modules:
        assert getattr(surefoot, name) is import_module(f"surefoot.{name}")
    with pytest.raises(AttributeError, match="module 'surefoot' has no attribute 'missing'"):
        _ = surefoot.missing  # pyright: ignore[reportAttributeAccessIssue]


FIRST_READS = """
import importlib, os, pkgutil, sys, threading
import surefoot as sf
from surefoot._two_layer.system import TwoLayerSystem

for module in pkgutil.iter_modules(sf.__path__):
    if module.name not in ("__main__", "cli", "systems"):
        importlib.import_module(f"surefoot.{module.name}")
from surefoot._core.plans import PLANS
from surefoot._core.registry import SYSTEMS

def by_threads_at_once():
    seen = []
    threads = [threading.Thread(target=lambda: seen.append((len(PLANS), len(SYSTEMS)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {(len(PLANS), len(SYSTEMS))} == set(seen)

def by_registering():
    try:
        sf.register(TwoLayerSystem())
    except ValueError as error:
        return "which is taken" in str(error)

def by_the_list():
    importlib.import_module("surefoot.systems")
    return len({system.name for system in SYSTEMS}) == len(SYSTEMS) > 0

ways = [by_threads_at_once, by_registering, by_the_list, lambda: "two-layer/drift" in PLANS, lambda: "sharp" in sf.steps.names()]
assert "surefoot.systems" not in sys.modules
for way in ways:
    child = os.fork()
    if not child:
        os._exit(0 if way() and isinstance(SYSTEMS[0], TwoLayerSystem) else 1)
    assert os.waitpid(child, 0)[1] == 0, way
print(*(system.name for system in SYSTEMS))
"""


def test_whatever_reads_the_list_of_systems_first_finds_all_of_them() -> None:
    assert run(FIRST_READS).split() == [system.name for system in SYSTEMS]


LIGHT = """
import sys
from surefoot import cli
from surefoot.commands import COMMANDS

HEAVY = {"torch", "scipy", "numpy", "surefoot_check"}
for name, command in {"": None, **COMMANDS}.items():
    assert cli.main([*name.split(), "--help"]) == 0 and not HEAVY & set(sys.modules), name
for slip in (["--version"], [], ["trian"], ["train", "two-layr"], ["train", "two-layer", "--widht", "3"], ["check", "--levle"]):
    assert cli.main(slip) == (0 if slip == ["--version"] else 2) and not HEAVY & set(sys.modules), slip
assert cli.main(["check", "no such directory"]) == 2 and "torch" not in sys.modules
"""


def test_help_and_slips_load_neither_torch_nor_the_checker_and_checking_no_torch() -> None:
    assert "surefoot train two-layer" in run(LIGHT)


@pytest.mark.parametrize("module", ["surefoot_check", "surefoot_check.__main__"])
def test_import_checker_loads_neither_torch_nor_surefoot(module: str) -> None:
    (loaded,) = loaded_by(f"import {module}")
    assert "surefoot_check" in loaded
    assert loaded & {"torch", "surefoot", "safetensors", "scipy"} == set()
