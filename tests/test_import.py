"""Importing surefoot is cheap, and the checker is independent of it: both hold in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"PIL", "flint", "matplotlib", "numba", "pandas", "pywt", "rich", "scipy", "sklearn", "tyro"}


def loaded_by(*statements: str) -> list[set[str]]:
    """The top-level modules that a fresh interpreter holds after each of the statements."""
    program = ["import sys", "found = []"]
    for statement in statements:
        program += [statement, "found.append(list(sys.modules))"]
    program += ["import json", "print(json.dumps(found))"]
    command = [sys.executable, "-W", "error", "-c", "\n".join(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert result.returncode == 0, result.stderr
    return [{name.partition(".")[0] for name in names} for names in json.loads(result.stdout)]


def test_imports_load_no_heavy_module() -> None:
    before, library, experiments = loaded_by(
        "import torch, numpy", "import surefoot, surefoot.data, surefoot.extending", "import surefoot_experiments"
    )
    assert "surefoot" in library - before and "surefoot_experiments" in experiments - library
    assert (experiments - before) & HEAVY == set()


def test_the_library_and_its_command_line_start_without_the_experiments() -> None:
    assert "surefoot_experiments" not in loaded_by("import surefoot, surefoot.cli")[0]


@pytest.mark.parametrize("module", ["surefoot_check", "surefoot_check.__main__"])
def test_import_checker_loads_neither_torch_nor_surefoot(module: str) -> None:
    (loaded,) = loaded_by(f"import {module}")
    assert "surefoot_check" in loaded
    assert loaded & {"torch", "surefoot", "safetensors", "scipy"} == set()
