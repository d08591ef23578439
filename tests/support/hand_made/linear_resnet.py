"""Linear ResNets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from changes import bumped, edit, everywhere, field, reevaluate, scaled
from draws import normal
from tamper import SCHEDULE, Change, reevaluated

import surefoot as sf


def _make(name: str, path: Path) -> None:
    X, Y = normal(30, 3, seed=0), normal(30, 2, seed=1)
    net, every, theorem = sf.nn.LinearResNet.modified_identity(3, 2, 8, 4, 30.0), None, None
    if name == "local":
        every = 6
    elif name == "gd":
        net, theorem = sf.nn.LinearResNet.modified_identity(3, 2, 8, 4, 60.0), "linear-resnet/gd"
    elif name == "start":  # nonzero weights, close to a minimiser, and only one layer wide enough for no reduction
        net = sf.nn.LinearResNet(normal(6, 3, seed=3), normal(2, 6, seed=4), 0.1 * normal(3, 6, 6, seed=5))
        Y = (net(X) + 0.001 * normal(30, 2, seed=6)).detach()
    elif name == "duplicated":
        X = torch.cat([X, X[:, :1]], 1)
        net = sf.nn.LinearResNet.modified_identity(4, 2, 8, 4, 40.0)
    loss = sf.SquaredLoss(X, Y)
    certificate = sf.certify(net, loss, theorem)
    assert certificate.holds
    steps = "smooth" if name in ("local", "start") else None
    sf.descend(
        net, loss, steps, 12, 1e-12, certificate=certificate, certify_every=every, directory=path, progress=False
    )


RUNS: dict[str, Callable[[Path], None]] = {
    name: partial(_make, name) for name in ("local", "start", "gd", "duplicated")
}


def narrower(run: Any) -> None:
    """All arrays one unit narrower: they fit each other, and the sizes in the certificate are stale."""
    everywhere("A", lambda A: A[:-1])(run)
    everywhere("B", lambda B: B[:, :-1])(run)
    everywhere("W", lambda W: W[:, :-1, :-1])(run)


def phase_of_other_weights(run: Any) -> None:
    """A later certificate stays, the checkpoint that it speaks of goes on a step further."""
    name, _ = run.phase
    start = name.removeprefix("certificate-").removesuffix(".json")
    file = f"checkpoints/{start}.safetensors"
    run.arrays[file]["W"] = bumped(run.arrays[file]["W"], 1.0)


def phase_without_checkpoint(run: Any) -> None:
    name, _ = run.phase
    del run.arrays[f"checkpoints/{name.removeprefix('certificate-').removesuffix('.json')}.safetensors"]


def phase_scaled(name: str, factor: float) -> Change:
    def change(run: Any) -> None:
        file, record = run.phase
        value = float.fromhex(record["quantities"][name]) * factor
        run.certificates[file] = reevaluated(record, {name: value})

    return change


LOCAL: dict[str, Change] = {
    "radius smaller": reevaluate({"radius": 1 - 1e-3}),
    "radius much larger": reevaluate({"radius": 1e3}),
    "radius larger, constants those of the smaller": reevaluate({"radius": 1.05}),
    "radius negative": reevaluate({"radius": -1.0}),
    **{f"gamma {g}, alone": field(("quantities", "gamma"), g.hex()) for g in (0.0, 0.5, 2.0, 3.0, -1.0)},
    **{f"gamma {g}": reevaluate({"gamma": g}) for g in (1.5, 1.9)},  # the radius is that of 1
}
PHASES: dict[str, Change] = {
    "phase of other weights": phase_of_other_weights,
    "phase without its checkpoint": phase_without_checkpoint,
    "phase with a larger pl_constant": phase_scaled("pl_constant", 1 + 1e-6),
    "phase with a smaller gap": phase_scaled("initial_gap", 0.5),
    "phase with a smaller gauss_newton": phase_scaled("gauss_newton", 1 - 1e-6),
}
GD: dict[str, Change] = {
    "initial loss below the gap": reevaluate({"initial_loss": 0.01}),
    "step larger": reevaluate({"initial_step": 1 + 1e-6}),
    "step 0": reevaluate({"initial_step": 0.0}),
    "weights not zero": everywhere("W", lambda W: bumped(W, 1e-9)),
    "weight_norm negative": field(("quantities", "weight_norm"), (-1.0).hex()),
}
ANY: dict[str, Change] = {
    "initial W changed": edit("initial.safetensors", "W", bumped),
    "A changed everywhere": everywhere("A", lambda A: A * 0.9),
    "B changed everywhere": everywhere("B", lambda B: B * 1.1),
    "A of a checkpoint changed": edit("checkpoint", "A", bumped),
    "B of a checkpoint changed": edit("checkpoint", "B", bumped),
    "W of a checkpoint far off": edit("checkpoint", "W", lambda W: bumped(W, 5.0)),
    "final W far off": edit("final.safetensors", "W", lambda W: bumped(W, 5.0)),
    "A of other shape in a checkpoint": edit("checkpoint", "A", lambda A: A[:-1]),
    "W without a layer everywhere": everywhere("W", lambda W: W[1:]),
    "narrower": narrower,
    "data changed": edit("problem.safetensors", "X", lambda X: 0.9 * X),
    "target changed": edit("problem.safetensors", "Y", lambda Y: bumped(Y, 1.0)),
    "witness changed": edit("problem.safetensors", "optimum", lambda V: bumped(V, 0.1)),
    "first step larger": scaled((*SCHEDULE, 0, 4), 1 + 1e-6),
}
CASES: dict[str, dict[str, Change]] = {
    "local": {**LOCAL, **PHASES, **ANY},
    "start": LOCAL,
    "gd": {**GD, **ANY},
    "duplicated": ANY,
}
