"""Solvers of a fixed point on one tensor: what the layer does not show."""

import pytest
import torch

from surefoot._equilibrium.fixed_point import solve


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_map_that_rounds_coarsely_stops_at_its_own_rounding(dtype):
    W = draw(6, 6, seed=1)
    W, x = (0.5 * W / torch.linalg.matrix_norm(W, 2)).to(dtype), draw(4, 6).to(dtype)

    def g(z):
        return torch.tanh(z.to(dtype) @ W + x).float()

    eps = torch.finfo(dtype).eps
    options = {"batch_dims": 1, "contraction": 0.5, "tolerance": None, "max_iterations": 200, "solver": "auto"}
    z, info = solve(g, torch.zeros(4, 6), **options, eps=eps)
    assert info.converged and info.rounding_limited
    true = torch.zeros(4, 6, dtype=torch.float64)
    for _ in range(100):
        true = torch.tanh(true @ W.double() + x.double())
    error = (z.double() - true).norm(dim=1)
    assert (error <= info.error_bound).all()
    assert (info.error_bound <= 16 * eps * z.norm(dim=1)).all()
