"""What ``certify linear-resnet`` and ``train linear-resnet`` build: data, loss and network."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .._cli.built import Built
from .._cli.rows import load, rows_of, squared, table_facts
from .._cli.values import at_least_one, check_seed
from .._core.losses import SquaredLoss
from .command import Transformed
from .network import LinearResNet, sufficient_alpha
from .system import LinearResNetSystem


def built(options: Transformed) -> Built:
    check_seed(options.seed)
    transform = options.transform
    for name, value, owner in (
        ("alpha", options.alpha, "modified-identity"),
        ("scaling", options.scaling, "gaussian"),
    ):
        if value is not None and transform != owner:
            raise ValueError(f"--{name} belongs to --transform {owner}; leave it out, or choose that transform")
    at_least_one("--depth", options.depth)
    table = load(options)
    loss, X = squared(options, table), table.train.X
    assert isinstance(X, Tensor)
    if loss.samples is None and (options.project or options.batch is not None):
        raise ValueError("--batch and --project go with the squares alone; leave out --l2, --rcond and --intercept")
    Y = X @ loss.optimum if options.project else table.train.Y
    if options.project:
        loss = SquaredLoss(X, Y)
    d, k = loss.shape
    default = max(1000, 2 * (d + k)) if transform == "gaussian" else d + k
    width = options.width if options.width is not None else default
    at_least_one("--width", width)
    own: dict[str, Any] = {}
    if transform == "gaussian":
        scaling = options.scaling or "fan"
        net = LinearResNet.gaussian(d, k, width, options.depth, scaling, seed=options.seed)
        own = {"scaling": scaling, "seed": options.seed}
        shown = f"gaussian ({scaling}), seed {options.seed}"
    elif transform == "identity":
        net = LinearResNet.identity(d, k, width, options.depth)
        shown = transform
    else:
        alpha = _alpha(options.alpha, loss)
        net = LinearResNet.modified_identity(d, k, width, options.depth, alpha)
        own = {"alpha": alpha}
        shown = f"{transform}, α = {alpha:.6g}"
    facts = {
        **table_facts(table, loss, "squared"),
        "network": f"B (I+W_L) … (I+W_1) A x, depth {options.depth:,}, width {width:,}, W = 0; A and B {shown}",
        "depth": options.depth,
        "width": width,
        **({} if options.batch is None else {"batch": options.batch}),
        "transform": transform,
        **own,
    }
    drawing = options.drawing(options.seed)
    drawn = loss if drawing is None else LinearResNetSystem().drawn(net, X, Y, drawing)
    shown = rows_of(facts)
    if drawing is not None:
        shown["rows"] += f", batches of {options.batch:,}"
    if options.project:
        shown["targets"] += ", projected onto what X can fit"
    return Built(net, drawn, facts, table, shown)


def _alpha(alpha: str | None, loss: SquaredLoss) -> float:
    """α as a number; any will do where zero weights are optimal already."""
    if alpha is None or alpha == "sufficient":
        return sufficient_alpha(loss) or 1.0
    try:
        return float(alpha)
    except ValueError:
        raise ValueError(f"--alpha is {alpha!r}; it must be a positive number or 'sufficient'") from None
