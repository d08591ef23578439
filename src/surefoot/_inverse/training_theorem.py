"""``inverse/training``: the paper's theorem on training the coefficients, evaluated and never accepted.

What is true of it (docs/theorems/inverse.md, Theorem 5). The loss (4), 1/(2nK) Σ_i Σ_k ‖A_iX_{k,i}A_i - A_i‖_F², is
never below *floor*, the least weighted squares of the residual polynomials of degree L, L², …, L^K; it is positive
where more than L distinct values of σ²/c0 occur. With one layer the loss is quadratic in C, and gradient descent with
step 1/M contracts loss - floor by (1 - μ/M)², M and μ the largest and the smallest nonzero eigenvalue of its Hessian:
convergence *to the floor*. The printed conclusion, that the loss falls below every ε > 0, needs floor = 0 and is false
without: with A = diag(1, .8, .6, .4, .2) and L = 4 the loss stays above .0013 for K = 5 and all coefficients. Iterations
of its schedule are steps of training, where those of the other theorems are layers.
Reference: "Fast and Differentiable Matrix Inverse and Its Extension to SVD", Theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from surefoot_check.numbers import Number, Quantities
from surefoot_check.statement import Inequality, Schedule, Theorem, chain


class Training(Theorem):
    """Convergence of training, for a loss without a floor."""

    id = "inverse/training"
    statement = (
        "Gradient descent on the coefficients brings the loss below every epsilon: only where the loss has no positive floor, "
        "which it has if more than L distinct singular values occur."
    )
    reference = "Fast and Differentiable Matrix Inverse and Its Extension to SVD, Theorem 1"
    provable = False
    rule = "constant"
    base = ("initial_gap", "floor", "smoothness", "strong_convexity")
    choices = ()

    def derived(self, q: Quantities) -> dict[str, Number]:
        return {"decrease": decrease(q)}

    def conditions(self, q: Quantities) -> list[Inequality]:
        return [
            Inequality("one layer is trained, so that the loss is quadratic: K <= 1", int(q["K"]), "<=", 1),
            Inequality("the loss has no positive floor: floor <= 0", q["floor"], "<=", 0.0),
            Inequality("the loss is not constant: its Hessian is not 0", q["strong_convexity"], ">", 0.0),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        for segment in schedule:
            yield Inequality("the decrease is the theorem's", decrease(q), ">=", segment.decrease)


def decrease(q: Quantities) -> Number:
    """1 - (1 - μ/M)², in the form that does not cancel."""
    ratio = q["strong_convexity"] / q["smoothness"]
    return ratio * (2.0 - ratio)


THEOREM = Training()
