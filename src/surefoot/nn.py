"""Networks with certificates."""

from ._two_layer.network import TwoLayerLinear

__all__ = ["TwoLayerLinear"]
