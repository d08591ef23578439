"""What the compiled solver proves, checked in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from surefoot._lasso import compiled

LAM = 0.05
Array = np.ndarray


class Instance:
    """A point of a small problem, as the solver holds it: columns scaled over ``spread`` orders of magnitude, a residual that is
    a sum of moves."""

    def __init__(self, seed: int, spread: float = 0.0, size: float = 1.0) -> None:
        g = np.random.default_rng(seed)
        self.T = g.standard_normal((9, 6)) * 10.0 ** (-spread * g.random((9, 1)))
        self.y = size * g.standard_normal(6)
        self.lam = LAM * size
        self.norms = np.sqrt((self.T**2).sum(1)) * (1.0 + 32 * compiled.UNIT)
        self.active = np.arange(9)
        self.x, self.r, self.error = np.zeros(9), -self.y.copy(), 0.0
        for _ in range(4):
            new = np.where(g.random(9) < 0.6, size * g.standard_normal(9), 0.0)
            image = np.empty(6)
            error, _ = compiled.moved(self.T, self.norms, self.x, new, image)
            self.x, self.r = new, self.r + image
            self.error += error + 2.0 * compiled.UNIT * (np.linalg.norm(self.r) + np.linalg.norm(image))
        self.measure()

    def minimise(self, times: int = 9) -> None:
        squares = (self.T**2).sum(1)
        for _ in range(times):
            compiled.propose(
                self.T, squares, self.lam, self.x, self.r, self.active, 0.0, 1e-9, 0.0, np.zeros(1, np.bool_)
            )
            compiled.refined(self.T, self.norms, self.y, self.x, self.r)

    def measure(self) -> None:
        self.g, self.errors = np.zeros(9), np.zeros(9)
        self.plain = compiled.gradient(self.T, self.norms, self.active, self.r, self.error, self.g, self.errors)

    def residual(self, x: Array) -> list[Fraction]:
        columns = [[Fraction(v) for v in row] for row in self.T.tolist()]
        xs = [Fraction(v) for v in x.tolist()]
        return [sum((xs[j] * columns[j][i] for j in range(9)), -Fraction(self.y[i])) for i in range(6)]

    def value(self, x: Array) -> Fraction:
        loss = sum((v * v for v in self.residual(x)), Fraction(0)) / 2
        return loss + Fraction(self.lam) * sum((abs(Fraction(v)) for v in x.tolist()), Fraction(0))

    def gradient(self) -> list[Fraction]:
        return self.pulled(self.residual(self.x))

    def pulled(self, v: list[Fraction]) -> list[Fraction]:
        return [sum((Fraction(a) * b for a, b in zip(row, v, strict=True)), Fraction(0)) for row in self.T.tolist()]

    def decrease(self, beta: float) -> Fraction:
        """Q, exactly."""
        total, b, lam = Fraction(0), Fraction(beta), Fraction(self.lam)
        for x, g in zip((Fraction(v) for v in self.x.tolist()), self.gradient(), strict=True):
            v = x - g / b
            end = max(abs(v) - lam / b, Fraction(0)) * (1 if v > 0 else -1)
            d = end - x
            total -= g * d + b / 2 * d * d + lam * (abs(end) - abs(x))
        return total


def squared(v: list[Fraction]) -> Fraction:
    return sum((a * a for a in v), Fraction(0))


CASES = [(seed, spread, size) for seed in range(3) for spread, size in ((0.0, 1.0), (6.0, 1.0), (0.0, 1e-160))]


@pytest.mark.parametrize(("seed", "spread", "size"), CASES)
def test_error_bounds_hold(seed: int, spread: float, size: float) -> None:
    at = Instance(seed, spread, size)
    exact = at.residual(at.x)
    for refine in (False, True):
        if refine:
            before = at.error
            at.error, work = compiled.refined(at.T, at.norms, at.y, at.x, at.r)
            assert work == np.count_nonzero(at.x) and at.error < before
            at.measure()
        assert squared([Fraction(a) - b for a, b in zip(at.r.tolist(), exact, strict=True)]) <= Fraction(at.error) ** 2
        for computed, bound, true in zip(at.g.tolist(), at.errors.tolist(), at.gradient(), strict=True):
            assert abs(Fraction(computed) - true) <= Fraction(bound)
    assert at.error <= 4.0 * compiled.UNIT * np.linalg.norm(at.r) + 1e-290


@pytest.mark.parametrize(("seed", "spread", "size"), CASES)
def test_the_model_decrease_is_an_upper_bound(seed: int, spread: float, size: float) -> None:
    at = Instance(seed, spread, size)
    for beta in (0.01, 1.0, 7.0, 300.0):
        found, allowance = compiled.model_decrease(at.active, at.x, at.g, at.errors, at.lam, beta)
        exact = at.decrease(beta)
        assert exact <= Fraction(found) + Fraction(allowance)
        if size == 1.0:
            assert found + allowance <= float(exact) * (1.0 + 1e-10)


@pytest.mark.parametrize(("seed", "spread", "size"), CASES)
def test_the_change_is_bounded_and_what_is_proved_holds(seed: int, spread: float, size: float) -> None:
    """Proposals on the way from far above to far below the decrease that is needed, by steps down to a millionth."""
    at = Instance(seed, spread, size)
    g = np.random.default_rng(seed + 100)
    beta = float(np.linalg.norm(at.T, 2) ** 2)
    safe, image = np.empty(9), np.empty(6)
    compiled.proximal(at.active, at.x, at.g, at.lam, beta, safe)
    needed, before = at.decrease(beta), at.value(at.x)
    proved = refused = 0
    for length in (1.0, 0.5, 1.0 + 1e-9, 1.0 - 1e-9, 1e-3, 1e-6, 3.0):
        for noise in (0.0, 1e-12, 1e-3):
            w = at.x + length * (safe - at.x) * (1.0 + noise * g.standard_normal(9))
            error, _ = compiled.moved(at.T, at.norms, at.x, w, image)
            bound = compiled.change_bound(at.x, w, at.g, at.errors, at.lam, image, error)
            change = at.value(w) - before
            assert change <= Fraction(bound)
            for factor in (1.0, 0.5, 2.0, 100.0):
                good, _, _ = compiled.proved(
                    at.T, at.norms, at.active, at.x, w, at.g, at.errors, at.lam, factor * beta, image
                )
                proved, refused = proved + good, refused + (not good)
                assert not good or change <= -at.decrease(factor * beta)
    assert refused and (proved or size != 1.0)
    assert needed > 0


def test_a_decrease_far_below_the_rounding_of_the_objective_is_proved() -> None:
    at = Instance(0)
    at.minimise()
    at.x[at.x != 0.0] *= 1.0 + 1e-10
    at.error, _ = compiled.refined(at.T, at.norms, at.y, at.x, at.r)
    at.measure()
    w, image, beta = np.empty(9), np.empty(6), 2.0 * float(np.linalg.norm(at.T, 2) ** 2)
    compiled.proximal(at.active, at.x, at.g, at.lam, beta, w)
    assert compiled.proved(at.T, at.norms, at.active, at.x, w, at.g, at.errors, at.lam, beta, image)[0]
    change = at.value(at.x) - at.value(w)
    assert 0 < change < Fraction(2) ** -53 * at.value(at.x)


def test_what_is_not_finite_is_not_proved() -> None:
    at = Instance(0)
    for bad in (np.nan, np.inf, 1e200):
        w, image = at.x.copy(), np.empty(6)
        w[3] = bad
        assert not compiled.proved(at.T, at.norms, at.active, at.x, w, at.g, at.errors, at.lam, 1e3, image)[0]


@pytest.mark.parametrize(("seed", "spread"), [(0, 0.0), (1, 0.0), (2, 6.0)])
@pytest.mark.parametrize("times", [0, 1, 9])
def test_the_duality_gap_is_one(seed: int, spread: float, times: int) -> None:
    """θ is feasible, the bound is above F(x) - D(θ), and what is screened is 0 at the minimiser."""
    at = Instance(seed, spread)
    at.minimise(times)
    at.error, _ = compiled.refined(at.T, at.norms, at.y, at.x, at.r)
    at.measure()
    c, gap = compiled.duality(at.active, at.x, at.r, at.error, at.g, at.plain, at.norms, at.lam)
    theta = [-Fraction(c) * Fraction(v) for v in at.r.tolist()]
    assert max(abs(v) for v in at.pulled(theta)) <= Fraction(at.lam)
    dual = sum((Fraction(a) * b for a, b in zip(at.y.tolist(), theta, strict=True)), Fraction(0)) - squared(theta) / 2
    assert dual <= at.value(at.x) <= dual + Fraction(gap)
    kept = set(compiled.screened(at.active, at.x, at.g, at.plain, at.norms, at.lam, c, gap).tolist())
    best = Instance(seed, spread)
    best.minimise()
    assert set(np.nonzero(best.x)[0].tolist()) | set(np.nonzero(at.x)[0].tolist()) <= kept
    if times == 9 and spread == 0.0:
        assert gap < 1e-10 and len(kept) < 9


def test_the_largest_are_found() -> None:
    g = np.random.default_rng(0)
    for size in (1, 2, 7, 40):
        values = np.round(g.standard_normal(size), 1)
        for rank in range(1, size + 1):
            assert compiled.largest(values.copy(), rank) == np.sort(values)[::-1][rank - 1]


def test_conjugate_gradients_find_the_minimum_on_the_face() -> None:
    """With signs that stay, the minimiser of the parabola; where coordinates pass 0, no increase, and the residual is kept."""
    at = Instance(3)
    squares, x = (at.T**2).sum(1), np.zeros(9)
    x[[1, 4, 6]] = 1.0
    signs = 1e-3 * np.ones(3)
    A = at.T[[1, 4, 6]]
    at.y = A.T @ np.array([2.0, 3.0, 1.0])
    r = at.T.T @ x - at.y
    compiled.face(at.T, squares, 1e-3, x, r, at.active, 1e-12)
    np.testing.assert_allclose(x[[1, 4, 6]], np.linalg.solve(A @ A.T, A @ at.y - signs), rtol=1e-9)
    for seed in range(5):
        at = Instance(seed)
        x, r = at.x.copy(), at.T.T @ at.x - at.y
        before = compiled.value(x, r, at.lam)
        gained, _ = compiled.face(at.T, squares, at.lam, x, r, at.active, 1e-3)
        np.testing.assert_allclose(r, at.T.T @ x - at.y, atol=1e-12)
        assert before - compiled.value(x, r, at.lam) == pytest.approx(gained)
        assert gained > 0.0 and set(np.nonzero(x)[0]) <= set(np.nonzero(at.x)[0])
        assert np.all(x * at.x >= 0.0)
