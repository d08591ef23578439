"""The squared loss of a feed-forward network."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from surefoot_check.feed_forward.groups import Groups
from surefoot_check.feed_forward.network import MultipleOfSquares, Network

from .._core.draws import Draws
from .._core.samples import SampleLoss
from .modules import forward


class NetworkLoss(SampleLoss):
    """½c‖f(X) - Y‖²_F, and how the layers of f are made; X (N, d), Y (N, k) or (N,).

    Gaps are measured from the least value that it can have: the scatter of the targets of equal rows, 0 where all differ.

    Attributes:
        groups: of equal rows.
        merged: one row of each (G, d), the mean of its targets (G, k), and the root of c times how many it has (G, 1).
        draws: of mini-batches of its rows; ``None`` where steps are along the full gradient.

    Args:
        X, Y: as ``sf.SquaredLoss``.
        layers: (L, 3), int64: outputs, bias and activation of each layer.
        settings: (L, 2), float64: of the activations.
        frozen: the weights that are not trained, by name.
        multiple: c.
    """

    draws: Draws | None = None

    def __init__(
        self,
        X: Any,
        Y: Any,
        layers: Tensor,
        settings: Tensor,
        frozen: Mapping[str, Tensor],
        multiple: Fraction = Fraction(1),
    ) -> None:
        super().__init__(X, Y)
        self.layers, self.settings, self.frozen, self.multiple = layers, settings, frozen, multiple
        self.kind = (Network if multiple == 1 else MultipleOfSquares).kind
        self.groups = Groups(self.X.cpu().numpy(), self.Y.cpu().numpy(), multiple)
        self.optimal_value = self.groups.scatter
        roots, means, first = (
            torch.from_numpy(part).to(self.X.device)
            for part in (self.groups.roots.value, self.groups.means.value, self.groups.first)
        )
        self.merged = self.X[first], means, roots[:, None]

    def arrays(self) -> dict[str, Tensor]:
        found = {**super().arrays(), "layers": self.layers, "settings": self.settings, **self.frozen}
        if self.multiple != 1:
            found["multiple"] = torch.tensor([[self.multiple.numerator, self.multiple.denominator]])
        return found

    def residual(self, trained: Mapping[str, Tensor]) -> Tensor:
        """√(cm)(f(x) - ȳ) (G, k) of the G groups of m equal rows x with mean target ȳ: √c(f(X) - Y) where all differ."""
        return self.of_rows(*self.merged, trained)

    def of_rows(self, X: Tensor, Y: Tensor, roots: Tensor, trained: Mapping[str, Tensor]) -> Tensor:
        """The same of some of ``merged``."""
        return roots * (forward(X, self.layers, self.settings, {**self.frozen, **trained}) - Y)

    def value(self, trained: Mapping[str, Tensor]) -> Tensor:
        """The loss less its least value, a scalar."""
        return 0.5 * self.residual(trained).square().sum()
