"""``step-sizes/as-printed``: the paper's theorem on training the network (its Theorem 4.7), evaluated and never accepted.

Two facts about it (docs/theorems/step-sizes.md, section 8):

1. The printed statement is false: an instance satisfies (13a)-(13d), (14a) and (14b), and F does not move.
2. With (13d) as the proof needs it, with a factor Θ_{L-1}, the hypotheses cannot be met for T ≥ 2.

Everything is a base-10 logarithm, since the quantities overflow. C_ℓ is any positive sequence: the base quantities
are Θ_L, Θ_{L-1}, Σ λ̄_ℓ^-2 and max 1/(C_ℓ λ̄_ℓ) with λ̄_ℓ = ‖W_ℓ‖ + C_ℓ. Iterations of its schedule are steps of
training, where those of the other theorems are steps of the solver.
Reference: "Learning Provably Improves the Convergence of Gradient Descent", Theorem 4.7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from surefoot_check.numbers import Number, Quantities
from surefoot_check.statement import SLACK, Inequality, Schedule, Theorem, chain

Log = float
"""A base-10 logarithm; -inf is that of 0."""


def log10(x: float) -> Log:
    """Base-10 logarithm of x ≥ 0."""
    return math.log10(x) if x > 0.0 else -math.inf


def add(*terms: Log) -> Log:
    """Logarithm of a sum."""
    top = max(terms, default=-math.inf)
    if math.isinf(top):
        return top
    return top + math.log10(math.fsum(10.0 ** (term - top) for term in terms))


def subtract(left: Log, right: Log) -> Log:
    """Logarithm of a difference; -inf where it is not positive."""
    if right >= left:
        return -math.inf
    return left + math.log10(-math.expm1((right - left) * math.log(10.0)))


def log_sigmoid_slope(u: float) -> Log:
    """Logarithm of σ(u)(1 - σ(u)), u ≥ 0."""
    return -(u + 2.0 * math.log1p(math.exp(-u))) / math.log(10.0)


def layer_quantities(norms: Sequence[float], C: Sequence[float] | None = None) -> dict[str, float]:
    """theta, theta_inner, inverse_squares and inverse_largest from the spectral norms ‖W_ℓ‖, ℓ = 1 … L.

    ``C``: the positive numbers of the theorem, 1 each where left out, which is the paper's choice.

    Raises:
        ValueError: fewer than two layers, another number of C than of norms, or a C that is not positive.
    """
    C = [1.0] * len(norms) if C is None else list(C)
    if len(norms) < 2 or len(C) != len(norms) or not all(c > 0.0 for c in C):
        raise ValueError(
            f"norms has {len(norms)} entries and C is {C}; pass one norm and one positive C for each of at least two layers"
        )
    widest = [norm + c for norm, c in zip(norms, C, strict=True)]
    return {
        "theta": math.prod(widest),
        "theta_inner": math.prod(widest[:-1]),
        "inverse_squares": math.fsum(value**-2 for value in widest),
        "inverse_largest": max(1.0 / (c * value) for c, value in zip(C, widest, strict=True)),
    }


@dataclass(frozen=True)
class Scalars:
    """The quantities of the theorem, as logarithms; λ and φ start at j = 1."""

    lambdas: list[Log]
    phis: list[Log]
    delta1: Log
    delta2: Log
    delta3: Log
    delta4: Log

    @property
    def sum_of_lambdas(self) -> Log:
        """ΣΛ_t."""
        return add(*self.lambdas)


def scalars(q: Mapping[str, float]) -> Scalars:
    """(12) and the δ of Theorem 4.7."""
    T, beta, x0, gradient = int(q["T"]), q["beta"], q["norm_X0"], q["norm_MtY"]
    lambdas = [
        log10(
            (1.0 + beta) * x0 * x0
            + ((4 * j - 3) * (1.0 + beta) + beta) / beta * x0 * gradient
            + (2 * j - 1) * (beta * (2 * j - 1) + (2 * j - 2)) / beta**2 * gradient * gradient
        )
        for j in range(1, T + 1)
    ]
    phis = [log10(x0 + (2 * j - 1) / beta * gradient) for j in range(1, T + 1)]
    half = log10(0.5 * (1.0 + beta) * q["theta"])
    growth = [add(0.0, half + phi) for phi in phis]
    # δ = Σ_s (Π_{s<j≤T} growth_j) Λ_s, from the last term down
    products, terms = 0.0, []
    for value, factor in zip(reversed(lambdas), reversed(growth), strict=True):
        terms.append(products + value)
        products += factor
    delta3 = (1.0 + beta) * x0 + (2 * T - 1 + (2 * T - 2) / beta) * gradient
    u = delta3 * q["theta"]
    return Scalars(lambdas, phis, add(*terms), add(*terms[1:]), log10(delta3), log_sigmoid_slope(u))


def right_sides(q: Mapping[str, float]) -> dict[str, Log]:
    """Right-hand sides: 13a-13d as printed, ``13d-needed`` with the factor Θ_{L-1}, 14a, 14b."""
    terms = scalars(q)
    T, beta, beta0, x0 = int(q["T"]), q["beta"], q["beta0"], q["norm_X0"]
    theta, inner, squares = log10(q["theta"]), log10(q["theta_inner"]), log10(q["inverse_squares"])
    total = terms.sum_of_lambdas
    spread = log10(math.sqrt(beta) * x0 + (2 * T + 1) * q["norm_Y"])
    reached = log10(x0 + (2 * T - 2) / beta * q["norm_MtY"])
    ratio = 2.0 * (log10(beta) - log10(beta0)) if beta0 > 0.0 else math.inf
    root = 0.5 * log10(beta)
    drift = add(terms.lambdas[-1], terms.delta2)
    loss = subtract(
        2.0 * theta + squares + drift + total,
        log10(0.5) + 2.0 * inner + terms.lambdas[-1] + add(*terms.lambdas[:-1]),
    )
    step = log10(8.0 * (1.0 + beta)) + reached
    return {
        "13a": theta + log10(q["inverse_largest"]) + ratio + root - log10(8.0) - 2.0 * terms.delta4 + total + spread,
        "13b": log10(0.5 * (1.0 + beta))
        + ratio
        + root
        - 2.0 * terms.delta4
        + theta
        + inner
        + squares
        + spread
        + reached
        + total,
        "13c": ratio + log10(beta) - log10(4.0) - 2.0 * terms.delta4 + loss,
        "13d": step,
        "13d-needed": step + inner,
        "14a": log10(8.0) - log10(beta) + drift - add(terms.delta2, total) - 2.0 * total - theta - squares,
        "14b": log10(0.25) + ratio - 2.0 * terms.delta4 - 2.0 * log10(q["alpha0"]) if q["alpha0"] > 0.0 else math.inf,
    }


def claimed_decrease(q: Mapping[str, float]) -> Log:
    """4η(β0²/β²)δ4α0², the printed decrease of F in a step of training."""
    ratio = 2.0 * (log10(q["beta0"]) - log10(q["beta"]))
    return log10(4.0) + q["log10_learning_rate"] + ratio + scalars(q).delta4 + 2.0 * log10(q["alpha0"])


class AsPrinted(Theorem):
    """Theorem 4.7 with its own constants, in logarithms; floats only, as it proves nothing."""

    id = "step-sizes/as-printed"
    statement = (
        "The paper's Theorem 4.7 on training. Its printed statement has a counterexample: an instance meets all of (13a)-(13d), "
        "(14a), (14b) and F does not move. With (13d) as its proof needs it (a factor Theta_{L-1}) the hypotheses cannot be met "
        "for any T >= 2."
    )
    reference = "Learning Provably Improves the Convergence of Gradient Descent, Theorem 4.7"
    provable = False
    rule = "learned"
    base = (
        "initial_gap",
        "beta",
        "beta0",
        "norm_X0",
        "norm_Y",
        "norm_MtY",
        "alpha0",
        "theta",
        "theta_inner",
        "inverse_squares",
        "inverse_largest",
        "T",
    )
    choices = ("log10_learning_rate",)

    def derived(self, q: Quantities) -> dict[str, Number]:
        terms = scalars(q)
        values = {
            "log10_sum_Lambda": terms.sum_of_lambdas,
            "log10_delta1": terms.delta1,
            "log10_delta2": terms.delta2,
            "log10_delta3": terms.delta3,
            "log10_delta4": terms.delta4,
            "log10_13d_needed": right_sides(q)["13d-needed"],
            "log10_decrease": claimed_decrease(q),
        }
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def conditions(self, q: Quantities) -> list[Inequality]:
        right = right_sides(q)
        alpha, eta = log10(q["alpha0"]), q["log10_learning_rate"]
        return [
            Inequality("(13a) log10 alpha0^2 >= log10 of its right side", 2.0 * alpha, ">=", right["13a"]),
            Inequality("(13b) log10 alpha0^3 >= log10 of its right side", 3.0 * alpha, ">=", right["13b"]),
            Inequality("(13c) log10 alpha0^2 >= log10 of its right side", 2.0 * alpha, ">=", right["13c"]),
            Inequality("(13d) log10 alpha0 >= log10 of its right side", alpha, ">=", right["13d"]),
            Inequality("(14a) log10 eta < log10 of its right side", eta, "<", right["14a"]),
            Inequality("(14b) log10 eta < log10 of its right side", eta, "<", right["14b"]),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        for segment in schedule:
            yield Inequality(
                "the decrease is the printed one", log10(segment.decrease), "<=", claimed_decrease(q) + SLACK
            )


THEOREM = AsPrinted()
