"""The two levels of the checker on runs of all systems: exact accepts what fast accepts, and neither what is tampered."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tamper
from changes import GoodRun, once
from hand_made.two_layer import CASES
from theorem_runs import OTHERS

from surefoot_check.checker import check
from surefoot_check.linear_resnet import enclosures as linear_resnet
from surefoot_check.rigor.bounds import FAST, Level
from surefoot_check.rigor.exact import EXACT
from surefoot_check.systems import SYSTEMS, THEOREMS
from surefoot_check.verdict import Outcome, lines

LEVELS = ("fast", "exact")
TWO_LAYER = ("drift", "phases", "contraction", "constant", "corrected", "softmax", "sensing", "sharp", "completion")


@pytest.fixture(scope="module")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``other_run(name)``: a run of another system than two-layer networks, made once."""

    return once(tmp_path_factory, lambda name, path: OTHERS[name](path))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", TWO_LAYER)
def test_two_layer_runs_are_accepted(name: str, level: str, good_run: GoodRun) -> None:
    report = check(good_run(name), level)
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", OTHERS)
def test_runs_of_the_other_systems_are_accepted(name: str, level: str, other_run: GoodRun) -> None:
    report = check(other_run(name), level)
    assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))


@pytest.mark.slow
def test_no_tampered_run_is_accepted_at_level_exact(good_run: GoodRun, tmp_path: Path) -> None:
    for number, tampering in enumerate(CASES):
        tampering.apply(good_run(tampering.run), tmp_path / str(number))
        report = check(tmp_path / str(number), "exact")
        assert report.outcome is not Outcome.ACCEPT, tampering.name


@pytest.mark.parametrize("tampered", CASES[::29], ids=[case.name for case in CASES[::29]])
def test_tampered_runs_are_not_accepted_at_level_exact(tampered: Any, good_run: GoodRun, tmp_path: Path) -> None:
    tampered.apply(good_run(tampered.run), tmp_path / "run")
    assert check(tmp_path / "run", "exact").outcome is not Outcome.ACCEPT


@pytest.mark.parametrize("name", ["drift", *OTHERS])
def test_moved_quantities_are_not_accepted_at_level_exact(
    name: str, good_run: GoodRun, other_run: GoodRun, tmp_path: Path
) -> None:
    """Every base quantity moved by 1e-6 in its unsafe direction, everything derived recomputed from it."""
    run = tamper.StoredRun.read(good_run(name) if name == "drift" else other_run(name))
    original, system = run.certificate, run.certificate["system"]
    base, count = THEOREMS[original["theorem"]].base, 0
    for quantity, text in original["quantities"].items():
        value = float.fromhex(text)
        if quantity not in base or quantity.startswith(("mass", "kappa")) or value == 0.0:
            continue  # masses and κ are published with more slack than that
        count += 1
        moved = value * (1.0 + (1e-6 if SYSTEMS[system].directions[quantity] == "lower" else -1e-6))
        run.certificates["certificate.json"] = tamper.reevaluated(original, {quantity: moved}, {})
        run.seal()
        directory = tmp_path / f"{count}"
        run.write(directory)
        assert check(directory, "exact").outcome is not Outcome.ACCEPT, quantity
        run.certificates["certificate.json"] = original
    assert count >= 2


def enclosures(directory: Path, level: Level) -> dict[str, tuple[float, float]]:
    run = tamper.StoredRun.read(directory)
    certificate = run.certificate
    system = SYSTEMS[certificate["system"]]
    problem = system.enclosures.load_problem(certificate["problem"]["kind"], run.arrays["problem.safetensors"], level)
    weights = system.enclosures.read_weights(run.arrays["initial.safetensors"], problem, "initial.safetensors")
    published = {name: float.fromhex(text) for name, text in certificate["quantities"].items()}
    return system.enclosures.base_quantities(problem, weights, published)


