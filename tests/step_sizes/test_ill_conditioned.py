"""Gaps of least squares whose minimiser is too large to measure by: audits, resolutions and the checker."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import flint
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import surefoot as sf
import surefoot_check
from surefoot_check.rigor.balls import arb_matrix

F64 = torch.float64
SHAPES = [(6, 9), (9, 6), (6, 6)]


def problems(rows: int, columns: int, exponent: float, seed: int = 0) -> sf.learned.LeastSquares:
    """Two problems, with singular values log-spaced from 1 to 10^exponent, and from 1 to 0.1."""
    g = torch.Generator().manual_seed(seed)
    k = min(rows, columns)

    def orthonormal(n: int) -> Tensor:
        return torch.linalg.qr(torch.randn(n, n, generator=g, dtype=F64))[0][:, :k]

    M = torch.stack(
        [orthonormal(rows) * torch.logspace(0, e, k, dtype=F64) @ orthonormal(columns).T for e in (exponent, -1.0)]
    )
    return sf.learned.LeastSquares(M, torch.randn(2, rows, generator=g, dtype=F64))


def exact_gap(M: Tensor, Y: Tensor, x: Tensor) -> float:
    """½‖M(x - x*)‖², MᵀM x* = MᵀY, in 800 bits; of full column rank."""
    before = flint.ctx.prec
    flint.ctx.prec = 800
    try:
        A, y, at = arb_matrix(M.numpy()), arb_matrix(Y[:, None].numpy()), arb_matrix(x[:, None].numpy())
        best = (A.transpose() * A).solve(A.transpose() * y)
        return float(sum(v * v for v in (A * (at - best)).entries()) / 2)
    finally:
        flint.ctx.prec = before


@pytest.mark.parametrize("exponent", [-12.0, -14.0])
def test_with_full_row_rank_the_gap_is_the_objective(exponent: float) -> None:
    batch = problems(6, 9, exponent)
    assert float(batch.optimum()[0].norm()) > 1e10
    run = sf.descend(sf.nn.StepSizeNet.orthogonal((2, 2)), batch, max_iterations=30, progress=False)
    assert run.audit().holds, str(run.audit())
    objective = batch.objective(batch.start())
    assert float(batch.gap(batch.start())[0]) == pytest.approx(float(objective[0]), rel=1e-14)
    assert float(batch.optimal_value[0]) == 0.0
    assert run.gaps[0] == pytest.approx(float(objective.sum()), rel=1e-10)


@settings(max_examples=30, deadline=None)
@given(shape=st.sampled_from(SHAPES), exponent=st.floats(-18.0, 0.0), seed=st.integers(0, 1000))
def test_an_honest_run_is_never_called_a_violation(shape: tuple[int, int], exponent: float, seed: int) -> None:
    batch = problems(*shape, exponent, seed)
    net = sf.nn.StepSizeNet.orthogonal((2, 2), (1.0, 1.95))
    for theorem in ("step-sizes/monotone", "step-sizes/rate"):
        certificate = sf.certify(net, batch, theorem)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            run = sf.descend(net, batch, certificate=certificate, max_iterations=20, directory=path, progress=False)
            assert run.audit().holds, str(run.audit())
            if certificate.holds:
                assert surefoot_check.check(path).outcome is not surefoot_check.Outcome.REJECT


@settings(max_examples=30, deadline=None)
@given(shape=st.sampled_from([(9, 6), (6, 6)]), exponent=st.floats(-13.0, 0.0), seed=st.integers(0, 1000))
def test_the_resolution_covers_how_far_a_gap_is_off(shape: tuple[int, int], exponent: float, seed: int) -> None:
    batch = problems(*shape, exponent, seed)
    x = batch.start()
    measured, allowed = batch.gap(x), batch.gap_resolution
    for k in range(len(batch)):
        truth = exact_gap(batch.M[k], batch.Y[k], x[k])
        off = abs(math.sqrt(2.0 * float(measured[k])) - math.sqrt(2.0 * truth))
        # an estimate from one rounding of each product, of which there are some ten in a row
        assert off <= 20.0 * math.sqrt(2.0 * float(allowed[k])), (off, float(allowed[k]))


def test_a_usual_batch_is_measured_as_before() -> None:
    batch = sf.learned.LeastSquares.random(4, 20, 32)
    assert not batch._spans.problems
    expected = 0.5 * torch.bmm(batch.M, batch.optimum().unsqueeze(2)).squeeze(2).square().sum(1)
    torch.testing.assert_close(batch.gap(batch.start()), expected, rtol=0.0, atol=0.0)
