"""Rigorous enclosures of the Jacobian of all outputs of an implicit network, and of how much it changes on a ball.

The rows of J belong to the outputs of all rows of X, row by row. It is never formed: output c of row i has the adjoint
k = D_i∘(b_c + γAk), D = 1[γZA + relu(XW) > 0], and the derivatives x_i(E_i∘k)ᵀ in W, E = 1[XW > 0], γz_ikᵀ in A and z_i in b_c:
JJᵀ = (XXᵀ)∘((E∘K)(E∘K)ᵀ) + (ZZᵀ)∘(γ²KKᵀ + [same output]), each row of X as often as there are outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import TooLargeError
from ..near_a_fit.kinks import WIDEST, fits, least_margin
from ..near_a_fit.measuring import NearAFit
from ..problems import LARGEST_PRODUCT, Samples
from ..rigor.approximation import Approximation
from ..rigor.balls import ball, float_above
from ..rigor.bounds import Array, array_up, down, frobenius_upper, up
from ..rigor.gram import extreme_bounds, gram_of, norm_bounds, symmetric_extremes
from ..rigor.intervals import Interval
from ..rigor.many_norms import norms_of_rows, spectral_norms
from ..rigor.pivots import PRECISION, largest_eigenvalue
from .enclosures import Measured, argument
from .lipschitz import Centre, stays_in_range, stretch, symmetric_bend

OPERATIONS = 64
"""Of a bound of a change, at most."""
LARGEST = 1 << 33
"""Multiplications up to which the response of each row of X is bounded by itself, else all of them at once."""


class Jacobian(NearAFit):
    """What the base quantities are computed from; each part is measured once, when it is needed. ``TooLargeError`` for arrays of
    which a few numbers would fill the memory."""

    def __init__(self, problem: Samples, weights: Mapping[str, Array]) -> None:
        outputs, m = problem.Y.size, len(weights["A"])
        for what, entries in (("the Gram matrix of the Jacobian", outputs**2), ("its adjoints", outputs * m)):
            if entries > LARGEST_PRODUCT:
                raise TooLargeError(f"{what} would have {entries:,} entries; at most {LARGEST_PRODUCT:,} are computed")
        self.at, self.level = Measured(problem, weights), problem.level
        self.X, self.A, self.b = problem.X, weights["A"], weights["b"]
        self.gamma, self.outputs = float(weights["gamma"]), weights["b"].shape[1]

    @cached_property
    def residual(self) -> Approximation:
        """Zb - Y (N, p)."""
        return self.at.residual

    @property
    def active(self) -> np.ndarray:
        """D (N, m), an array of bool; of entries nearer to 0 than their error either may be."""
        return self.at.argument.value > 0.0

    @cached_property
    def adjoints(self) -> Approximation:
        """K (N p, m), output by output of one row after the other."""
        active = np.repeat(self.active, self.outputs, axis=0)
        offset, transposed = Approximation(np.tile(self.b.T, (len(self.X), 1))), np.ascontiguousarray(self.A.T)
        q = self.at.contraction
        found = argument(transposed, offset, self.gamma, q, lambda K: np.where(active, K, 0.0), self.level)
        unsure = np.repeat(_unsure(self.at.argument), self.outputs, axis=0)
        error = found.error
        if unsure.any():  # by what the adjoint moves if these entries are on the other side
            error = up(error + up(frobenius_upper(found.value[unsure]) + error) / down(1.0 - q), 2)
        return Approximation(np.where(active, found.value, 0.0), error)

    @cached_property
    def driven(self) -> Approximation:
        """E∘K."""
        K, sign = self.adjoints, self.at.drive
        positive, unsure = (np.repeat(S, self.outputs, axis=0) for S in (sign.value > 0.0, _unsure(sign)))
        error = up(K.error + frobenius_upper(K.value[unsure]))
        return Approximation(np.where(positive, K.value, 0.0), error)

    @cached_property
    def gram(self) -> Approximation:
        """JJᵀ (N p, N p)."""
        N, p = len(self.X), self.outputs
        of_Z, of_X = self._for_outputs(self.at.gram), self._for_outputs(gram_of(Approximation(self.X), self.level))
        same = Approximation(np.tile(np.eye(p), (N, N)))
        of_A = gram_of(self.adjoints.times(self.gamma), self.level)
        return of_X * gram_of(self.driven, self.level) + of_Z * (of_A + same)

    def _for_outputs(self, G: Approximation) -> Approximation:
        """Each row and column as often as there are outputs."""
        p = self.outputs
        return Approximation(np.repeat(np.repeat(G.value, p, axis=0), p, axis=1), up(p * G.error))

    @cached_property
    def responses(self) -> Array:
        """Upper bounds (N,) of ‖(I - γD_iAᵀ)⁻¹D_i‖, which is 1/σ_min(I - γA_i) of the rows and columns of active units."""
        most = _reciprocal(1.0 - self.at.contraction)
        if sum(int(count) ** 3 for count in self.active.sum(axis=1)) > LARGEST:
            return np.full(len(self.X), min(most, self._response))
        found = np.full(len(self.X), most)
        for row, active in enumerate(self.active):
            part = Approximation(self.A[np.ix_(active, active)]).times(self.gamma)
            M = Approximation(np.eye(len(part.value))) - part
            if active.any():
                found[row] = min(most, _reciprocal(extreme_bounds(M.value, self.level)[0][0] - M.error))
        return found

    @property
    def _response(self) -> float:
        """Upper bound of all of them, 1/(1 - γω) with the largest eigenvalue ω of ½(A + Aᵀ): v = γD_iAᵀv + D_iw has
        ‖v‖² = γvᵀAᵀv + vᵀw."""
        both = Approximation(self.A) + Approximation(self.A.T)
        largest = 0.5 * symmetric_extremes(both.value, self.level, both.error)[1][1]
        return _reciprocal(1.0 - up(self.gamma * largest))

    @cached_property
    def centre(self) -> Centre:
        """What the lemma asks for."""
        K = self.adjoints
        sizes = spectral_norms(K.value.reshape(len(self.X), self.outputs, -1), self.level) + K.error
        X, Z, responses, sizes = Approximation(self.X), self.at.Z, self.responses, array_up(sizes, 1)
        both = array_up(responses * sizes, 1)
        weighted = (self._weighted(weights, of) for weights in (responses, both) for of in (X, Z))
        return Centre(self.gamma, self.at.norm_A[1], float(responses.max()), float(sizes.max()), *weighted)

    def _weighted(self, weights: Array, of: Approximation) -> float:
        """Upper bound of the norm of the array with its rows multiplied."""
        error = up(float(weights.max()) * of.error)
        found = Approximation.rounded(weights[:, None] * of.value, error, underflow=True)
        return up(norm_bounds(found.value, self.level)[1] + found.error)

    def lipschitz(self, radius: float) -> float:
        """Upper bound of Λ on the ball of this radius; infinite where there is none."""
        return self._in_range(radius, lambda at, rho: largest_eigenvalue(symmetric_bend(at, rho)))

    def _in_range(self, radius: float, function: Callable[[Centre, Any], float]) -> float:
        """The function of the centre and the radius as balls; infinite out of range."""
        from flint import ctx

        with ctx.workprec(PRECISION):  # the same for certifier and checker
            at, rho = self.centre.each(ball), ball(radius)
            return function(at, rho) if stays_in_range(at, rho) else math.inf

    def kink_margins(self, radius: float) -> tuple[Array, Array]:
        """Lower bounds (N, m) of how often the change on the ball fits into the distance from 0 of each entry of γZA + relu(XW),
        and of each of XW that counts: where γZA + relu(XW) > 0."""
        U, V = self.at.argument, self.at.drive
        tau = self._in_range(radius, lambda at, rho: float_above(stretch(at, rho)))
        if tau == math.inf:
            return np.zeros_like(U.value), np.zeros_like(V.value)
        rows = norms_of_rows(self.X)
        steps = np.sqrt(np.square(self.gamma * (norms_of_rows(self.at.Z.value) + self.at.Z.error)) + np.square(rows))
        columns = norms_of_rows(self.A.T) + radius
        moved = radius * steps[:, None] * (1.0 + self.gamma * np.outer(tau * self.responses, columns))
        of_V = fits(np.abs(V.value), V.error, np.broadcast_to((radius * rows)[:, None], V.value.shape), OPERATIONS)
        return fits(np.abs(U.value), U.error, moved, OPERATIONS), np.where(self.active, of_V, WIDEST)

    def on_ball(self, radius: float) -> dict[str, Interval]:
        return {
            "lipschitz_J": (0.0, self.lipschitz(radius)),
            "kink_margin": least_margin(*self.kink_margins(radius)),
        }

    def base_quantities(self, quantities: Mapping[str, float]) -> dict[str, Interval]:
        """None where γ‖A‖ < 1 is not certain."""
        return super().base_quantities(quantities) if math.isfinite(self.at.Z.error) else {}


def _reciprocal(difference: float) -> float:
    """Upper bound of 1/x of a computed difference x; infinite where that is not certainly positive."""
    least = down(difference)
    return up(1.0 / least) if least > 0.0 else math.inf


def _unsure(A: Approximation) -> np.ndarray:
    """Whether an entry may have another sign than it was computed with. An array of bool."""
    return np.abs(A.value) <= A.error
