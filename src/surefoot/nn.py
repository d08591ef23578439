"""Networks with certificates."""

from ._linear_resnet.network import LinearNet, LinearResNet
from ._two_layer.network import TwoLayerLinear

__all__ = ["LinearNet", "LinearResNet", "TwoLayerLinear"]
