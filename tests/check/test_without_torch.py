"""The checker works where there is nothing but Python, numpy and python-flint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import flint
import numpy as np
import pytest
from changes import GoodRun, once
from good_runs import SYSTEMS

import surefoot_check
from surefoot_check.verdict import lines

ABSENT = ("torch", "surefoot", "safetensors", "scipy", "sklearn", "matplotlib", "rich", "tyro", "numba", "pywt")
REQUIRED = (np, flint)


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(system)``: a directory of a run of the system."""
    return once(tmp_path_factory, lambda name, path: SYSTEMS[name](path))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the checker and what it requires, to be the only one that modules are found in."""
    folder = tmp_path_factory.mktemp("bare")
    shutil.copytree(Path(surefoot_check.__file__).parent, folder / "surefoot_check", ignore=lambda *_: ["__pycache__"])
    for package in REQUIRED:
        place = Path(package.__file__).parent
        (folder / place.name).symlink_to(place)
        for beside in place.parent.glob(f"{place.name}.libs"):  # shared libraries of a wheel
            (folder / beside.name).symlink_to(beside)
        for beside in place.parent.glob(f"python_{place.name}.libs"):
            (folder / beside.name).symlink_to(beside)
    return folder


def run(bare: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A fresh process without the packages of this one: -S leaves site-packages out, -E the environment's paths."""
    program = f"import sys, runpy; sys.path.insert(0, {str(bare)!r}); sys.argv[0] = 'surefoot-check'\n"
    program += "runpy.run_module('surefoot_check', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-S", "-E", "-s", "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=bare,
        env={"PATH": os.environ.get("PATH", "")},
    )


def test_nothing_else_can_be_imported(bare: Path) -> None:
    for name in ABSENT:
        program = f"import sys; sys.path.insert(0, {str(bare)!r}); import {name}"
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-s", "-c", program], capture_output=True, text=True, cwd=bare
        )
        assert done.returncode == 1 and "ModuleNotFoundError" in done.stderr, name


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_is_accepted_and_refused_there_as_here(
    system: str, good_run: GoodRun, bare: Path, tmp_path: Path
) -> None:
    done = run(bare, good_run(system))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("outcome: accept\n")
    here = list(lines(surefoot_check.check(good_run(system)), verbose=True))[1:-1]
    assert run(bare, good_run(system), "--verbose").stdout.splitlines()[1:-1] == here
    shutil.copytree(good_run(system), tmp_path / "run")
    text = (tmp_path / "run" / "certificate.json").read_text()
    (tmp_path / "run" / "certificate.json").write_text(text.replace('"holds": true', '"holds": false', 1))
    assert run(bare, tmp_path / "run").returncode == 1


def test_level_exact_works_there_too(good_run: GoodRun, bare: Path) -> None:
    done = run(bare, good_run("inverse"), "--level", "exact")
    assert done.returncode == 0, done.stdout + done.stderr
