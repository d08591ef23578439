"""Why the condition number of data is large, as measured on its columns, and what lowers it."""

from __future__ import annotations

import torch
from torch import Tensor

from .losses import LinearMapLoss, SquaredLoss

LARGE = 100.0
"""A factor of the count that is worth a word."""
RIDGE = 1e3
"""The condition number that the suggested ridge leads to."""
SHOWN = 4
"""Columns named at most."""
TAKES_PART = 0.3
"""A column takes part in a near-dependence where its entry of the unit vector is at least this large."""


def conditioning(loss: LinearMapLoss) -> str:
    """κ = K/μ with the columns that are badly scaled or nearly collinear, and what lowers it; empty where κ ≤ 100."""
    kappa = loss.smoothness / loss.strong_convexity
    if not kappa > LARGE:
        return ""
    text = f"the condition number of the loss is K/mu = {kappa:.3g}"
    if not isinstance(loss, SquaredLoss):
        return f"{text}: {OTHER.get(loss.kind, 'scale its data')}"
    design = loss.statistics.design if loss.basis is None else loss.statistics.design @ loss.basis.T
    used = torch.linalg.vector_norm(design, dim=0) > 0.0
    index, design = used.nonzero()[:, 0], design[:, used]
    sizes = torch.linalg.vector_norm(design, dim=0)
    _, s, Vh = torch.linalg.svd(design / sizes, full_matrices=False)
    equal = float(s[0] / s[len(loss.statistics.design) - 1]) ** 2
    parts = []
    if equal < 0.1 * kappa:
        low, high = int(sizes.argmin()), int(sizes.argmax())
        parts.append(
            f"columns {int(index[low])} and {int(index[high])} of X have norms {float(sizes[low]):.3g} and "
            f"{float(sizes[high]):.3g}, and with columns of one norm it would be {equal:.3g}: standardise or whiten the inputs"
        )
    if equal > LARGE:
        parts.append(f"{_dependent(index, Vh[len(loss.statistics.design) - 1])} nearly collinear{_remedy(loss)}")
    return f"{text}; {'; '.join(parts)}" if parts else f"{text}: whiten the inputs"


def _dependent(index: Tensor, direction: Tensor) -> str:
    """The columns that take part in a near-dependence."""
    share = direction.abs()
    columns = [
        int(index[i]) for i in share.argsort(descending=True) if float(share[i]) >= TAKES_PART * float(share.max())
    ]
    named = ", ".join(str(column) for column in sorted(columns[:SHOWN]))
    return f"columns {named}{' and others' if len(columns) > SHOWN else ''} of X are"


def _remedy(loss: SquaredLoss) -> str:
    ridge = loss.smoothness / RIDGE
    return f": whiten the inputs, drop columns, or add a ridge (l2={ridge:.3g} brings it to {RIDGE:g}, and moves the minimiser)"


OTHER = {
    "softmax": "whiten the inputs, or use a larger l2, which moves the minimiser",
    "softmax-offset": "whiten the inputs, or use a larger l2, which moves the minimiser",
    "completion": "it is the largest number of observations of an entry over the smallest: keep the mean of each entry alone",
    "sensing": "scale the measurements to one norm, or take more of them",
}
"""What lowers the condition number of the losses that are not of a table's columns."""
