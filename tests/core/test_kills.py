"""``kill -9`` and other signals in the middle of every system's training: a short form of ``tests/stress/kill_training.py``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

STRESS = Path(__file__).parents[1] / "stress" / "kill_training.py"
KILLS = 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_killed_training_resumes_to_the_same_files() -> None:
    """Every system is killed twice; the seed makes the chosen moments the same every time, the random ones never are."""
    done = subprocess.run(
        [sys.executable, str(STRESS), "--short", "--kills", str(KILLS), "--seed", "5"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(.{16}) +(\d+) +(\d+) +(\d+) (yes|no) ", done.stdout, re.MULTILINE)
    assert len(rows) >= 9
    assert all((int(kills), equal) == (KILLS, "yes") for _, kills, _, _, equal in rows), done.stdout
