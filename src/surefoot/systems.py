"""The systems of the library, one line each: the one list."""

from ._core.registry import register
from ._deconvolution.system import DeconvolutionSystem
from ._feed_forward.system import FeedForwardSystem
from ._implicit.system import ImplicitSystem
from ._inverse.system import InverseSystem
from ._linear_resnet.system import LinearResNetSystem
from ._orthogonal.system import SVDSystem
from ._step_sizes.system import StepSizesSystem
from ._two_layer.system import TwoLayerSystem

for _system in (
    TwoLayerSystem(),
    LinearResNetSystem(),
    ImplicitSystem(),
    FeedForwardSystem(),
    StepSizesSystem(),
    InverseSystem(),
    SVDSystem(),
    DeconvolutionSystem(),
):
    register(_system)
