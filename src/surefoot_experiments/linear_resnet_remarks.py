"""Remarks 3.2 and 3.5: the conditions of Bartlett et al. and of Du and Hu beside those of Theorem 3.1, as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import torch

from surefoot._core.descent import certify
from surefoot._core.losses import SquaredLoss
from surefoot._linear_resnet.network import LinearResNet
from surefoot_check.linear_resnet import gd as linear_resnet_gd

from .result import Finding, Table

CONSTANT = 4.0 * math.sqrt(2.0 * math.exp(3.0))
"""C of Theorem 3.1, as proved in Corollary 1."""


def widths_table(kappas: Sequence[float], depths: Sequence[int], d: int) -> Table:
    """The orders of the widths that are asked for, d = k = r, constants and logarithms left out."""
    kappa = median(kappas)
    columns = (
        "depth",
        "kappa",
        "k r kappa^2 (Corollary 3.4)",
        "k r kappa (our Corollary 2)",
        "L k r kappa^3 + d (Du and Hu)",
        "third / first",
    )
    rows = []
    for depth in depths:
        paper, standard = d * d * kappa**2, depth * d * d * kappa**3 + d
        rows.append((depth, kappa, paper, d * d * kappa, standard, standard / paper))
    return Table("widths asked for, orders", columns, tuple(rows))


def radius() -> float:
    """Remark 3.2: Theorem 3.1 on whitened data with m = d = k and A = B = I asks for ‖Φ - I‖_F of at most this."""
    return math.sqrt(2.0) / CONSTANT


def holds_at(distance: float, d: int = 10, depth: int = 10) -> bool:
    """Whether the theorem holds there for a Φ so far from I, as evaluated."""
    target = (1.0 + distance / math.sqrt(d)) * torch.eye(d, dtype=torch.float64)
    net = LinearResNet.identity(d, d, d, depth)
    return certify(net, SquaredLoss(torch.eye(d, dtype=torch.float64), target), linear_resnet_gd.THEOREM.id).holds


def remarks_findings(table: Table, distances: Sequence[float]) -> tuple[Finding, ...]:
    """``distances``: ‖Φ - I‖_F of the data of section 5."""
    inside, outside = holds_at(0.99 * radius()), holds_at(1.01 * radius())
    factors = [(int(str(r["depth"])), float(str(r["kappa"])), float(str(r["third / first"]))) for r in table.records()]
    return (
        Finding(
            "Theorem 3.1 contains the setting of Bartlett et al.: m = d = k, A = B = I, whitened data (Remark 3.2).",
            f"asks for |Phi - I|_F <= {radius():.4f}: {'holds' if inside else 'fails'} at .99 of it, "
            f"{'holds' if outside else 'fails'} at 1.01; the data of section 5 have {min(distances):.1f} or more",
            inside and not outside,
            "sqrt(2)/C, C = 4 sqrt(2 exp(3)). Their positive definite Phi, case (ii), is in neither theorem.",
        ),
        Finding(
            "The width is milder than that of Du and Hu for standard networks by a factor of O(L kappa) (Remark 3.5).",
            ", ".join(f"L = {L}: {factor:.3g}, L kappa = {L * kappa:.3g}" for L, kappa, factor in factors),
            all(factor >= L * kappa * (1.0 - 1e-12) for L, kappa, factor in factors),
            "Orders without constants and logarithms: none of them is a width to choose.",
        ),
    )
