"""Rigorous enclosures of the Hessian of a training objective, and of how much it changes on a ball.

With ż_l = T_l u for all rows, T_l = (φ'∘T_{l-1})W_lᵀ + ã_{l-1}·, p_l = ∂(cℓ)/∂a_l and δ_l = ∂(cℓ)/∂z_l, the Hessian is

    c T_LᵀℓʺT_L + Σ_{l<L} T_lᵀ diag(p_l φ''_l) T_l + Σ_{1<l} (K_l + K_lᵀ) + decay I,

where the rows of K_l belong to the entries (j, m) of W_l: Σ_i δ_{l,ij} φ'_{l-1,im} T_{l-1,im}. The change: Lemma 2 of
docs/theorems/feed-forward.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.balls import ball, float_above, float_below, rational
from ..rigor.bounds import ETA, UNIT_ROUNDOFF, Array, frobenius_upper, up
from ..rigor.exact import softmax
from ..rigor.gram import symmetric_extremes
from ..rigor.intervals import Interval, bounded
from ..rigor.pivots import PRECISION, largest_eigenvalue
from .enclosures import Measured, has_sharper_bound
from .gradient import half_square
from .layer import Layer
from .lipschitz import along, norm, symmetric
from .network import Objective
from .sharp_centre import weighted
from .sharp_hessian import SECOND, ByLayers, RowWise
from .smooth import SMOOTH

THIRD = {False: 0.0, True: 0.2721655269759087}
"""By whether the loss of a row is the cross-entropy: a bound of its third derivative, √6/9 rounded up: the third central moment
of a vector of norm 1 under a distribution."""


class Curvature:
    """The Hessian of an objective at weights."""

    def __init__(self, problem: Objective, weights: Mapping[str, Array]) -> None:
        self.problem, self.weights = problem, weights
        self.at = Measured(problem, weights)
        self.scale = float(problem.scale)

    @cached_property
    def gap(self) -> Interval:
        """Enclosure of ½‖∇L‖²."""
        return gap_bounds(self.problem, self.weights)

    @cached_property
    def outcome(self) -> Approximation:
        """f for the squared loss, softmax(f) for the cross-entropy (N, k)."""
        from flint import ctx

        f = self.at.layers[-1].before
        if not self.problem.entropy:
            return f
        with ctx.workprec(PRECISION):
            # FLINT's at both levels: numpy's bound would be most of the error of the Hessian
            value, error = softmax(f.value)
        return Approximation(value, up(error + 0.5 * f.error, 2))  # softmax is ½-Lipschitz

    @cached_property
    def slope(self) -> Approximation:
        """∇ℓ at each row (N, k)."""
        masses, outcome = self.problem.masses, self.outcome
        return (outcome if masses is None else outcome * masses) - self.problem.targets

    def _scaled(self, A: Approximation) -> Approximation:
        """cA: c is a quotient, rounded once."""
        found = A.times(self.scale)
        return Approximation(found.value, up(found.error + 2.0 * UNIT_ROUNDOFF * found.norm(), 4))

    @cached_property
    def back(self) -> list[tuple[Approximation, Approximation]]:
        """For each layer δ_l and φ''_l p_l, the second 0 for the last."""
        delta = self._scaled(self.slope)
        found = [(delta, Approximation(np.zeros_like(delta.value)))]
        for before, layer in zip(reversed(self.at.layers[:-1]), reversed(self.at.layers[1:]), strict=True):
            pulled = delta.T.image(layer.W.T, layer.norm, self.problem.level).T
            delta = pulled * before.slopes
            found.insert(0, (delta, pulled * self._second(before)))
        return found

    def _second(self, layer: Layer) -> Approximation:
        """φ''(z)."""
        kind, z = layer.kind, layer.before
        smooth = SMOOTH[kind.activation.code]
        found = smooth.second(z.value, kind.settings, self.problem.level)
        return Approximation(found.value, up(found.error + smooth.third(kind.settings) * z.error, 2))

    @cached_property
    def places(self) -> list[int]:
        """Where the weights of each layer begin in θ, and p: W row by row, then b, of those that are trained."""
        return [0, *np.cumsum([layer.kind.parameters for layer in self.at.layers]).tolist()]

    def _direct(self, number: int) -> Approximation:
        """ã_{l-1}· of a layer (width, N, p)."""
        layer, place = self.at.layers[number], self.places[number]
        a, kind = layer.inputs, layer.kind
        found = np.zeros((kind.outputs, len(a.value), self.places[-1]))
        for j in range(kind.outputs if kind.trains_W else 0):
            start = place + j * kind.inputs
            found[j, :, start : start + kind.inputs] = a.value
        for j in range(kind.outputs if kind.trains_b else 0):
            found[j, :, place + kind.outputs * kind.inputs * kind.trains_W + j] = 1.0
        return Approximation(found, up(math.sqrt(kind.outputs) * a.error, 2) if kind.trains_W else 0.0)

    def _next(self, number: int, G: Approximation) -> Approximation:
        """T of a layer from G = φ'∘T of the one before."""
        W, (width, N, p) = self.at.layers[number], G.value.shape
        flat = Approximation(G.value.reshape(width, N * p), G.error)
        moved = flat.image(W.W, W.norm, self.problem.level)
        return Approximation(moved.value.reshape(-1, N, p), moved.error) + self._direct(number)

    def _output_part(self, T: Approximation) -> Approximation:
        """c ℓ'' T_L: that of the cross-entropy is diag(s) - ssᵀ with s the softmax, times the mass of the row."""
        if not self.problem.entropy:
            return self._scaled(T)
        s, k = self.outcome, len(T.value)
        each = weighted(T, s)
        # a sum of k terms errs by at most k u times the sum of their magnitudes, which has at most √k times their norm
        error = math.sqrt(k) * (each.error + 2.0 * k * UNIT_ROUNDOFF * each.norm())
        mean = Approximation(np.broadcast_to(each.value.sum(axis=0), T.value.shape), up(math.sqrt(k) * error, 8))
        masses = self.problem.masses
        return self._scaled(weighted(T - mean, s if masses is None else s * masses))

    def _product(self, A: Approximation, B: Approximation) -> Approximation:
        """AᵀB, of matrices with as many rows."""
        value, error = self.problem.level.product(np.ascontiguousarray(A.value.T), B.value)
        return Approximation(value, up(error + A.error * B.norm() + frobenius_upper(A.value) * B.error, 4))

    def _mixed(self, number: int, G: Approximation) -> Approximation:
        """K of a layer from G = φ'∘T of the one before: a row for each entry of W."""
        width, N, p = G.value.shape
        rows = np.ascontiguousarray(G.value.transpose(1, 0, 2)).reshape(N, width * p)
        K = self._product(self.back[number][0], Approximation(rows, G.error))
        return Approximation(K.value.reshape(-1, p), K.error)

    @cached_property
    def parts(self) -> tuple[Approximation, Approximation]:
        """c T_LᵀℓʺT_L and the rest of ∇²L (p, p), both exactly symmetric."""
        places, layers = self.places, self.at.layers
        p = places[-1]
        outer = rest = Approximation(np.zeros((p, p)))
        T = self._direct(0)
        for number, layer in enumerate(layers):
            if number:
                G = weighted(T, layers[number - 1].slopes)
                if layer.kind.trains_W:
                    K = self._mixed(number, G)
                    both = np.zeros((p, p))
                    both[places[number] : places[number] + layer.W.size] = K.value
                    rest = rest + Approximation(both, K.error) + Approximation(both.T, K.error)
                T = self._next(number, G)
            last = number == len(layers) - 1
            inner = self._output_part(T) if last else weighted(T, self.back[number][1])
            product = self._product(*(Approximation(A.value.reshape(-1, p), A.error) for A in (T, inner)))
            outer, rest = (product, rest) if last else (outer, rest + product)
        rest = rest + Approximation(np.diag(np.full(p, self.problem.decay)))
        return symmetrised(outer), symmetrised(rest)

    @cached_property
    def hessian(self) -> Approximation:
        """∇²L (p, p), exactly symmetric."""
        outer, rest = self.parts
        return outer + rest

    @cached_property
    def _lifted(self) -> Approximation:
        """∇²L, plus a multiple of the projector onto what only shifts all outputs of a row alike, where L is blind to it: such a
        shift changes no probability, and without decay nothing. The multiple is at least the least eigenvalue on the complement,
        and no more than the largest."""
        H, kind, place = self.hessian, self.at.layers[-1].kind, self.places[-2]
        k, inner = kind.outputs, kind.outputs * kind.inputs * kind.trains_W
        of_last = np.diag(H.value)[place:]
        if not self.problem.entropy or self.problem.decay > 0.0 or k < 2 or not of_last.max(initial=0.0) > 0.0:
            return H
        ones, shifts = np.full((k, k), float(of_last.max()) / (k - 1)), np.zeros_like(H.value)
        if kind.trains_W:
            shifts[place : place + inner, place : place + inner] = np.kron(ones, np.eye(kind.inputs))
        if kind.trains_b:
            shifts[place + inner :, place + inner :] = ones
        return H + Approximation(shifts)

    @cached_property
    def eigenvalues(self) -> tuple[Interval, Interval]:
        """Enclosures of the least eigenvalue, or of 0 where it is negative, and of the norm; on the weights that L sees."""
        H = self._lifted
        (least, most), (lowest, highest) = symmetric_extremes(H.value, self.problem.level, H.error)
        return (max(0.0, least), max(0.0, most)), (max(0.0, lowest, -most), max(highest, -least))

    @cached_property
    def rows(self) -> RowWise:
        """What the sharper lemma on the change of the Hessian asks of the network."""
        outer = self.parts[0]
        largest = symmetric_extremes(outer.value, self.problem.level, outer.error)[1][1]
        return RowWise(self.problem, self.at, self.outcome, self._scaled(self.slope), max(0.0, largest))

    def lipschitz(self, radius: float) -> float:
        """Upper bound of the Lipschitz constant of the Hessian on the ball of this radius; infinite where there is none."""
        by_layers, bent = self.by_layers(radius)
        return min(by_layers, self.rows.bound(radius, bent)) if has_sharper_bound(self.problem) else by_layers

    def by_layers(self, radius: float) -> tuple[float, ByLayers]:
        """That of Lemma 2 in ball arithmetic, and what Lemma 5 takes of it."""
        from flint import ctx

        layers, entropy = self.at.layers, self.problem.entropy
        with ctx.workprec(PRECISION):
            bounds, rho = self.at.in_balls, ball(radius)
            found = [(norm(c), norm(r), largest_eigenvalue(symmetric(M))) for c, r, M in along(bounds, rho)]
            q = 0.0 * rho
            for number, (before, layer) in enumerate(itertools.pairwise(bounds)):
                c, r, m = found[number]
                kind = layers[number].kind
                third = SMOOTH[kind.activation.code].third(kind.settings)
                within = layer.moves * rho
                q = before.slope * (layer.norm + within) * q
                q += (layer.column + within) * (third * r * r * c + 3 * before.bend * r * m)
                q += 3 * layer.moves * (before.bend * r * c + before.slope * m)
            c, r, m = found[-1]
            mass = ball(self.problem.largest_mass)
            second, third = mass * SECOND[entropy], mass * THIRD[entropy]
            slope = ball(self.slope.norm()) + second * c * rho
            scale = rational(self.problem.scale)
            bent = scale * slope * q
            total = scale * (third * r * c * c + 3 * second * c * m) + bent
            return finite_above(total), ByLayers(*map(finite_above, (r, ball(1.0) * m, bent)))

    def base_quantities(self, quantities: Mapping[str, float]) -> dict[str, Interval]:
        """Enclosures of the quantities in ``minimum.DIRECTIONS``; those of the ball for its radius, ``ball``."""
        least, largest = self.eigenvalues
        found: dict[str, Interval] = {"initial_gap": self.gap, "lambda_min_H": least, "norm_H": largest}
        radius = quantities.get("ball", math.nan)
        if radius >= 0.0:
            found["lipschitz_H"] = 0.0, self.lipschitz(radius)
        return bounded(found)


def symmetrised(A: Approximation) -> Approximation:
    """½(A + Aᵀ), which is no farther from what is symmetric."""
    rounding = 2.0 * UNIT_ROUNDOFF * frobenius_upper(A.value) + 2.0 * ETA * A.value.size
    return Approximation(0.5 * (A.value + A.value.T), up(A.error + rounding, 4))


def finite_above(x: Any) -> float:
    """The float above a ball; infinite of one that is not finite."""
    return float_above(x) if x.is_finite() else math.inf


def gap_bounds(problem: Objective, weights: Mapping[str, Array]) -> Interval:
    """Enclosure of ½‖∇L‖²."""
    lower, upper = half_square(problem, weights)
    return (0.0 if lower is None else max(0.0, float_below(lower))), float_above(upper)
