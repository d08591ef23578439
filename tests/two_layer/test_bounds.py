"""Where a layer is large, bounds stand for its extreme singular values: in the safe direction, and no step changes by them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.linalg import matrix_norm, svdvals

import surefoot as sf
from surefoot._two_layer import iterate
from surefoot._two_layer.engines import ENGINES
from surefoot._two_layer.iterate import LARGE

SHAPES = [(LARGE + 10, 2), (2, LARGE + 10), (LARGE + 1, LARGE + 1)]
ROUNDING = 1e-9


def problem(n: int, m: int) -> tuple[sf.nn.TwoLayerLinear, sf.SquaredLoss, sf.Certificate]:
    g = torch.Generator().manual_seed(n)
    X = torch.randn(4 * n, n, generator=g, dtype=torch.float64)
    Y = torch.randn(4 * n, m, generator=g, dtype=torch.float64)
    loss = sf.SquaredLoss(X, Y)
    net = sf.nn.TwoLayerLinear.gaussian(n, m, 2 * (n + m), std=(n + m) ** -0.5, seed=1)
    certificate = sf.certify(net, loss)
    assert certificate.holds
    return net, loss, certificate


@pytest.mark.parametrize("engine_name", ENGINES)
@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_err_in_the_safe_direction(shape: tuple[int, int], engine_name: str) -> None:
    net, loss, certificate = problem(*shape)
    engine = ENGINES[engine_name](loss, net.W1.detach(), net.W2.detach())
    rule = sf.steps.CertifiedBB()
    rule.start(loss, certificate)
    loose = 0
    for _ in range(7):
        before = dict(engine.iterate.measurements)
        eta = rule.step(engine)
        W1, W2 = (W.clone() for W in engine.weights().values())
        s1, s2 = svdvals(W1), svdvals(W2)
        s_minus, s_plus = float(s1[-1] ** 2 + s2[-1] ** 2), float(s1[0] ** 2 + s2[0] ** 2)
        exact = engine.iterate.sharp
        for row in (before, engine.iterate.measurements):
            assert certificate.quantities["guaranteed_sigma"] <= row["sigma_min_squared"] <= s_minus * (1.0 + ROUNDING)
            assert row["sigma_max_squared"] >= s_plus * (1.0 - ROUNDING)
            assert row["map_norm"] >= float(matrix_norm(W1 @ W2.T, 2)) * (1.0 - ROUNDING)
            assert all(row[f"k{i}"] >= k * (1.0 - ROUNDING) for i, k in enumerate(exact))
        loose += before["sigma_max_squared"] > s_plus * (1.0 + 1e-6) and before["sigma_min_squared"] < s_minus
        engine.move(eta)
    assert loose >= 3  # else nothing was tested


@pytest.mark.parametrize("shape", SHAPES)
def test_the_steps_are_those_that_exact_values_lead_to(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for large in (LARGE, 10**6):
        monkeypatch.setattr(iterate, "LARGE", large)
        net, loss, certificate = problem(*shape)
        runs.append(sf.descend(net, loss, certificate=certificate, max_iterations=7, progress=False))
        assert runs[-1].audit().holds, str(runs[-1].audit())
    bounded, exact = runs
    assert bounded.step_sizes == pytest.approx(exact.step_sizes, rel=1e-6, abs=0.0)
    assert bounded.gaps == pytest.approx(exact.gaps, rel=1e-6, abs=0.0)
    assert [row["drift_per_step"] for row in bounded.rows] == pytest.approx(
        [row["drift_per_step"] for row in exact.rows], rel=1e-6, abs=0.0
    )
    assert any(a["k0"] > b["k0"] * (1.0 + 1e-6) for a, b in zip(bounded.rows, exact.rows, strict=True))


def test_rules_that_do_not_ask_for_bounds_measure_exactly() -> None:
    net, loss, _ = problem(LARGE + 10, 2)
    run = sf.descend(net, loss, "exact-line-search", max_iterations=3, progress=False)
    last = run.rows[-1]
    s1, s2 = svdvals(net.W1.detach()), svdvals(net.W2.detach())
    assert last["sigma_min_squared"] == pytest.approx(float(s1[-1] ** 2 + s2[-1] ** 2), rel=1e-9, abs=0.0)
    assert last["sigma_max_squared"] == pytest.approx(float(s1[0] ** 2 + s2[0] ** 2), rel=1e-9, abs=0.0)


def test_a_resumed_run_measures_the_same_bounds(tmp_path: Path) -> None:
    def run(directory: str, iterations: int, resume: bool = False) -> sf.Run:
        net, loss, certificate = problem(LARGE + 10, 2)
        return sf.descend(
            net,
            loss,
            max_iterations=iterations,
            tolerance=0.0,
            certificate=certificate,
            directory=tmp_path / directory,
            resume=resume,
            progress=False,
        )

    whole = run("whole", 9)
    run("parts", 5)
    parts = run("parts", 9, resume=True)
    assert parts.rows == whole.rows
    for name, layer in parts.final.items():
        assert torch.equal(layer, whole.final[name])


def test_a_bound_that_does_not_reach_what_is_guaranteed_gives_way_to_the_exact_value() -> None:
    net, loss, _ = problem(LARGE + 10, 2)
    engine = ENGINES["gram"](loss, net.W1.detach(), net.W2.detach())
    exact = engine.iterate.sigma_min_squared
    engine.iterate.least = 0.5 * exact
    assert engine.iterate.measurements["sigma_min_squared"] == exact  # nothing else is known at the start
    engine.move(1e-3 * engine.iterate.safe_step)
    assert (
        engine.iterate.bounded and engine.iterate.measurements["sigma_min_squared"] < engine.iterate.sigma_min_squared
    )
    engine.move(1e-3 * engine.iterate.safe_step)
    assert engine.iterate.bounded
    engine.iterate.least = math.nextafter(engine.iterate.sigma_min_squared, 0.0)
    assert not engine.iterate.bounded
    assert engine.iterate.measurements["sigma_min_squared"] == engine.iterate.sigma_min_squared
