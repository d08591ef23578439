"""Gradient descent with a certificate.

Check a convergence theorem on a concrete network, data and initial weights before training; train; audit the
trajectory; hand over a certificate that an independent checker accepts or rejects with rigorous arithmetic.
"""

from . import data, deconvolution, distributed, extending, learned, linalg, nn, optim, sgd, steps
from . import systems as _systems  # noqa: F401 - it fills the registry
from ._core.audit import Audit, AuditLine
from ._core.certificate import Certificate, CertificateStatus, Condition
from ._core.completion import MatrixCompletion
from ._core.descent import certify, descend
from ._core.io import RunDirectoryError
from ._core.losses import Loss, MatrixSensing, SquaredLoss
from ._core.near_a_fit.watch import Watch, watch
from ._core.registry import register
from ._core.run import Run
from ._core.softmax import SoftmaxRegression
from ._core.status import RunStatus
from ._core.trace import Trace, audit
from ._feed_forward.newton import newton
from ._feed_forward.objective import TorchLoss
from ._implicit.flow import Flow, gradient_flow

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "AuditLine",
    "Certificate",
    "CertificateStatus",
    "Condition",
    "Flow",
    "Loss",
    "MatrixCompletion",
    "MatrixSensing",
    "Run",
    "RunDirectoryError",
    "RunStatus",
    "SoftmaxRegression",
    "SquaredLoss",
    "TorchLoss",
    "Trace",
    "Watch",
    "__version__",
    "audit",
    "certify",
    "data",
    "deconvolution",
    "descend",
    "distributed",
    "extending",
    "gradient_flow",
    "learned",
    "linalg",
    "newton",
    "nn",
    "optim",
    "register",
    "sgd",
    "steps",
    "watch",
]
