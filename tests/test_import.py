"""Importing surefoot is cheap, and the checker is independent of it: both hold in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"PIL", "flint", "matplotlib", "numba", "pandas", "pywt", "rich", "scipy", "sklearn", "tyro"}


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after `statement`."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return {name.partition(".")[0] for name in json.loads(result.stdout)}


def test_import_surefoot_loads_no_heavy_module() -> None:
    added = loaded_by("import surefoot") - loaded_by("import torch, numpy")
    assert "surefoot" in added
    assert added & HEAVY == set()


def test_the_library_and_its_command_line_start_without_the_experiments() -> None:
    assert "surefoot_experiments" not in loaded_by("import surefoot, surefoot.cli")


def test_import_experiments_loads_no_heavy_module() -> None:
    added = loaded_by("import surefoot_experiments") - loaded_by("import torch, numpy")
    assert "surefoot_experiments" in added
    assert added & HEAVY == set()


@pytest.mark.parametrize("module", ["surefoot_check", "surefoot_check.__main__"])
def test_import_checker_loads_neither_torch_nor_surefoot(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert "surefoot_check" in loaded
    assert loaded & {"torch", "surefoot", "safetensors", "scipy"} == set()
