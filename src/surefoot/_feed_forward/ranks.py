"""Why a Jacobian has no full row rank, and what to do."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from surefoot_check.feed_forward.activations import IDENTITY

from .loss import NetworkLoss

HOMOGENEOUS = (IDENTITY.code, 7, 8)
"""Codes of activations with φ(cz) = cφ(z) for c > 0: the identity, ReLU and leaky ReLU."""
NEARLY = 1e-3
"""Rows nearer to each other than this share of the larger one are nearly equal."""
WIDER = "use a wider network or fewer rows"
INSTEAD = "whether training has converged to a minimum says sf.certify(net, sf.TorchLoss(...))"


def largest_rank(loss: NetworkLoss, parameters: int) -> int:
    """What the rank of the Jacobian of a network of dense layers is at most, whatever its weights.

    A unit of a homogeneous activation between two trained layers can be scaled up and the weights behind it down, which changes
    no output: one parameter less for each. Of a linear network it is at most the rank of X, and of a bias, for each output.
    """
    rows = loss.layers.tolist()
    if "geometry" in loss.frozen or "skips" in loss.frozen:
        return parameters

    def trained(number: int) -> bool:
        return not {f"W{number}", f"b{number}", f"W{number + 1}"} & loss.frozen.keys()

    idle = sum(row[0] for number, row in enumerate(rows[:-1], 1) if row[2] in HOMOGENEOUS and trained(number))
    least = parameters - idle
    if all(row[2] == IDENTITY.code for row in rows):
        X = loss.merged[0]
        seen = torch.cat([X, X.new_ones(len(X), 1)], dim=1) if any(row[1] for row in rows) else X
        least = min(least, rows[-1][0] * int(torch.linalg.matrix_rank(seen)))
    return least


def without_rank(loss: NetworkLoss, parameters: int) -> str:
    """Why the Jacobian has no full row rank that can be certified."""
    outputs, most = loss.merged[1].numel(), largest_rank(loss, parameters)
    if outputs > most:
        return (
            f"{WIDER}: there are {outputs} outputs (rows times those of the network), and the Jacobian has rank {most} at "
            f"most, as some of the {parameters} parameters move outputs only as others do; {INSTEAD}"
        )
    return _nearly_equal(loss.merged[0], loss) or (
        "the Jacobian has no full row rank that can be certified: units may be dead or saturated; use a wider network, smaller "
        "weights or fewer rows"
    )


def _nearly_equal(X: Tensor, loss: NetworkLoss) -> str:
    """The two rows that are nearest to each other, where they are near."""
    apart, sizes = torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist"), X.norm(dim=1)
    near = (apart / torch.maximum(sizes[:, None], sizes).clamp_min(torch.finfo(X.dtype).tiny)).fill_diagonal_(math.inf)
    if not float(near.min()) <= NEARLY:
        return ""
    first, second = (int(loss.groups.first[i]) for i in divmod(int(near.argmin()), len(X)))
    return (
        f"rows {first} and {second} of X are nearly equal (relative distance {float(near.min()):.1g}), so that their outputs "
        "nearly are: leave one out, or make them equal; equal rows are merged"
    )
