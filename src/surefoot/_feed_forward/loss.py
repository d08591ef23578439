"""The squared loss of a feed-forward network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from surefoot_check.feed_forward.network import Network

from .._core.samples import SampleLoss
from .modules import forward


class NetworkLoss(SampleLoss):
    """½‖f(X) - Y‖²_F, and how the layers of f are made; X (N, d), Y (N, k) or (N,).

    Args:
        X, Y: as ``sf.SquaredLoss``.
        layers: (L, 3), int64: outputs, bias and activation of each layer.
        settings: (L, 2), float64: of the activations.
        frozen: the weights that are not trained, by name.
    """

    kind = Network.kind

    def __init__(self, X: Any, Y: Any, layers: Tensor, settings: Tensor, frozen: Mapping[str, Tensor]) -> None:
        super().__init__(X, Y)
        self.layers, self.settings, self.frozen = layers, settings, frozen

    def arrays(self) -> dict[str, Tensor]:
        return {**super().arrays(), "layers": self.layers, "settings": self.settings, **self.frozen}

    def residual(self, trained: Mapping[str, Tensor]) -> Tensor:
        """f(X) - Y (N, k)."""
        return self.of_rows(self.X, self.Y, trained)

    def of_rows(self, X: Tensor, Y: Tensor, trained: Mapping[str, Tensor]) -> Tensor:
        """The same of some of the rows."""
        return forward(X, self.layers, self.settings, {**self.frozen, **trained}) - Y

    def value(self, trained: Mapping[str, Tensor]) -> Tensor:
        """½‖f(X) - Y‖², a scalar."""
        return 0.5 * self.residual(trained).square().sum()
