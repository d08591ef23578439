"""What the paper on matrix inverses says of coefficients near 1, in its lemmas, propositions and the proof of its theorem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._inverse.spectra import Spectra
from surefoot._orthogonal.svd_objective import direction

DOUBLE = torch.float64
EIGHTH = Fraction(1, 8)
"""How far from 1 the coefficients of these statements may be."""


def residual_after(e: Fraction, C: Sequence[Fraction]) -> Fraction:
    """φ(e) = 1 - (1-e) Σ C_l e^l, equation (22)."""
    return 1 - (1 - e) * sum(c * e**j for j, c in enumerate(C))


def slope_after(e: Fraction, C: Sequence[Fraction]) -> Fraction:
    """φ'(e)."""
    return sum(c * e**j for j, c in enumerate(C)) - (1 - e) * sum(j * c * e ** (j - 1) for j, c in enumerate(C) if j)


def alternating(terms: int, delta: Fraction) -> list[Fraction]:
    """1 - δ, 1 + δ, …: of all coefficients within δ of 1 those with the largest residual at e < 0."""
    return [1 - delta * (-1) ** j for j in range(terms)]


def test_equation_22_is_a_layer_and_25_joins_its_layers_into_one_norm() -> None:
    C, e = [Fraction(9, 8), Fraction(1), Fraction(7, 8), Fraction(10, 9)], Fraction(1, 3)
    c = [1 - C[0], *(before - after for before, after in pairwise(C)), C[-1] - 1]
    assert residual_after(e, C) == e**4 + sum(value * e**j for j, value in enumerate(c))
    # A = 1, e_1 = 1/2 and e_2 = -1/2: the middle of (25) is the square of the sum
    assert Fraction(1, 2) ** 2 + Fraction(-1, 2) ** 2 != (Fraction(1, 2) + Fraction(-1, 2)) ** 2


def test_lemma_3_needs_bounds_from_below_and_its_epsilon_has_a_positive_limit() -> None:
    def course(x: Fraction, e: Fraction, q: int) -> list[Fraction]:
        """ε_k = (x_k - x_0^(q^k))/e - 1 for k = 1, 2, 3."""
        values = [x]
        for _ in range(3):
            values.append(values[-1] ** q + e)
        return [(value - x ** (q**k)) / e - 1 for k, value in enumerate(values)][1:]

    grid = [Fraction(k, 8) for k in range(5)]
    found = {(x, e, q): course(x, e / 2, q) for x in grid for e in grid[1:] for q in (4, 5, 7)}
    # 1/16 is right with room: the worst is the second iterate of the corner
    assert (
        max(max(each) for each in found.values()) == found[Fraction(1, 2), Fraction(1, 2), 4][1] == Fraction(39, 1024)
    )
    # x_k >= e for every k >= 1, so that ε_k >= e^(q-1) for k >= 2 where x_0 = 0
    assert all(each[-1] >= (e / 2) ** (q - 1) > 0 for (x, e, q), each in found.items() if x == 0)
    assert course(Fraction(-10), Fraction(1, 4), 4)[1] > 10**10


def test_proposition_4_is_false_where_c0_is_below_the_squared_norm() -> None:
    delta, terms = Fraction(1, 9), 6
    C = alternating(terms, delta)
    e0 = 1 - 1 / Fraction(2, 3)  # of A = (1) with c0 = 2/3, above the half of ‖A‖² that the paper asks for
    assert residual_after(e0, C) == Fraction(11, 32) > e0**terms + Fraction(17, 8) * delta
    A = torch.ones(1, 1, dtype=DOUBLE)
    net = sf.nn.LearnedInverse([[float(c) for c in C]], 2.0 / 3.0, backward="unroll")
    assert float(1.0 - net.unroll(A)[0].detach()) == pytest.approx(11 / 32, rel=1e-12)


