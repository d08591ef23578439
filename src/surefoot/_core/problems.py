"""Losses from the arrays of a run directory."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .completion import MatrixCompletion
from .losses import Loss, MatrixSensing, SquaredLoss
from .samples import SampleLoss
from .softmax import WITH_OFFSET, SoftmaxRegression
from .validate import unknown


def loss_of(kind: str, arrays: Mapping[str, Tensor]) -> Loss:
    """The loss whose ``arrays()`` these are.

    Args:
        kind: ``loss.kind``, as a certificate states it.
        arrays: by name, as in a run directory.

    Raises:
        ValueError: an unknown kind, a missing array, or arrays that do not fit.

    Example:
        >>> loss = sf.SquaredLoss([[1.0, 0.0], [0.0, 2.0]], [[1.0], [1.0]])
        >>> again = sf.extending.loss_of(loss.kind, loss.arrays())  # as from a run directory
        >>> again.smoothness == loss.smoothness
        True
    """
    try:
        if kind == SquaredLoss.kind:
            return SquaredLoss(arrays["X"], arrays["Y"])
        if kind == SampleLoss.kind:
            return SampleLoss(arrays["X"], arrays["Y"])
        if kind == MatrixSensing.kind:
            return MatrixSensing(arrays["A"], arrays["y"])
        if kind == MatrixCompletion.kind:
            return MatrixCompletion.from_arrays(arrays)
        if kind in (SoftmaxRegression.kind, WITH_OFFSET):
            return SoftmaxRegression.from_arrays(arrays)
    except KeyError as error:
        raise ValueError(f"the problem has no array {error}; the run directory is damaged") from error
    known = (SquaredLoss, SampleLoss, MatrixSensing, MatrixCompletion, SoftmaxRegression)
    raise unknown("kind of loss", kind, [loss.kind for loss in known])