@pytest.mark.parametrize("name", [*TWO_LAYER, *OTHERS])
def test_enclosures_of_the_levels_overlap_and_exact_is_no_wider(
    name: str, good_run: GoodRun, other_run: GoodRun
) -> None:
    directory = good_run(name) if name in TWO_LAYER else other_run(name)
    fast, exact = (enclosures(directory, level) for level in (FAST, EXACT))
    assert fast.keys() == exact.keys()
    for quantity, (low, high) in exact.items():
        other_low, other_high = fast[quantity]
        assert low <= other_high and other_low <= high, quantity
        if quantity.startswith(("kappa", "mass")):
            continue  # defined by each level's own eigenvectors
        assert high - low <= (other_high - other_low) * 1.1 + 1e-14 * abs(high), quantity


@pytest.mark.parametrize("routine", ["svd", "eigh", "qr"])
def test_wrong_factorisations_are_found_out_at_level_exact(
    routine: str, good_run: GoodRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A factor one per cent off widens every enclosure by as much: nothing is confirmed, and nothing true is rejected."""
    original = getattr(np.linalg, routine)

    def wrong(*arguments: Any, **options: Any) -> Any:
        first, second, *rest = original(*arguments, **options)
        return (first, 1.01 * second, *rest)

    directory = good_run("drift")
    monkeypatch.setattr(np.linalg, routine, wrong)
    assert check(directory, "exact").outcome is Outcome.UNDECIDED


def test_no_exponential_of_numpy_is_used_for_a_softmax_loss_at_level_exact(
    good_run: GoodRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("numpy's exponential or logarithm was called")

    directory = good_run("softmax")  # made before the functions are gone
    for name in ("exp", "log", "expm1", "log1p"):
        monkeypatch.setattr(np, name, forbidden)
    assert check(directory, "exact").outcome is Outcome.ACCEPT
    with pytest.raises(AssertionError, match="numpy's exponential"):
        check(directory, "fast")


def test_the_level_is_an_option_and_is_named_in_the_report(good_run: GoodRun) -> None:
    program = [sys.executable, "-m", "surefoot_check", str(good_run("drift")), "--level", "exact", "--json"]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["level"] == "exact"
    assert "level exact" in next(lines(check(good_run("drift"), "exact")))
    with pytest.raises(ValueError, match="level is 'best'; it must be fast or exact"):
        check(good_run("drift"), "best")


@pytest.mark.parametrize("name", ["local", "far"])
def test_lemma_3_in_balls_encloses_what_floats_give(name: str, other_run: GoodRun) -> None:
    """At the same measurements: floats err on the safe side of the balls by their slack and no more."""
    run = tamper.StoredRun.read(other_run(f"linear-resnet {name}"))
    problem = linear_resnet.load_problem("squared", run.arrays["problem.safetensors"])
    weights = linear_resnet.read_weights(run.arrays["initial.safetensors"], problem, "initial.safetensors")
    measured = linear_resnet.measure(weights, problem.design)
    for radius in (0.0, 1e-12, float.fromhex(run.certificate["quantities"]["radius"]), 1.0, 30.0):
        fast, exact = (linear_resnet.quantities_on_ball(measured, radius, level) for level in (FAST, EXACT))
        assert fast.keys() == exact.keys() == {"pl_constant", "gauss_newton", "bilinear"}
        for quantity, (low, high) in exact.items():
            end = 0 if quantity == "pl_constant" else 1
            assert (low, high)[end] == pytest.approx(fast[quantity][end], rel=1e-8, abs=1e-300), quantity


def test_float_bounds_of_scores_agree() -> None:
    """Softmax and cross-entropy: FLINT's functions lie within numpy's bounds."""
    rng = np.random.default_rng(3)
    for scale in (1e-3, 1.0, 30.0, 800.0):
        logits, labels = scale * rng.standard_normal((7, 4)), rng.integers(0, 4, 7)
        (fast, error), (exact, exact_error) = FAST.softmax(logits), EXACT.softmax(logits)
        assert exact_error < error and math.sqrt(((fast - exact) ** 2).sum()) <= error + exact_error
        wide, narrow = FAST.cross_entropy(logits, labels), EXACT.cross_entropy(logits, labels)
        assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
