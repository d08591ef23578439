"""Two-layer linear networks f(X) = X W1 W2ᵀ, W1 (n, h), W2 (m, h): docs/theorems/two-layer.md and the theorems' pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpmath import mpf

from . import prescribed
from .losses import Arrays, loss_of
from .reference import UNIT, Matrix, Reference, eigenvalues, exact, frobenius, norm, of_norms, singular_values


@dataclass(frozen=True)
class Imbalance:
    """Of D = W1ᵀW1 - W2ᵀW2: the eigenvalues λ_1 ≥ … ≥ λ_h that theorems name, where positive."""

    plus: mpf
    minus: mpf
    nth: mpf
    mth: mpf

    @classmethod
    def of(cls, W1: Matrix, W2: Matrix) -> Imbalance:
        values = eigenvalues(W1.T * W1 - W2.T * W2)
        n, m, h, zero = W1.rows, W2.rows, W1.cols, mpf(0)
        return cls(
            max(values[0], zero),
            max(-values[-1], zero),
            max(values[n - 1], zero) if n <= h else zero,
            max(-values[h - m], zero) if m <= h else zero,
        )


def quantities(kind: object, problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    if "scale" in published:
        return prescribed.quantities(kind, problem, weights, published)
    loss, W1, W2 = loss_of(kind, problem), exact(weights["W1"]), exact(weights["W2"])
    W, size = W1 * W2.T, norm(W1) ** 2 + norm(W2) ** 2
    D, gap = Imbalance.of(W1, W2), loss.gap(W)
    references = {
        "smoothness": loss.smoothness,
        "strong_convexity": loss.strong_convexity,
        "initial_gap": Reference(gap, loss.gap_slack(gap, size)),
        "sigma_max_squared": Reference(size, of_norms(size, size)),
    }
    references |= {
        name: Reference(value, of_norms(value, size))
        for name, value in (
            ("lambda_plus", D.plus),
            ("lambda_minus", D.minus),
            ("lambda_n", D.nth),
            ("lambda_m", D.mth),
        )
    }
    if loss.optimum is None:
        return references
    values, apart, error = singular_values(loss.optimum), frobenius(W - loss.optimum), loss.optimum_error
    around = error + 4096 * UNIT * (size + frobenius(loss.optimum))
    return references | {
        "optimum_sigma_min": Reference(values[-1], of_norms(values[-1], values[0]) + error),
        "optimum_sigma_max": Reference(values[0], of_norms(values[0], values[0]) + error),
        "initial_distance": Reference(apart, 1e-9 * apart + around),
    }


def gap(kind: object, problem: Arrays, weights: Arrays) -> mpf:
    return loss_of(kind, problem).gap(exact(weights["W1"]) * exact(weights["W2"]).T)
