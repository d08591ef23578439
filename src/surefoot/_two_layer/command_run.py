"""What ``certify two-layer`` and ``train two-layer`` build: data, loss and network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from .._cli.built import Built
from .._cli.errors import NoCertificate
from .._cli.rows import load, rows_of, squared, table_facts
from .._cli.values import at_least_one, check_seed
from .._core.losses import LinearMapLoss
from .._core.refusals import NotCertifiable
from .._core.softmax import SoftmaxRegression
from .._report.wording import share
from .command import RANK, TwoLayer
from .command_ratings import built as ratings
from .network import TwoLayerLinear
from .start import movement


def built(options: TwoLayer) -> Built:
    check_seed(options.seed)
    chosen = (f"start {options.start}", f"loss {options.loss}")
    for name, value, owner in (
        ("std", options.std, "start gaussian"),
        ("scale", options.scale, "start certifiable"),
        ("moved", options.moved, "start certifiable"),
        ("rcond", options.rcond, "loss squared"),
        ("intercept", options.intercept or None, "loss squared"),
    ):
        if value is not None and owner not in chosen:
            raise ValueError(f"--{name} belongs to --{owner}; leave it out, or choose that {owner.split()[0]}")
    if options.loss == "completion":
        if options.l2 is not None:
            raise ValueError("--l2 belongs to --loss squared or softmax; leave it out, or choose one of these")
        return ratings(options, partial(_drawn, options))
    table = load(options, options.loss if options.loss == "softmax" else "")
    loss: LinearMapLoss
    if options.loss == "softmax":
        assert table.classes is not None and table.train.labels is not None
        l2 = 1e-3 if options.l2 is None else options.l2
        labels = torch.searchsorted(table.classes, table.train.labels)
        loss = SoftmaxRegression(table.train.X, labels, l2, len(table.classes))
    else:
        loss = squared(options, table)
    facts = table_facts(table, loss, options.loss)
    net, own = _drawn(options, loss, facts)
    facts |= own
    return Built(net, loss, facts, table, rows_of(facts))


def _drawn(options: TwoLayer, loss: LinearMapLoss, facts: Mapping[str, Any]) -> tuple[TwoLayerLinear, dict[str, Any]]:
    """The network, and its facts; ``facts`` are of the problem."""
    net, own, drawn = _network(options, loss, facts)
    product = "W1 W2ᵀ" if options.loss == "completion" else "X W1 W2ᵀ"
    return net, {
        "network": f"{product}, width {net.width:,}, {drawn}",
        "width": net.width,
        "start": options.start,
        **own,
        "seed": options.seed,
    }


def _network(
    options: TwoLayer, loss: LinearMapLoss, facts: Mapping[str, Any]
) -> tuple[TwoLayerLinear, dict[str, float], str]:
    """The network, what its weights were drawn with, and both in words; ``facts`` are of the problem."""
    n, m = loss.shape
    if options.width is not None:
        at_least_one("--width", options.width)
    if options.start == "gaussian":
        usual = RANK if options.loss == "completion" else max(1000, 2 * (n + m))
        width = options.width if options.width is not None else usual
        std = options.std if options.std is not None else width**-0.5
        net = TwoLayerLinear.gaussian(n, m, width, std=std, seed=options.seed)
        return net, {"std": std}, f"weights N(0, {std:.3g}²), seed {options.seed}"
    chosen = {"theorem": options.theorem, "scale": options.scale, "moved": options.moved}
    try:
        net = TwoLayerLinear.certifiable(loss, options.width, seed=options.seed, **chosen)
    except NotCertifiable as error:
        raise NoCertificate(str(error), facts) from error
    scale = float(net.W1.detach()[0].norm())
    expected = movement(loss, scale)
    drawn = f"rows {scale:.4g} times orthonormal ones, seed {options.seed}; to move by about {share(expected)} of their norm"
    return net, {"scale": scale, "expected_movement": expected}, drawn
