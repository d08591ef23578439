"""``kill -9`` and other signals in the middle of every system's training: a short form of ``tests/stress/kill_training.py``."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from programs import run_program

STRESS = Path(__file__).parents[1] / "stress" / "kill_training.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_training_resumes_to_the_same_files(kills: int) -> None:
    """Every system is killed; the seed makes the chosen moments the same every time, the random ones never are."""
    done = run_program([str(STRESS), "--short", "--kills", str(kills), "--seed", "5"], 280.0)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(.{16}) +(\d+) +(\d+) +(\d+) (yes|no) ", done.stdout, re.MULTILINE)
    assert len(rows) >= 9
    assert all((int(count), equal) == (kills, "yes") for _, count, _, _, equal in rows), done.stdout