def test_proposition_4_holds_with_three_delta_and_for_nonnegative_residuals_with_half_of_that() -> None:
    # the constants of the proof
    for start, factor in ((Fraction(7, 16), 3), (Fraction(3, 16) + Fraction(1, 2**16), Fraction(3, 2))):
        assert 8 * start**4 + (1 + start) / (1 - start) <= factor
    signed, nonnegative = 0.0, 0.0
    for terms in (4, 5, 6, 16):
        start, delta = np.meshgrid(np.linspace(-0.5, 0.5, 21), (1e-3, 0.05, 0.125))
        paths = [start]
        for k in range(1, 5):
            # in C the residual is affine: its extremes at e are those two
            reach = [delta * (1.0 - e) * sum(abs(e) ** j for j in range(terms)) for e in paths]
            paths = [e**terms + sign * r for e, r in zip(paths, reach, strict=True) for sign in (1.0, -1.0)]
            excess = (np.max(np.abs(paths), axis=0) - np.abs(start) ** terms**k) / delta
            assert np.all(excess <= 3.0 + 1e-12)
            assert np.all(excess[start >= 0.0] <= 1.5 + 1e-12)
            signed, nonnegative = max(signed, excess.max()), max(nonnegative, excess[start >= 0.0].max())
    assert signed > 2.999  # so that 3 is right,
    assert nonnegative > 1.4  # and 1 too little


def test_equations_26_and_27_bound_the_slope_by_too_little() -> None:
    C = alternating(4, EIGHTH)
    assert abs(slope_after(Fraction(0), C)) == 2 * EIGHTH  # (26) is 0 at e = 0
    assert slope_after(Fraction(1, 2), [Fraction(1)] * 4) == Fraction(1, 2)  # (27) says at most 1/4


def recursion(start: Fraction, layers: int = 12) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Upper bounds of |e_k|, |φ_k'| and |φ_k''| for every L >= 4, all coefficients within 1/8 of 1, |e_0| <= start <= 1/2."""
    bounds, x = [], start
    for _ in range(layers):
        bounds.append((x, 4 * x**3 + 2 * EIGHTH / (1 - x) ** 2, 12 * x**2 + 4 * EIGHTH / (1 - x) ** 3))
        x = Fraction(math.ceil((x**4 + EIGHTH * (1 + x) / (1 - x)) * 10**9), 10**9)
    assert bounds[-1][0] < Fraction(1, 5) and bounds[-1][1] < Fraction(
        1, 2
    )  # so that what follows is below a geometric series
    return bounds


def of_hessian(bounds: list[tuple[Fraction, Fraction, Fraction]], gap: int) -> Fraction:
    """A bound of Σ_j |∂e_j ∂'e_j + e_j ∂∂'e_j|, ∂ and ∂' in coefficients of the first layer and of the one ``gap`` later."""
    first, mixed, total = 1 + bounds[0][0], Fraction(0), Fraction(0)
    for k in range(1, gap + 1):
        x, slope, _ = bounds[k]
        # ∂e_{k+1}/∂C = e^{l+1} - e^l, whose slope is at most 2 for |e| <= 1/2
        mixed, first = (2 * first if k == gap else Fraction(0)), slope * first
    second = 1 + bounds[gap][0]
    for x, slope, curvature in bounds[gap + 1 :]:
        total += first * second + x * mixed
        first, second, mixed = slope * first, slope * second, curvature * first * second + slope * mixed
    return total


def test_bounds_near_1_follow_from_the_recursion() -> None:
    """What docs/errata.md corrects Propositions 2, 5 and 6 to; the tails after 12 layers are below .001."""
    wide, narrow = recursion(Fraction(1, 2)), recursion(Fraction(1, 3))

    def along(bounds: list[tuple[Fraction, Fraction, Fraction]], begin: int) -> Fraction:
        product, total = Fraction(1), Fraction(0)
        for x, slope, _ in bounds[begin:]:
            total, product = total + x * product, product * slope
        return total

    assert 2 * along(narrow, 0) < Fraction(132, 100)  # Proposition 2
    assert Fraction(3, 2) * along(wide, 1) < Fraction(192, 100) and Fraction(4, 3) * along(narrow, 1) < Fraction(
        62, 100
    )
    assert max(of_hessian(wide, gap) for gap in range(5)) < 23  # Proposition 6


def lipschitz(e: Fraction, layers: Sequence[Sequence[Fraction]]) -> Fraction:
    """The derivative of Σ_k e_k² in the first of them, A = 1 and W_k = 1."""
    total, product = 2 * e, Fraction(1)
    for C in layers:
        product, e = product * slope_after(e, C), residual_after(e, C)
        total += 2 * e * product
    return total


