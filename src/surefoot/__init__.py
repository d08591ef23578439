"""Gradient descent with a certificate.

Check a convergence theorem on a concrete network, data and initial weights before training; train; audit the
trajectory; hand over a certificate that an independent checker accepts or rejects with rigorous arithmetic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and the documentation see of the table below
    from . import (
        callbacks,
        data,
        deconvolution,
        distributed,
        estimators,
        extending,
        learned,
        linalg,
        nn,
        optim,
        sgd,
        steps,
    )
    from ._core.audit import Audit, AuditLine
    from ._core.certificate import Certificate, CertificateStatus, Condition
    from ._core.comparing import compare_runs
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
    "callbacks",
    "certify",
    "compare_runs",
    "data",
    "deconvolution",
    "descend",
    "distributed",
    "estimators",
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

_NAMES = {
    "_core.audit": ("Audit", "AuditLine"),
    "_core.certificate": ("Certificate", "CertificateStatus", "Condition"),
    "_core.comparing": ("compare_runs",),
    "_core.completion": ("MatrixCompletion",),
    "_core.descent": ("certify", "descend"),
    "_core.io": ("RunDirectoryError",),
    "_core.losses": ("Loss", "MatrixSensing", "SquaredLoss"),
    "_core.near_a_fit.watch": ("Watch", "watch"),
    "_core.registry": ("register",),
    "_core.run": ("Run",),
    "_core.softmax": ("SoftmaxRegression",),
    "_core.status": ("RunStatus",),
    "_core.trace": ("Trace", "audit"),
    "_feed_forward.newton": ("newton",),
    "_feed_forward.objective": ("TorchLoss",),
    "_implicit.flow": ("Flow", "gradient_flow"),
}
"""The public names that are no modules, by where they are. One is imported when it is first asked for: `import surefoot` alone
loads nothing."""


if not TYPE_CHECKING:  # for type checkers, a name that is not listed above is a mistake

    def __getattr__(name: str) -> Any:
        for module, names in _NAMES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(f".{module}", __name__), name)
                return found
        if name in __all__:
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
