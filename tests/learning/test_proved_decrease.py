"""The recursion of the guarantee: never above the closed form, and kept by proximal steps with constants of any size."""

from __future__ import annotations

import torch

from surefoot._learning.proved_decrease import guaranteed
from surefoot._problems import Lasso


def test_it_is_below_the_closed_form_and_stays_where_nothing_moved() -> None:
    first = torch.tensor([1e6, 3.0, 1e-9, 5.0], dtype=torch.float64)
    radius = torch.tensor([2.0, 1.0, 1.0, 1e200], dtype=torch.float64)
    constants = torch.full((50, 4), 3.0, dtype=torch.float64)
    constants[20:30] = 0.0
    bounds = guaranteed(first, constants, radius)
    steps = (constants > 0.0).cumsum(0)
    closed = 2.0 * 3.0 * radius.square() / (steps + 3.0)
    assert bool((bounds[1:] <= closed * (1.0 + 1e-12)).all())
    assert bool((bounds.diff(dim=0) <= 0.0).all()) and torch.equal(bounds[20], bounds[30])
    assert torch.equal(bounds[0], first) and torch.equal(bounds[:, 3], first[3].expand(51))
    assert float(bounds[-1, 0] / bounds[0, 0]) < 1e-5


def test_proximal_steps_keep_it() -> None:
    p = Lasso.random(3, 10, 20, sparsity=0.3, lam=0.05, seed=0)
    best, x, g = p.optimum(), p.start(), torch.Generator().manual_seed(0)
    gaps, constants, radius = [p.objective(x) - p.optimal_value], [], best.norm(dim=1)
    for _ in range(30):
        radius = radius.maximum((x - best).norm(dim=1))
        factor = 0.2 + 2.0 * torch.rand(3, generator=g, dtype=torch.float64)
        step = (1.0 / (factor * p.smoothness))[:, None].expand_as(x)
        new = p.prox(x - step * p.gradient(x), step)
        d = new - x
        model = (p.gradient(x) * d + d.square() / (2.0 * step) + p.lam[:, None] * (new.abs() - x.abs())).sum(1)
        kept = p.objective(new) <= p.objective(x) + model
        x = torch.where(kept[:, None], new, x)
        constants.append(torch.where(kept, 1.0 / step[:, 0], 0.0))
        gaps.append(p.objective(x) - p.optimal_value)
    bounds = guaranteed(gaps[0], torch.stack(constants), radius)
    assert bool((torch.stack(gaps) <= bounds + 1e-12).all())
    assert int((torch.stack(constants) > 0.0).sum()) > 45
