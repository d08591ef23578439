"""The squared loss of a network that needs its samples themselves."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .brief import size
from .losses import Loss, SquaredLoss
from .validate import as_tensor, kind_of, real


class SampleLoss(Loss):
    """½‖f(X) - Y‖²_F for a network f that acts on the rows of X; X (N, d), Y (N, p) or (N,), float64.

    Gaps are measured from 0, the least value that there can be: the theorems of such networks are about interpolation.

    Args:
        X: (N, d), a tensor, an array, or nested lists; float32 is converted.
        Y: (N, p) or (N,), likewise.
        name: what errors call Y.

    Raises:
        TypeError, ValueError: X or Y is no finite array of real numbers, or they have different numbers of rows.

    Example:
        >>> loss = sf.extending.SampleLoss(np.ones((3, 2)), [1.0, 2.0, 3.0])
        >>> loss, loss.optimal_value  # gaps are the loss itself
        (SampleLoss(X 3x2, Y 3x1), 0.0)
    """

    kind = "samples"
    optimal_value = 0.0

    def __init__(self, X: Any, Y: Any, name: str = "Y") -> None:
        Y = as_tensor(name, Y)
        self.X, Y = real("X", X, 2), real(name, Y, Y.ndim)
        if Y.ndim not in (1, 2) or len(Y) != len(self.X):
            raise ValueError(
                f"X has shape {tuple(self.X.shape)} and {name} {tuple(Y.shape)}; they must be (N, d) and (N, p) or (N,), N equal"
            )
        self.Y = Y if Y.ndim == 2 else Y[:, None]

    def _sizes(self) -> str:
        return f"X {size(self.X)}, Y {size(self.Y)}"

    def arrays(self) -> dict[str, Tensor]:
        return {"X": self.X.contiguous(), "Y": self.Y.contiguous()}


def sample_loss(loss: object, alternative: str = "") -> SampleLoss:
    """The loss, for a system that needs its samples.

    Args:
        loss: a ``SampleLoss``, or a squared loss of rows.
        alternative: what else the system takes that has a penalty, as errors add it: " or ...".

    Raises:
        TypeError: another kind of loss, or a squared loss of statistics only.
        ValueError: a squared loss with options that only linear maps take.

    Example:
        >>> X, Y = np.eye(3, 2), np.ones((3, 1))
        >>> sf.extending.sample_loss(sf.SquaredLoss(X, Y))
        SampleLoss(X 3x2, Y 3x1)
        >>> sf.extending.sample_loss(sf.SquaredLoss(X, Y, l2=0.1))
        Traceback (most recent call last):
        ValueError: loss has l2, which only networks take that are linear maps; ...
    """
    if isinstance(loss, SampleLoss):
        return loss
    if not isinstance(loss, SquaredLoss):
        raise TypeError(f"loss is {kind_of(loss)}; pass sf.SquaredLoss(X, Y), what this network is trained with")
    if loss.options:
        raise ValueError(
            f"loss has {' and '.join(loss.options)}, which only networks take that are linear maps; for this one pass "
            f"sf.SquaredLoss(X, Y){alternative}"
        )
    if loss.samples is None:
        raise TypeError("loss knows only statistics of its data; this network needs the rows: sf.SquaredLoss(X, Y)")
    return SampleLoss(*loss.samples)
