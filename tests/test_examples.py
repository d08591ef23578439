"""Every example runs and its own assertions hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import run_program

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PRINTED_IN = {"linalg_gallery": "docs/from-torch-linalg.md"}
"""Documents that hold all that an example prints."""
LONG = ("deblur_photo", "equilibrium_layer", "implicit_moved", "learned_steps", "own_loop", "two_scale_equilibrium")
"""Examples that take seconds, of what the documents also run: left to the slow tests."""


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize(
    "example",
    [pytest.param(file, marks=pytest.mark.slow if file.stem in LONG else ()) for file in EXAMPLES],
    ids=lambda path: path.stem,
)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    result = run_program([str(example)], 250.0, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    if example.stem in PRINTED_IN:
        assert result.stdout.strip() in (ROOT / PRINTED_IN[example.stem]).read_text()
