"""What a theorem is evaluated at, measured with the checker's own reading and enclosures: it will find the same numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from surefoot_check.problems import P
from surefoot_check.rigor.bounds import FAST
from surefoot_check.system import System as Checked

from .certificate import publish
from .losses import Loss
from .refusals import SCALE, checkable
from .small_losses import Array
from .system import Measured


def stored(checked: Checked[P], loss: Loss, weights: Mapping[str, Tensor]) -> tuple[P, dict[str, Array]]:
    """Problem and weights as the checker reads them from a run directory, which is what a certificate speaks of.

    Args:
        checked: the checker's record of the system.
        loss: the problem; the checker gets ``loss.reduced.arrays()``.
        weights: the reduced ones, by name.

    Returns:
        The problem of the checker, and the weights as arrays of NumPy.

    Raises:
        FormatError: what the checker does not read; see ``refusals.checkable``.

    Example:
        >>> from surefoot_check.two_layer import SYSTEM  # or your own: docs/extending.md
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X)
        >>> problem, weights = sf.extending.stored(SYSTEM, loss, {"W1": X, "W2": X})
        >>> sorted(weights), weights["W1"].shape  # arrays of NumPy
        (['W1', 'W2'], (2, 2))
    """
    arrays = {name: array.cpu().numpy() for name, array in loss.reduced.arrays().items()}
    problem = checked.enclosures.load_problem(loss.reduced.kind, arrays, FAST)
    read = {name: W.cpu().numpy() for name, W in weights.items()}
    return problem, checked.enclosures.read_weights(read, problem, "net")


def measured(checked: Checked[P], loss: Loss, weights: Mapping[str, Tensor]) -> Measured:
    """The base quantities as published and the sizes, of these arrays; quantities without a finite bound are left out.

    Args:
        checked: the checker's record of the system.
        loss: the problem; the checker gets ``loss.reduced.arrays()``.
        weights: the reduced ones, by name.

    Raises:
        ValueError: arrays that the checker does not read, or whose bounds overflow.

    Example:
        >>> from surefoot_check.two_layer import SYSTEM  # or your own: docs/extending.md
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> found = sf.extending.measured(SYSTEM, sf.SquaredLoss(X, X), {"W1": X, "W2": X})
        >>> 1.0 < found.published["smoothness"] < 1.00001  # K = 1, moved outwards
        True
    """
    with checkable("the network or the data is", SCALE):
        problem, stored_weights = stored(checked, loss, weights)
        enclosures = checked.enclosures.base_quantities(problem, stored_weights, {})
        finite = {name: ends for name, ends in enclosures.items() if all(map(math.isfinite, ends))}
        return Measured(publish(finite, checked.directions), checked.enclosures.sizes(problem, stored_weights))
