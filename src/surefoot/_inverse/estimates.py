"""The paper's generalisation bounds (its Theorems 2 and 3), evaluated as estimates.

They are no guarantees: every term stands behind an O or Õ whose constant the paper does not give, their conditions are
Ω's, and Theorem 2 rests on the training of Theorem 1, which is false as printed (docs/theorems/inverse.md, Theorem 5).
What is left is the order of magnitude by which they say that the gap between training and expected loss moves with n,
K, L and d. Each hidden constant is named and set to 1 unless you give it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .._core.validate import nonnegative, positive_integer, unknown


@dataclass(frozen=True)
class Estimate:
    """An order of magnitude, not a bound.

    Attributes:
        value: the sum of the terms that the theorem adds, with the constants below.
        terms: each by name.
        constants: what the paper hides, by name, as used.
        conditions: each hypothesis, and whether it holds with the constants as used; "unknown" where it cannot be checked.
        source: the theorem.
    """

    value: float
    terms: Mapping[str, float]
    constants: Mapping[str, float]
    conditions: Mapping[str, bool | str]
    source: str
    guarantee: bool = field(default=False, init=False)

    def __str__(self) -> str:
        lines = [f"estimate {self.value:.3g}, not a guarantee ({self.source})"]
        lines += [f"  {name}: {value:.3g}" for name, value in self.terms.items()]
        lines += [f"  hidden constant {name} = {value:g}" for name, value in self.constants.items()]
        lines += [f"  {name}: {value}" for name, value in self.conditions.items()]
        return "\n".join(lines)


def inverse_generalization(
    n: int,
    d: int,
    layers: int,
    terms: int,
    *,
    alpha: float = 1.0,
    weight_bound: float = 1.0,
    delta: float = 0.05,
    constants: Mapping[str, float] | None = None,
) -> Estimate:
    """Expected minus training loss of a learned inverse, by the paper's Theorem 2: min{b_w² d³ L/K^{α/2}, (d³K/n)^½} +
    (ln(1/δ)/n)^½.

    Args:
        n, d: number of training matrices, and of singular values of each.
        layers, terms: K and L.
        alpha: the start is |C - 1| = O(K^-α).
        weight_bound: b_w of the paper's random weights.
        delta: the probability that it fails.
        constants: "perturbation" and "covering" of the two terms of the minimum, which also hide logarithms,
            "confidence" of the last term, "width" of the condition K^{2α-1/2} = Ω(√n).

    Raises:
        ValueError: numbers out of range, or an unknown constant.
    """
    n, d = positive_integer("n", n), positive_integer("d", d)
    K, L = positive_integer("layers", layers), positive_integer("terms", terms)
    alpha, bound = nonnegative("alpha", alpha), nonnegative("weight_bound", weight_bound)
    c = _constants(("perturbation", "covering", "confidence", "width"), constants)
    few = c["perturbation"] * bound**2 * d**3 * L / K ** (alpha / 2)
    many = c["covering"] * math.sqrt(d**3 * K / n)
    confidence = c["confidence"] * _confidence(delta, n)
    return Estimate(
        min(few, many) + confidence,
        {"perturbation (K large)": few, "covering (n large)": many, "confidence": confidence},
        c,
        {
            "alpha >= 1": alpha >= 1.0,
            "K^(2 alpha - 1/2) >= width sqrt(n)": K ** (2 * alpha - 0.5) >= c["width"] * math.sqrt(n),
            "the iterates are those of the paper's Theorem 1": "unknown",
        },
        "Fast and Differentiable Matrix Inverse and Its Extension to SVD, Theorem 2",
    )


def svd_generalization(
    n: int,
    d: int,
    layers: int,
    inverse_layers: int,
    terms: int,
    *,
    delta: float = 0.05,
    constants: Mapping[str, float] | None = None,
) -> Estimate:
    """Expected minus training loss of a learned SVD, by the paper's Theorem 3: (K_svd³ L/n)^½ + (ln(1/δ)/n)^½, for ‖M‖ ≤ 1.

    Args:
        n, d: number of training matrices, and their larger size.
        layers, inverse_layers: K_svd and K_inv.
        terms: L.
        delta: the probability that it fails.
        constants: "covering" of the first term, which also hides logarithms, "confidence" of the second, "depth" of the
            condition K_inv = Ω(max{nd, K_svd²}).

    Raises:
        ValueError: numbers out of range, or an unknown constant.
    """
    n, d = positive_integer("n", n), positive_integer("d", d)
    K, L = positive_integer("layers", layers), positive_integer("terms", terms)
    inner = positive_integer("inverse_layers", inverse_layers)
    c = _constants(("covering", "confidence", "depth"), constants)
    covering = c["covering"] * math.sqrt(K**3 * L / n)
    confidence = c["confidence"] * _confidence(delta, n)
    return Estimate(
        covering + confidence,
        {"covering": covering, "confidence": confidence},
        c,
        {
            "K_inv >= depth max(n d, K_svd^2)": inner >= c["depth"] * max(n * d, K**2),
            "every matrix has norm at most 1": "unknown",
        },
        "Fast and Differentiable Matrix Inverse and Its Extension to SVD, Theorem 3",
    )


def _constants(names: tuple[str, ...], given: Mapping[str, float] | None) -> dict[str, float]:
    """1 for each, or as given."""
    result = dict.fromkeys(names, 1.0)
    for name, value in (given or {}).items():
        if name not in names:
            raise unknown("constant", name, names)
        result[name] = nonnegative(name, value)
    return result


def _confidence(delta: float, n: int) -> float:
    if not 0.0 < nonnegative("delta", delta) < 1.0:
        raise ValueError(f"delta is {delta}; it must be a probability between 0 and 1")
    return math.sqrt(math.log(1.0 / delta) / n)
