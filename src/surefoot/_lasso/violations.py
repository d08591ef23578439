"""What training does to the conditions under which LISTA is known to converge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._core.validate import nonnegative
from .._problems.lasso import Lasso
from .lista import UnrolledISTA, check_unrolled, targets_of


@dataclass(frozen=True)
class Violations:
    """Shares in [0, 1], by layer (T,) float64, in which the conditions under which LISTA is known to converge do not hold.

    Attributes:
        signs: entries with sign(x_t) ≠ sign(x*), of all problems and coordinates.
        false_positives: entries outside the support of x* that are in that of x_t, of those outside; what the proof excludes.
        diagonal: columns i with |W_iᵀM_i - 1| > tolerance.
        off_diagonal: pairs i ≠ j with |W_iᵀM_j| > limit |W_iᵀM_i|, whatever the scale of W.
    """

    signs: Tensor
    false_positives: Tensor
    diagonal: Tensor
    off_diagonal: Tensor

    def table(self) -> str:
        """Percentages by layer."""
        lines = ["layer    signs  false positives  W_i'M_i = 1  |W_i'M_j| small"]
        columns = (self.signs, self.false_positives, self.diagonal, self.off_diagonal)
        for index, row in enumerate(zip(*(100.0 * column for column in columns), strict=True), 1):
            signs, false, diagonal, off = (float(value) for value in row)
            lines.append(f"{index:5}  {signs:5.1f} %  {false:13.1f} %  {diagonal:9.1f} %  {off:13.1f} %")
        return "\n".join(lines)


def violations(
    net: UnrolledISTA, problems: Lasso, targets: Any = None, *, tolerance: float = 1e-2, limit: float | None = None
) -> Violations:
    """At inference, how many of the conditions of Chen et al. (2018) each layer violates (the paper's figure 2).

    Args:
        net: LISTA, LISTACPSS or ALISTA; of the last it is W without the steps that is measured.
        problems: of the network's matrix.
        targets: x* (N, d); by default the minimisers of the problems.
        tolerance: allowed in W_iᵀM_i = 1.
        limit: what counts as small in |W_iᵀM_j|/|W_iᵀM_i|; by default the coherence max |M_iᵀM_j|/(‖M_i‖‖M_j‖) of M, which W = M
            attains for unit columns.

    Raises:
        TypeError, ValueError: bad arguments.

    Example:
        >>> M = torch.randn(10, 20, dtype=torch.float64)
        >>> problems = sf.learned.Lasso.from_matrix(M, lam=0.1, count=4)
        >>> found = sf.learned.violations(sf.nn.ALISTA(M, layers=3, lam=0.1), problems)
        >>> found.diagonal.tolist()  # W_iᵀM_i = 1 holds in all layers
        [0.0, 0.0, 0.0]
    """
    check_unrolled(net)
    x_best = targets_of(net.check(problems), targets)
    tolerance, M = nonnegative("tolerance", tolerance), net.M.double()
    off = ~torch.eye(M.shape[1], dtype=torch.bool, device=M.device)
    if limit is None:
        unit = M / M.norm(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
        limit = float((unit.T @ unit)[off].abs().max()) if M.shape[1] > 1 else 0.0
    limit = nonnegative("limit", limit)
    with torch.no_grad():
        iterates = net.iterates(problems.Y)[1:]
    outside = x_best == 0.0
    rows = []
    for index, x in enumerate(iterates):
        product = net.weight(index).double().T @ M
        rows.append(
            [
                _share(x.sign() != x_best.sign()),
                _share((x != 0.0)[outside]),
                _share((product.diagonal() - 1.0).abs() > tolerance),
                _share((product.abs() > limit * (1.0 + 1e-12) * product.diagonal().abs()[:, None])[off]),
            ]
        )
    return Violations(*torch.tensor(rows, dtype=torch.float64).unbind(1))


def _share(condition: Tensor) -> float:
    return float(condition.double().mean()) if condition.numel() else 0.0
