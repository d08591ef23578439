"""Acceptance is a proof: checked in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from surefoot._lasso.accelerated import accelerated
from surefoot._lasso.safeguard import (
    Point,
    Rounding,
    accepted,
    line_minimum,
    proximal_point,
    required_decrease,
)
from surefoot._problems import Lasso


def small(dtype: torch.dtype, seed: int, count: int = 4, spread: float = 0.0) -> Lasso:
    """Problems of 6x9, columns scaled over ``spread`` orders of magnitude."""
    p = Lasso.random(count, 6, 9, sparsity=0.5, lam=0.05, seed=seed)
    scales = 10.0 ** (spread * torch.rand(9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    return Lasso((p.M * scales).to(dtype), p.Y.to(dtype), 0.05)


def vector(x: Tensor) -> list[Fraction]:
    return [Fraction(value) for value in x.tolist()]


def exact_residual(p: Lasso, n: int, x: list[Fraction]) -> list[Fraction]:
    return [
        sum((a * b for a, b in zip(vector(row), x, strict=True)), -Fraction(y))
        for row, y in zip(p.M[n], p.Y[n].tolist(), strict=True)
    ]


def exact_value(p: Lasso, n: int, x: list[Fraction]) -> Fraction:
    loss = sum((r * r for r in exact_residual(p, n, x)), Fraction(0)) / 2
    return loss + Fraction(p.lam[n].item()) * sum((abs(v) for v in x), Fraction(0))


def exact_decrease(p: Lasso, n: int, x: list[Fraction]) -> Fraction:
    """Q at x, for β as the problems state it in their dtype."""
    residual = exact_residual(p, n, x)
    columns = [vector(column) for column in p.M[n].T]
    gradient = [sum((a * r for a, r in zip(c, residual, strict=True)), Fraction(0)) for c in columns]
    beta, lam = Fraction(p.smoothness.to(p.M)[n].item()), Fraction(p.lam[n].item())
    total = Fraction(0)
    for value, g in zip(x, gradient, strict=True):
        v = value - g / beta
        y = max(abs(v) - lam / beta, Fraction(0)) * (1 if v > 0 else -1)
        total -= g * (y - value) + beta / 2 * (y - value) ** 2 + lam * (abs(y) - abs(value))
    return total


def walked(p: Lasso, seed: int, steps: int = 6) -> tuple[Rounding, Point]:
    """A point some random moves away from 0, its residual carried along."""
    generator = torch.Generator().manual_seed(seed)
    rounding = Rounding(p)
    point = rounding.start(p.start())
    for _ in range(steps):
        d = torch.randn(p.count, p.columns, generator=generator, dtype=torch.float64).to(p.M)
        length = torch.rand(p.count, generator=generator, dtype=torch.float64).to(p.M)
        point = rounding.move(point, d, p.forward(d), length)
    return rounding, point


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("spread", [0.0, 4.0])
def test_error_bounds_hold(dtype: torch.dtype, spread: float) -> None:
    for seed in range(3):
        p = small(dtype, seed, spread=spread)
        _, point = walked(p, seed)
        for n in range(p.count):
            x = vector(point.x[n])
            error = [a - b for a, b in zip(vector(point.residual[n]), exact_residual(p, n, x), strict=True)]
            assert sum((e * e for e in error), Fraction(0)) <= Fraction(point.residual_error[n].item()) ** 2
            assert abs(Fraction(point.value[n].item()) - exact_value(p, n, x)) <= Fraction(point.value_error[n].item())
            # a bound, and one that leaves room for decisions
            assert float(point.value_error[n]) <= 1e3 * float(torch.finfo(dtype).eps) * 10.0**spread * float(
                point.value[n]
            )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_required_decrease_is_an_upper_bound(dtype: torch.dtype) -> None:
    for seed in range(3):
        p = small(dtype, seed, spread=1.0)
        rounding, point = walked(p, seed)
        gradient = p.adjoint(point.residual)
        error = rounding.pullback_error(point.residual, point.residual_error)
        decrease = required_decrease(rounding, point.x, gradient, error, proximal_point(rounding, point.x, gradient))
        for n in range(p.count):
            exact = exact_decrease(p, n, vector(point.x[n]))
            assert exact <= Fraction(decrease[n].item())
            assert float(decrease[n]) <= float(exact) * (1.0 + 1e5 * float(torch.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_accepted_decreases_exactly(dtype: torch.dtype) -> None:
    """Proposals whose decrease is Q up to a few rounding errors: every accepted one keeps the rule in exact arithmetic."""
    unit, decided, refused, mistakes = float(torch.finfo(dtype).eps), 0, 0, 0
    for seed in range(3):
        p = small(dtype, seed)
        rounding, point = walked(p, seed)
        gradient = p.adjoint(point.residual)
        error = rounding.pullback_error(point.residual, point.residual_error)
        safe = proximal_point(rounding, point.x, gradient)
        decrease = required_decrease(rounding, point.x, gradient, error, safe)
        direction = safe - point.x
        image = p.forward(direction)
        quadratic = 0.5 * p.smoothness.to(dtype)[:, None] * direction.square()
        plain = -(gradient * direction + quadratic + p.lam[:, None] * (safe.abs() - point.x.abs())).sum(1)
        low, high = torch.zeros_like(plain), torch.ones_like(plain)
        for _ in range(60):  # the length where the decrease is Q, both as computed
            middle = 0.5 * (low + high)
            enough = rounding.move(point, direction, image, middle).value <= point.value - plain
            low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        values = [exact_value(p, n, vector(point.x[n])) for n in range(p.count)]
        needed = [exact_decrease(p, n, vector(point.x[n])) for n in range(p.count)]
        for offset in (-100.0, -4.0, -1.0, 0.0, 1.0, 2.0, 4.0, 100.0, 1e4, 1e5):
            new = rounding.move(point, direction, image, high + offset * unit)
            compared = (new.value <= point.value - plain).tolist()
            for n, good in enumerate(accepted(new, point, decrease).tolist()):
                holds = exact_value(p, n, vector(new.x[n])) <= values[n] - needed[n]
                assert holds or not good
                decided, refused, mistakes = (
                    decided + good,
                    refused + (not good),
                    mistakes + (compared[n] and not holds),
                )
    assert decided and refused
    assert mistakes  # close enough for a comparison of the computed numbers to err


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float64, 1e-161), (torch.float32, 1e-22)])
def test_error_bounds_hold_where_squares_underflow(dtype: torch.dtype, scale: float) -> None:
    """Y so small that ½‖r‖² is 0 as computed: nothing about the losses is proved, and nothing false accepted."""
    drawn = small(torch.float64, 0)
    p = Lasso(drawn.M.to(dtype), (scale * drawn.Y).to(dtype), scale * scale)
    rounding = Rounding(p)
    old = rounding.start(p.start())
    g = torch.Generator().manual_seed(0)
    worse = rounding.start((scale * torch.randn(p.count, p.columns, generator=g, dtype=torch.float64)).to(dtype))
    for point, n in ((point, n) for point in (old, worse) for n in range(p.count)):
        x = vector(point.x[n])
        error = [a - b for a, b in zip(vector(point.residual[n]), exact_residual(p, n, x), strict=True)]
        assert sum((e * e for e in error), Fraction(0)) <= Fraction(point.residual_error[n].item()) ** 2
        assert abs(Fraction(point.value[n].item()) - exact_value(p, n, x)) <= Fraction(point.value_error[n].item())
    for new, before in ((worse, old), (old, worse)):
        good = accepted(new, before, torch.zeros_like(new.value))
        for n, taken in enumerate(good.tolist()):
            assert not taken or exact_value(p, n, vector(new.x[n])) <= exact_value(p, n, vector(before.x[n]))


def test_what_overflows_is_not_accepted() -> None:
    p = small(torch.float64, 0)
    rounding = Rounding(p)
    far, farther = (rounding.start(torch.full_like(p.start(), size)) for size in (1e200, 1e250))
    assert bool(far.value.isinf().all())
    assert not bool(accepted(farther, far, torch.zeros_like(far.value)).any())
    near = rounding.start(torch.full_like(p.start(), 1e100))
    assert bool(accepted(rounding.start(p.start()), near, torch.zeros_like(near.value)).all())


@pytest.mark.parametrize("lam", [0.001, 0.05, 1.0, 30.0])
def test_line_minimum_is_the_lowest_point(lam: float) -> None:
    for seed in range(6):
        p = small(torch.float64, seed)
        p = Lasso(p.M, p.Y, lam)
        rounding, point = walked(p, seed, seed)  # the first one is 0
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(p.count, p.columns, generator=generator, dtype=torch.float64)
        d = proximal_point(rounding, point.x, p.adjoint(point.residual)) - point.x + 0.1 * noise
        d[0, ::2] = 0.0
        d[1] = 0.0
        d[2] = -0.9 * point.x[2]
        image = p.forward(d)
        length = line_minimum(p, point, d, image)
        assert bool(((length >= 0.0) & (length <= 4.0)).all())
        lowest = rounding.move(point, d, image, length).value
        for other in torch.linspace(0.0, 4.0, 400, dtype=torch.float64):
            assert bool((lowest <= rounding.move(point, d, image, other.expand(p.count)).value * (1.0 + 1e-13)).all())


def test_accelerated_bound_holds_whatever_is_proposed() -> None:
    p = Lasso.random(6, 20, 40, sparsity=0.2, lam=0.05, seed=5)
    best, rounding = p.optimal_value, Rounding(p)
    distance = p.optimum().norm(dim=1)
    generator = torch.Generator().manual_seed(0)

    def reckless(x: Tensor, z: Tensor) -> Tensor:
        return z + 10.0 ** (-3.0 * torch.rand(1, generator=generator).item()) * torch.randn(
            z.shape, generator=generator, dtype=z.dtype
        )

    def helpful(x: Tensor, z: Tensor) -> Tensor:
        return x + 1.5 * (z - x)

    counts = torch.tensor([60.0, 60.0, 60.0, 60.0, 60.0, 25.0])
    for propose in (None, reckless, helpful):
        before = p.products
        run = accelerated(rounding, counts, rounding.start(p.start()), propose=propose)
        assert p.products - before == 60 * (2 if propose is None else 3)
        gap = run.objectives - best
        t = torch.arange(61, dtype=torch.float64)[:, None].minimum(counts.double())
        assert bool((gap <= 2.0 * p.smoothness * distance.square() / (t + 1.0).square()).all())
        assert bool((gap <= run.bounds).all())
        assert bool((run.objectives.diff(dim=0) <= 0.0).all())
        assert bool((run.objectives[25:, 5] == run.objectives[25, 5]).all())
        assert bool((run.last.value == run.objectives[-1]).all())
        if propose is helpful:
            assert 0.0 < run.share < 1.0
