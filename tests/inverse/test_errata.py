"""What is wrong or left open in the paper on matrix inverses, each with its counterexample."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from pinv_reference import spectral_error
from torch import Tensor

import surefoot as sf
from surefoot._core.evaluation import evaluate
from surefoot._core.plans import PLANS
from surefoot._inverse.floor import floor
from surefoot._inverse.iteration import unrolled
from surefoot._inverse.spectra import Spectra
from surefoot._linalg import matrix_polynomial

DOUBLE = torch.float64


def with_singular_values(values: Tensor, m: int, n: int, generator: torch.Generator) -> Tensor:
    """A (m, n) of this spectrum, with random singular vectors."""
    r = len(values)
    U, V = (torch.linalg.qr(torch.randn(k, r, dtype=DOUBLE, generator=generator)).Q for k in (m, n))
    return (U * values) @ V.mT


def residual(A: Tensor, X: Tensor) -> float:
    """‖AA⁺ - AX‖."""
    return float(torch.linalg.matrix_norm(A @ torch.linalg.pinv(A, rtol=1e-12) - A @ X, 2))


# -- Lemma 1 and Proposition 1: true, and more than is said ------------------------------------------------------------


@pytest.mark.parametrize("terms", [2, 3, 4, 5, 7])
@pytest.mark.parametrize(("m", "n", "rank"), [(6, 6, 6), (4, 9, 4), (9, 4, 4), (8, 8, 3), (5, 9, 2)])
def test_lemma_1_is_an_equality_for_every_order_shape_and_rank(
    m: int, n: int, rank: int, terms: int, generator: torch.Generator
) -> None:
    A = with_singular_values(torch.linspace(0.4, 1.0, rank, dtype=DOUBLE), m, n, generator)
    net = sf.nn.LearnedInverse.ones(3, terms, 1.1, backward="unroll")
    e0 = residual(A, A.mT / 1.1)
    for k, X in enumerate(net.unroll(A), 1):
        expected = e0 ** (terms**k)
        assert residual(A, X.detach()) == pytest.approx(expected, rel=1e-9, abs=1e-13)
    assert 0.85 < e0 < 0.86


@pytest.mark.parametrize(("m", "n", "rank"), [(6, 6, 6), (4, 9, 4), (9, 4, 4), (8, 8, 3)])
def test_proposition_1_holds_for_learned_coefficients(m: int, n: int, rank: int, generator: torch.Generator) -> None:
    A = with_singular_values(torch.linspace(0.4, 1.0, rank, dtype=DOUBLE), m, n, generator)
    C = 1.0 + 0.3 * torch.randn(3, 4, dtype=DOUBLE, generator=generator)
    pseudoinverse = torch.linalg.pinv(A, rtol=1e-12)
    for X in sf.nn.LearnedInverse(C, 1.1, backward="unroll").unroll(A):
        X = X.detach()
        size = float(torch.linalg.matrix_norm(X))
        torch.testing.assert_close(X @ A @ pseudoinverse, X, rtol=0.0, atol=1e-12 * size)
        torch.testing.assert_close(pseudoinverse @ A @ X, X, rtol=0.0, atol=1e-12 * size)


# -- cost: the paper's L/ln L ------------------------------------------------------------------------------------------


def products(degree: int) -> int:
    """Matrix products of ``matrix_polynomial.evaluate``."""
    if degree <= 1:
        return 0
    s = matrix_polynomial.block_length(degree)
    return s - 1 + -(-degree // s) - 1


def layer_products(terms: int) -> int:
    """Matrix products of a layer of L terms: AX, the polynomial of degree L-1, and its product with X."""
    return 2 + products(terms - 1) if terms > 1 else 0


def test_optimal_order_is_3_naively_and_5_by_paterson_and_stockmeyer() -> None:
    orders = range(2, 40)
    assert min(orders, key=lambda L: L / math.log(L)) == 3
    assert min(orders, key=lambda L: layer_products(L) / math.log(L)) == 5
    assert layer_products(5) / math.log(5) < 3 / math.log(3)


@pytest.mark.parametrize("degree", range(20))
def test_products_are_as_few_as_claimed(degree: int, generator: torch.Generator) -> None:
    count = 0

    class Counted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            nonlocal count
            count += getattr(function, "__name__", "") in ("matmul", "__matmul__", "__rmatmul__")
            return super().__torch_function__(function, types, args, kwargs or {})

    E = torch.randn(5, 5, dtype=DOUBLE, generator=generator) / 4
    c = torch.randn(degree + 1, dtype=DOUBLE, generator=generator)
    found = matrix_polynomial.evaluate(c.tolist(), E.as_subclass(Counted)).as_subclass(torch.Tensor)
    expected = sum(c[j] * torch.linalg.matrix_power(E, j) for j in range(degree + 1))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    assert count == products(degree)


# -- Lemma 2 -----------------------------------------------------------------------------------------------------------


def test_lemma_2_fails_in_norm_for_large_coefficients() -> None:
    A = torch.diag(torch.tensor([1.0, 0.8], dtype=DOUBLE))
    L, C, c0 = 4, 3.0, 1.05
    net = sf.nn.LearnedInverse([[1.0] * L + [C]], c0, backward="unroll")
    e0 = residual(A, A / c0)
    printed = (1 - C) * e0**L + C * e0 ** (L + 1)
    found = residual(A, net.unroll(A)[0].detach())
    assert printed < 0.0 < found  # a norm that would be negative
    assert found == pytest.approx(-printed, rel=1e-12)
    for C in (0.0, 0.3, 1.0):  # and holds in norm for 0 <= C <= 1
        net = sf.nn.LearnedInverse([[1.0] * L + [C]], c0, backward="unroll")
        assert residual(A, net.unroll(A)[0].detach()) == pytest.approx((1 - C) * e0**L + C * e0 ** (L + 1), rel=1e-10)


# -- Theorem 1 ---------------------------------------------------------------------------------------------------------

FIVE = torch.diag(torch.tensor([1.0, 0.8, 0.6, 0.4, 0.2], dtype=DOUBLE))[None]


def test_theorem_1_is_false_as_the_loss_has_a_floor() -> None:
    """n = 1, five distinct singular values in [.2, 1], L = 4: whatever K and C, the first layer alone leaves more than ε."""
    spectra = Spectra.of(FIVE, 1.0)
    for layers in (1, 2, 5):
        found = floor(spectra, layers, 4)
        # the first layer's residual has degree 4 in y, is 1 at y = 0, and cannot vanish at 5 points: a determinant
        y, weight = spectra.relative, spectra.squared
        others = torch.tensor(
            [math.prod((-y[j] / (y[i] - y[j])).item() for j in range(5) if j != i) for i in range(5)], dtype=DOUBLE
        )
        # of all values at the nodes that interpolate to 1 at 0, Σ v_i others_i = 1, the least weighted squares
        exact = 1.0 / float((others.square() / weight).sum()) / (2 * layers)
        assert found.layers[0] == pytest.approx(exact, rel=1e-8)
        assert found.value >= found.layers[0] > 0.0066 / layers
        assert found.layers[1:] == (0.0,) * (layers - 1)


def test_training_converges_to_the_floor_and_not_below() -> None:
    spectra = Spectra.of(FIVE, 1.0)
    found = floor(spectra, 1, 4)
    C = torch.ones(1, 4, dtype=DOUBLE)
    gaps = []
    for _ in range(2000):
        value, gradient = spectra.value_and_gradient(C)
        gaps.append(value - found.value)
        C = C - gradient / found.smoothness
    assert min(gaps) >= -1e-17
    factor = (1.0 - found.strong_convexity / found.smoothness) ** 2
    assert all(after <= factor * before * (1 + 1e-9) + 1e-16 for before, after in pairwise(gaps))
    # the same quadratic, solved: the floor is attained
    e = 1.0 - spectra.relative
    design = torch.stack([e**j for j in range(4)], dim=1) * spectra.relative[:, None] * spectra.squared.sqrt()[:, None]
    best = torch.linalg.lstsq(design, spectra.squared.sqrt()[:, None]).solution.T
    assert spectra.loss(best) == pytest.approx(found.value, rel=1e-9)


def test_no_floor_with_few_singular_values() -> None:
    few = torch.diag(torch.tensor([1.0, 0.8, 0.6, 0.4, 0.4], dtype=DOUBLE))[None]
    assert floor(Spectra.of(few, 1.0), 3, 4).value == 0.0


@pytest.mark.parametrize("values", [(1.0, 0.8, 0.6, 0.4, 0.2), (1.0, 0.8, 0.6, 0.4, 0.4)])
def test_theorem_on_training_asks_for_what_the_printed_one_leaves_out(values: tuple[float, ...]) -> None:
    spectra = Spectra.of(torch.diag(torch.tensor(values, dtype=DOUBLE))[None], 1.0)
    found = floor(spectra, 1, 4)
    theorem = PLANS["inverse/training"].theorem
    base = {
        "initial_gap": spectra.loss(torch.ones(1, 4, dtype=DOUBLE)) - found.value,
        "floor": found.value,
        "smoothness": found.smoothness,
        "strong_convexity": found.strong_convexity,
    }
    quantities, conditions, schedule = evaluate(theorem, {**base, "K": 1})
    assert not theorem.provable
    assert [c.certain for c in conditions] == [True, found.value == 0.0, True]
    assert bool(schedule) == (found.value == 0.0)
    assert 0.0 < quantities["decrease"] <= 1.0
    with pytest.raises(ValueError, match="gives no certificate"):
        sf.certify(sf.nn.LearnedInverse.ones(1, 4), interval=(0.1, 1.0), theorem="inverse/training")


# -- gradients through the layers --------------------------------------------------------------------------------------


def test_autograd_through_the_layers_is_wrong_on_rank_deficient_matrices(generator: torch.Generator) -> None:
    A = with_singular_values(torch.tensor([1.0, 0.8, 0.6], dtype=DOUBLE), 6, 6, generator).requires_grad_()
    weight = torch.randn(6, 6, dtype=DOUBLE, generator=generator)

    def gradient(backward: str) -> Tensor:
        net = sf.nn.LearnedInverse.ones(8, 4, backward=backward)  # type: ignore[arg-type]
        return torch.autograd.grad((net(A) * weight).sum(), A)[0]

    X = torch.linalg.pinv(A.detach(), rtol=1e-10)
    identity = torch.eye(6, dtype=DOUBLE)
    g, B = weight, A.detach()
    exact = -X.mT @ g @ X.mT + (identity - B @ X) @ g.mT @ X @ X.mT + X.mT @ X @ g.mT @ (identity - X @ B)
    torch.testing.assert_close(gradient("implicit"), exact, rtol=1e-9, atol=1e-10)
    assert float((gradient("unroll") - exact).norm()) > 30.0 * float(exact.norm())
    # of full rank the two agree
    A = with_singular_values(torch.linspace(0.6, 1.0, 6, dtype=DOUBLE), 6, 6, generator).requires_grad_()
    torch.testing.assert_close(gradient("unroll"), gradient("implicit"), rtol=1e-9, atol=1e-9)


# -- rounding after convergence ----------------------------------------------------------------------------------------


def test_float32_error_grows_after_convergence_unless_stopped(generator: torch.Generator) -> None:
    exact = with_singular_values(torch.linspace(0.5, 1.0, 20, dtype=DOUBLE), 50, 50, generator)
    A = exact.float()
    pseudoinverse = torch.linalg.pinv(exact, rtol=1e-10)
    scale = float(torch.linalg.matrix_norm(pseudoinverse, 2))
    C = torch.ones(14, 4, dtype=DOUBLE)
    errors = [float(torch.linalg.matrix_norm(X.double() - pseudoinverse, 2)) / scale for X in unrolled(A, A.mT, C)]
    best = min(errors)
    assert best < 1e-4
    assert errors[-1] > 1e3 * best
    grown = [after / before for before, after in pairwise(errors[7:])]
    assert all(3.0 < ratio < 5.0 for ratio in grown)  # the factor Σ_l C_kl = 4
    X, info = sf.nn.LearnedInverse.ones(14, 4)(A), sf.nn.LearnedInverse.ones(14, 4).invert_ex(A)[1]
    assert float(torch.linalg.matrix_norm(X.double() - pseudoinverse, 2)) / scale < 5e-6
    assert int(info.iterations) < 9 and int(info.rank) == 20


@pytest.mark.parametrize("kappa", [1e1, 1e3, 1e5, 1e7])
def test_the_stop_waits_for_the_smallest_singular_values(kappa: float, generator: torch.Generator) -> None:
    """‖AXA - A‖ is small while they are still on their way; a stop by it alone ends at κ = 1e7 with an error of 6 %."""
    values = torch.logspace(0.0, -math.log10(kappa), 30, dtype=DOUBLE)
    A = with_singular_values(values, 30, 40, generator)
    X, info = sf.nn.LearnedInverse.ones(40, 4).invert_ex(A)
    error = spectral_error(X, A)
    assert error * float(values[-1]) < 20 * kappa * torch.finfo(DOUBLE).eps
    assert info.status == 0
    assert float(info.error_bound) >= error
