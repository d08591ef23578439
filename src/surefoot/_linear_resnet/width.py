"""Width conditions of the paper's corollaries: estimates, because their absolute constants are not given."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .._core.brief import brief
from .._core.losses import SquaredLoss
from .._core.validate import positive_integer


@dataclass(frozen=True)
class WidthEstimate:
    """One condition m ≥ C · ``value``, C an absolute constant that the source does not specify.

    Attributes:
        source: corollary or proposition.
        formula: in the paper's symbols.
        value: the formula without its constant.
    """

    source: str
    formula: str
    value: float

    __repr__ = brief

    def __str__(self) -> str:
        return f"{self.source}: m >= C * {self.value:,.0f}, C unspecified   [{self.formula}]"


def width_estimates(
    loss: SquaredLoss, *, batch_size: int | None = None, delta: float = 0.1, target: float = 1e-2
) -> list[WidthEstimate]:
    """The width conditions for Gaussian A and B (``scaling="unit"``) on this data; never a guarantee.

    Args:
        loss: gives n, d, k, the rank r and κ = ‖X‖²/σ_r².
        batch_size: B of the SGD corollaries; by default n.
        delta: failure probability.
        target: ε relative to the initial loss, of Corollary 3.7.

    Returns:
        Estimates of Proposition 3.3 and of Corollaries 3.4 (also in our form), 3.7 and 3.9 of the linear ResNet paper.

    Raises:
        ValueError: delta or target not between 0 and 1, or a batch larger than n.

    Example:
        >>> X = torch.eye(3).repeat(10, 1)  # as well conditioned as can be
        >>> loss = sf.SquaredLoss(X, X)
        >>> for estimate in sf.sgd.width_estimates(loss, batch_size=10):
        ...     print(f"{estimate.source}: {estimate.value:,.0f} times a constant")
        Proposition 3.3: 8 times a constant
        Corollary 3.4 (GD): 51 times a constant
        Corollary 2 of docs/theorems/linear-resnet.md (GD): 51 times a constant
        Corollary 3.7 (SGD): 1,721 times a constant
        Corollary 3.9 (SGD, interpolation): 84 times a constant
    """
    for name, value in (("delta", delta), ("target", target)):
        if not 0.0 < value < 1.0:
            raise ValueError(f"{name} is {value!r}; it must lie between 0 and 1")
    n, (d, k) = loss.statistics.rows, loss.shape
    size = n if batch_size is None else positive_integer("batch_size", batch_size)
    if size > n:
        raise ValueError(f"batch_size is {size}; the data has {n} rows")
    r, kappa = loss.reduced.shape[0], loss.smoothness / loss.strong_convexity
    extra = k + d + math.log(1.0 / delta)
    batches = (n / size) ** 2
    logarithm = math.log(n / delta)
    return [
        WidthEstimate("Proposition 3.3", "d + k + log(1/delta)", extra),
        WidthEstimate(
            "Corollary 3.4 (GD)",
            "max(k r kappa^2 log(n/delta), k + d + log(1/delta))",
            max(k * r * kappa**2 * logarithm, extra),
        ),
        WidthEstimate(
            "Corollary 2 of docs/theorems/linear-resnet.md (GD)",
            "max(k r kappa log(n/delta), k + d + log(1/delta))",
            max(k * r * kappa * logarithm, extra),
        ),
        WidthEstimate(
            "Corollary 3.7 (SGD)",
            "k r kappa^2 log^2(1/epsilon) n^2/B^2 + d",
            k * r * kappa**2 * math.log(1.0 / target) ** 2 * batches + d,
        ),
        WidthEstimate("Corollary 3.9 (SGD, interpolation)", "k r kappa^2 n^2/B^2 + d", k * r * kappa**2 * batches + d),
    ]
