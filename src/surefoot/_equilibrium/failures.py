"""What a layer does about a solve that did not converge."""

from __future__ import annotations

import warnings
from typing import Literal

from .derivatives.implicit_function import Kind
from .solver.records import SolveInfo, SolveStatus

OnFailure = Literal["raise", "warn", "return"]
ON_FAILURE: tuple[OnFailure, ...] = ("raise", "warn", "return")


class EquilibriumError(RuntimeError):
    """A solve, of z or of a derivative, did not converge; ``info`` is its record."""

    def __init__(self, message: str, info: SolveInfo) -> None:
        super().__init__(message)
        self.info = info


class EquilibriumWarning(RuntimeWarning):
    """The same with ``on_failure="warn"``."""


def report(info: SolveInfo, on_failure: OnFailure, kind: Kind) -> None:
    """Raise or warn about a solve that did not converge, and say what to do.

    Raises:
        EquilibriumError: with ``on_failure="raise"``.
    """
    if info.converged or not info.exact or on_failure == "return":
        return
    subject = {
        "forward": "z = f(z, *x)",
        "backward": "the backward solve (the gradient would be wrong)",
        "tangent": "the solve of forward mode (the derivative would be wrong)",
    }[kind]
    if info.status is SolveStatus.MAX_ITERATIONS:
        advice = "raise max_iterations or the tolerance"
    elif info.status is SolveStatus.NON_FINITE:
        advice = "look for NaN or infinity in x, z0 and the parameters, or overflow in f"
    else:
        advice = 'check that f contracts; on_failure="return" gives the last iterate'
    message = f"{subject} did not converge: {info.text}; {advice}"
    if on_failure == "raise":
        raise EquilibriumError(message, info)
    warnings.warn(message, EquilibriumWarning, stacklevel=3)