def test_proposition_2_needs_norms_of_a_third_and_weights_of_1(generator: torch.Generator) -> None:
    # Assumption 2 allows norms of 1/2
    assert abs(lipschitz(Fraction(-1, 2), [[2 - c for c in alternating(5, EIGHTH)]] * 3)) > Fraction(5, 2)
    # W_K = 2, at the last layer: ‖2E‖² at .32 and .30
    assert 4 * (Fraction(32, 100) ** 2 - Fraction(30, 100) ** 2) > 2 * Fraction(2, 100)
    # with both it holds, for matrices that do not commute as well
    for _ in range(20):
        C = 1.0 + 0.125 * (2.0 * torch.randint(2, (3, 5), generator=generator) - 1.0).to(DOUBLE)
        A, first, second = torch.randn(3, 4, 4, dtype=DOUBLE, generator=generator)
        A = A / torch.linalg.matrix_norm(A, 2)
        first = first / (3.0 * torch.linalg.matrix_norm(first, 2))
        second = first + 0.05 * (second / (3.0 * torch.linalg.matrix_norm(second, 2)) - first)
        identity, values = torch.eye(4, dtype=DOUBLE), []
        for E in (first, second):
            value = (E @ A).square().sum()
            for row in C:
                E = identity - (identity - E) @ sum(c * torch.linalg.matrix_power(E, j) for j, c in enumerate(row))
                value = value + (E @ A).square().sum()
            values.append(value)
        assert float((values[0] - values[1]).abs()) <= 2.0 * float(torch.linalg.matrix_norm(first - second, "nuc"))


def unit(c0: float) -> Spectra:
    """Of A = (1), d = 1, so that e_0 = 1 - 1/c0."""
    return Spectra.of(torch.ones(1, 1, 1, dtype=DOUBLE), c0)


def test_proposition_5_fails_in_the_first_layer_and_holds_with_powers_of_a_half(generator: torch.Generator) -> None:
    C = torch.tensor([[float(c) for c in alternating(8, Fraction(1, 9))]], dtype=DOUBLE)
    gradient = unit(2.0 / 3.0).value_and_gradient(C)[1]
    assert float(gradient[0, 7]) > 2.0 * 4.0 / 3.0**7
    for terms in (4, 5, 7, 11):
        powers = torch.arange(terms, dtype=DOUBLE)
        signs = 2.0 * torch.randint(2, (4, 4, terms), generator=generator).to(DOUBLE) - 1.0
        for C in 1.0 + 0.125 * signs:
            for size, factor in ((0.5, 1.92), (1 / 3, 0.62)):
                for e0 in (-size, size):
                    slope = len(C) * unit(1.0 / (1.0 - e0)).value_and_gradient(C)[1]
                    assert bool((slope.abs() <= factor * size**powers).all())


def test_proposition_6_holds_with_its_constant(generator: torch.Generator) -> None:
    def loss(C: Tensor, e: float) -> Tensor:
        residuals, value = torch.tensor(e, dtype=DOUBLE), torch.zeros((), dtype=DOUBLE)
        for row in C:
            residuals = 1.0 - (1.0 - residuals) * sum(c * residuals**j for j, c in enumerate(row))
            value = value + 0.5 * residuals.square()
        return value

    largest = 0.0
    for _ in range(3):
        C = 1.0 + 0.125 * (2.0 * torch.randint(2, (3, 5), generator=generator) - 1.0).to(DOUBLE)
        for e in (-0.5, 0.5):
            hessian = torch.autograd.functional.hessian(lambda C, e=e: loss(C, e), C)
            assert isinstance(hessian, Tensor)
            largest = max(largest, float(hessian.abs().max()))
    assert 2.25 < largest < 23.0 < 29.0


