"""Networks with certificates."""

from ._core.refusals import NotCertifiable
from ._deconvolution.learned.network import LearnedDeconvolution
from ._equilibrium.contractive import Contractive, contractive
from ._equilibrium.derivatives.inexact import PhantomGradient, Trajectory
from ._equilibrium.failures import EquilibriumError, EquilibriumWarning
from ._equilibrium.graphs.inference import EquilibriumInference
from ._equilibrium.jacobian import JacobianPenalty, JacobianSpectrum, jacobian_penalty, jacobian_spectrum
from ._equilibrium.layer import EquilibriumLayer
from ._equilibrium.lipschitz.bound import lipschitz_bound
from ._equilibrium.solver.records import SolveInfo, SolveStatus
from ._equilibrium.warm_start import WarmStart
from ._feed_forward.residual import Residual
from ._implicit.equilibrium import Equilibrium, EquilibriumStatus
from ._implicit.network import ImplicitReLU, NotWellPosed
from ._implicit.solvers import SolverMemory
from ._inverse.network import LearnedInverse
from ._lasso.lista import ALISTA, LISTA, LISTACPSS
from ._layers.network import LayeredSteps
from ._linear_resnet.network import LinearNet, LinearResNet
from ._orthogonal.learned_svd import LearnedSVD, LearnedSVDResult, SVDInfo, SVDStatus
from ._orthogonal.parametrization import Orthogonal
from ._orthogonal.whitening import Whitening
from ._step_sizes.network import StepSizeNet
from ._two_layer.network import TwoLayerLinear

__all__ = [
    "ALISTA",
    "LISTA",
    "LISTACPSS",
    "Contractive",
    "Equilibrium",
    "EquilibriumError",
    "EquilibriumInference",
    "EquilibriumLayer",
    "EquilibriumStatus",
    "EquilibriumWarning",
    "ImplicitReLU",
    "JacobianPenalty",
    "JacobianSpectrum",
    "LayeredSteps",
    "LearnedDeconvolution",
    "LearnedInverse",
    "LearnedSVD",
    "LearnedSVDResult",
    "LinearNet",
    "LinearResNet",
    "NotCertifiable",
    "NotWellPosed",
    "Orthogonal",
    "PhantomGradient",
    "Residual",
    "SVDInfo",
    "SVDStatus",
    "SolveInfo",
    "SolveStatus",
    "SolverMemory",
    "StepSizeNet",
    "Trajectory",
    "TwoLayerLinear",
    "WarmStart",
    "Whitening",
    "contractive",
    "jacobian_penalty",
    "jacobian_spectrum",
    "lipschitz_bound",
]
