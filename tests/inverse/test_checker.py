"""Directories of certified inverses; the changes of which none is accepted are in ``tests/check``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from changes import GoodRun, check_changed, once, reevaluate
from hand_made.inverse import RUNS, changed
from tamper import StoredRun

import surefoot as sf
from surefoot_check.verdict import Outcome, lines


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(name)``: a directory that the checker accepts, made once."""
    return once(tmp_path_factory, lambda name, path: RUNS[name](path))


def test_a_weaker_certificate_is_still_true(good_run: GoodRun, tmp_path: Path) -> None:
    weaker = {"residual[4]": 2.0, "residual[2]": 1.01, "initial_gap": 1.0005, "lower": 1.2, "upper": 0.9}
    report = check_changed(good_run("chebyshev"), reevaluate(**weaker), tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
    # the certificate's interval lies inside the stored one, for which the residuals of all-ones are no larger
    report = check_changed(good_run("ones"), changed("interval", lambda v: v * [1.0, 1.05]), tmp_path / "wider")
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


def test_the_checker_needs_neither_torch_nor_surefoot(good_run: GoodRun) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['surefoot'] = None\n"
        "from surefoot_check.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    for name in ("chebyshev", "order"):
        done = subprocess.run([sys.executable, "-c", code, str(good_run(name))], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "outcome: accept" in done.stdout


def test_hostile_coefficients_are_decided_in_bounded_time(good_run: GoodRun, tmp_path: Path) -> None:
    """64 layers of 64 wild terms: the ranges overflow, or take their limit of boxes; nothing is accepted."""
    random = np.random.default_rng(0)
    for index, C in enumerate([1e30 * random.normal(size=(64, 64)), random.normal(size=(64, 64))]):
        report = check_changed(
            good_run("ones"), changed("C", lambda _, C=C: np.clip(C, -1e30, 1e30)), tmp_path / str(index)
        )
        assert report.outcome is Outcome.REJECT


def test_coefficients_beyond_the_limit_are_rejected(good_run: GoodRun, tmp_path: Path) -> None:
    report = check_changed(good_run("ones"), changed("C", lambda C: np.full_like(C, 2e30)), tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert "C has entries that are not finite or exceed 1e+30" in report.lines[0].name


def test_residuals_without_a_bound_cannot_be_left_out(good_run: GoodRun, tmp_path: Path) -> None:
    def change(run: StoredRun) -> None:
        run.weights["C"] = 1e30 * np.ones_like(run.weights["C"])
        for name in ("residual[1]", "residual[2]", "residual[3]"):
            del run.certificate["quantities"][name]

    report = check_changed(good_run("ones"), change, tmp_path / "run")
    assert report.outcome is Outcome.REJECT


def test_saving_refuses_what_does_not_hold(tmp_path: Path) -> None:
    net = sf.nn.LearnedInverse.ones(2, 4)
    with pytest.raises(ValueError, match="nothing to certify"):
        net.save_certificate(tmp_path / "a", (0.1, 2.5))
    assert not (tmp_path / "a").exists()
    with pytest.raises(ValueError, match="no interval"):
        net.save_certificate(tmp_path / "a")
    net.save_certificate(tmp_path / "b", (0.1, 1.0))
    with pytest.raises(sf.RunDirectoryError, match="not an empty directory"):
        net.save_certificate(tmp_path / "b", (0.1, 1.0))
    with pytest.raises(sf.RunDirectoryError, match="a certificate and no run"):
        sf.Run.load(tmp_path / "b")