def test_claim_1_fails_at_coefficients_that_minimise_the_first_layer() -> None:
    """With weights ±1, which make (18) the loss (4), nothing is random: a vanishing gradient and a positive loss, whatever K."""
    e = torch.tensor([-0.3, -0.21, 0.0, 0.21, 0.3], dtype=DOUBLE)
    squared = (1.0 - e) / 1.3
    spectra = Spectra.of(squared.sqrt().diag()[None], 1.0 / 1.3)
    design = torch.stack([e**j for j in range(4)], dim=1) * (1.0 - e)[:, None] * squared.sqrt()[:, None]
    first = torch.linalg.lstsq(design, squared.sqrt()[:, None]).solution.T
    assert float((first - 1.0).abs().max()) < 0.125
    for layers in (2, 64):
        C = torch.cat([first, torch.ones(layers - 1, 4, dtype=DOUBLE)])
        value, gradient = spectra.value_and_gradient(C)
        total, slope = layers * value, layers * gradient
        assert total > 1e-6
        assert float(slope.square().sum()) < 1e-12 * (2.0 / 3.0) * float(squared.min()) * total


def test_the_initial_loss_falls_like_1_over_k_however_close_to_1_the_coefficients_are() -> None:
    """Proof of Theorem 1: L_n(C^(0)) = O(K^(-2α)) for |C^(0) - 1| = O(K^-α); here C^(0) = 1."""
    losses = [unit(2.0).loss(torch.ones(layers, 4, dtype=DOUBLE)) * layers for layers in (1, 10, 100)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-3)
    assert losses[0] == pytest.approx(0.5 * 0.5**8, rel=1e-12)


def test_the_number_of_steps_has_the_initial_loss_inside_the_logarithm() -> None:
    """(1 - x)^T L_0 <= ε: with T = ln(1/ε) L_0/x, as printed, it is far above."""
    x, initial, target = 1e-3, 1e-2, 1e-6
    printed, right = math.log(1.0 / target) * initial / x, math.log(initial / target) / x
    assert (1.0 - x) ** printed * initial > 1e3 * target
    assert (1.0 - x) ** right * initial <= target


def test_one_coefficient_a_layer_fits_one_singular_value_and_not_two() -> None:
    """Lemma 2: the last layer's e_{K+1} = e^L (1 - C (1-e)) vanishes at C = 1/(1-e) alone."""
    losses = [unit(2.0).loss(torch.tensor([[1.0] * 4 + [C]], dtype=DOUBLE)) for C in (1.0, 1.0 / (1.0 - 0.5))]
    assert losses[0] > 1e-5 and losses[1] < 1e-30
    two = Spectra.of(torch.diag(torch.tensor([1.0, 0.8], dtype=DOUBLE))[None], 2.0)
    e, weight = 1.0 - two.relative, two.squared
    design = weight.sqrt() * e**4 * (1.0 - e)
    best = float((design @ (weight.sqrt() * e**4)) / (design @ design))
    assert two.loss(torch.tensor([[1.0] * 4 + [best]], dtype=DOUBLE)) > 1e-6


def test_proposition_3_directions_grow_with_the_square_of_the_matrix(generator: torch.Generator) -> None:
    """Its proof has ‖P‖ = O(‖M‖), which is so without the off-diagonal term of (7) only."""
    M = torch.randn(4, 6, dtype=DOUBLE, generator=generator)
    M = M / torch.linalg.matrix_norm(M, 2)
    U, V = (torch.linalg.qr(torch.randn(k, 4, dtype=DOUBLE, generator=generator)).Q for k in (4, 6))
    sizes = [float(torch.linalg.matrix_norm(direction(scale * M, U, V).P, 2)) for scale in (1.0, 1e3, 1e6)]
    assert sizes[0] <= 2.0 * (1.0 + 2.0)
    assert sizes[2] / sizes[1] == pytest.approx(1e6, rel=0.01)
    # what is right in it: along the curve nothing moves faster than ‖P‖
    P = direction(M, U, V).P
    for first, second in ((-0.01, 0.0), (0.0, 0.7), (-3.0, 2.0)):
        moved = sf.linalg.cayley(P, U, first) - sf.linalg.cayley(P, U, second)
        assert float(torch.linalg.matrix_norm(moved, 2)) <= sizes[0] * abs(first - second)


def test_assumption_1_excludes_the_matrices_of_the_experiments(generator: torch.Generator) -> None:
    A = torch.randn(100, 100, dtype=DOUBLE, generator=generator)
    for deviation, law in ((100**-0.5, 2.0), (100**-0.25, 2.0 * 100**0.25)):
        largest = float(torch.linalg.matrix_norm(deviation * A, 2))
        assert largest == pytest.approx(law, rel=0.15) and largest > 1.0
