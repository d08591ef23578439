"""Feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import batches
import numpy as np
import torch
from changes import bumped, edit, everywhere, faster, field, reevaluate, scaled
from draws import normal as drawn
from good_runs import near_a_minimum, nearly_fitted, sequential, with_equal_rows, with_windows
from tamper import SCHEDULE, Array, Change
from torch import nn

import surefoot as sf


def _kinked(path: Path) -> None:
    net, loss = nearly_fitted(2)
    sf.descend(net, loss, max_iterations=12, directory=path, progress=False)


def _smooth(path: Path) -> None:
    net, X = sequential(nn.Linear(2, 7), nn.GELU(), nn.Linear(7, 1), seed=4), drawn(4, 2, seed=4)
    loss = sf.SquaredLoss(X, net(X).detach() + 1e-5 * drawn(4, 1, seed=5))
    sf.descend(net, loss, max_iterations=12, directory=path, progress=False)


def _near(path: Path) -> None:
    net, loss = nearly_fitted(3)
    certificate = sf.certify(net, loss, "feed-forward/exact-fit")
    sf.descend(net, loss, max_iterations=12, certificate=certificate, directory=path, progress=False)


def _mean(path: Path) -> None:
    net, loss = nearly_fitted(6)
    assert loss.samples is not None
    mean = sf.TorchLoss(nn.MSELoss(), *loss.samples)
    sf.descend(net, mean, max_iterations=12, directory=path, progress=False)


def _minimum(path: Path) -> None:
    net, loss = near_a_minimum(4)
    sf.descend(net, loss, max_iterations=12, directory=path, progress=False)


def _classes(path: Path) -> None:
    weights = torch.tensor([0.5, 1.0, 2.5], dtype=torch.float64)
    net, loss = near_a_minimum(6, criterion=nn.CrossEntropyLoss(weights, label_smoothing=0.1))
    sf.descend(net, loss, max_iterations=12, directory=path, progress=False)


def _equal_rows(path: Path) -> None:
    net, loss = with_equal_rows(5)
    sf.descend(net, loss, max_iterations=12, directory=path, progress=False)


def _windows(path: Path) -> None:
    net, loss = with_windows(6)
    sf.descend(net, loss, max_iterations=12, directory=path, progress=False)


def _batches(path: Path) -> None:
    net, loss = batches.drawn(nearly_fitted(4), 2)
    sf.descend(net, loss, max_iterations=12, directory=path, progress=False)


RUNS: dict[str, Callable[[Path], None]] = {
    "batches": _batches,
    "windows": _windows,
    "kinked": _kinked,
    "smooth": _smooth,
    "near": _near,
    "mean": _mean,
    "minimum": _minimum,
    "equal rows": _equal_rows,
    "classes": _classes,
}


def entry(name: str, place: tuple[int, int], value: float) -> Change:
    """Another number in a table of the problem."""

    def set_to(A: Array) -> Array:
        A = A.copy()
        A[place] = value
        return A

    return edit("problem.safetensors", name, set_to)


def without_margin(run: Any) -> None:
    """As if no activation had a kink: neither the quantity nor the condition."""
    del run.certificate["quantities"]["kink_margin"]
    run.certificate["conditions"] = [c for c in run.certificate["conditions"] if "kink" not in c["name"]]


def without(name: str) -> Change:
    """A quantity less."""
    return lambda run: run.certificate["quantities"].pop(name)


def without_bias(run: Any) -> None:
    """The second layer loses its bias everywhere but in the table."""
    for path, arrays in run.arrays.items():
        if path != "problem.safetensors":
            arrays.pop("b2", None)


def softplus_of(beta: float) -> Change:
    """A softplus behind the first layer, of this β."""

    def change(run: Any) -> None:
        entry("layers", (0, 2), 3)(run)
        entry("settings", (0, 0), beta)(run)

    return change


def apart(Y: Array) -> Array:
    """Two targets of equal rows moved, and not their mean: the gap stays, its origin does not."""
    Y = Y.copy()
    Y[1, 0], Y[3, 0] = Y[1, 0] + 0.25, Y[3, 0] - 0.25
    return Y


ANY: dict[str, Change] = {
    "ball smaller": reevaluate({"ball": 0.5}),
    "ball much larger": reevaluate({"ball": 1e6}),
    "ball larger, constants those of the smaller": reevaluate({"ball": 1.5}),
    "ball negative": reevaluate({"ball": -1.0}),
    "first step larger": scaled((*SCHEDULE, 0, 4), 1.0 + 1e-6),
    "radius smaller, alone": scaled(("quantities", "radius"), 1.0 - 1e-6),
    "radius 0, alone": field(("quantities", "radius"), (0.0).hex()),
    "initial W1 changed": edit("initial.safetensors", "W1", bumped),
    "W1 changed everywhere": everywhere("W1", lambda W: 0.9 * W),
    "W1 with a unit less everywhere": everywhere("W1", lambda W: W[1:]),
    "b1 with a unit less everywhere": everywhere("b1", lambda b: b[1:]),
    "W2 of a checkpoint far off": edit("checkpoint", "W2", lambda W: bumped(W, 5.0)),
    "final W2 far off": edit("final.safetensors", "W2", lambda W: bumped(W, 5.0)),
    "data changed": edit("problem.safetensors", "X", lambda X: 0.9 * X),
    "another activation": entry("layers", (0, 2), 2),
    "unknown activation": entry("layers", (0, 2), 99),
    "identity instead of the activation": entry("layers", (0, 2), 0),
    "an activation behind the last layer": entry("layers", (-1, 2), 1),
    "a bias less in the table": entry("layers", (0, 1), 0),
    "a bias of 2": entry("layers", (0, 1), 2),
    "a width less in the table": entry("layers", (0, 0), 5),
    "settings of an activation that has none": entry("settings", (0, 1), 0.5),
    "no sharpness of a softplus": softplus_of(0.0),
    "a sharpness below 0": softplus_of(-1.0),
    "settings not a number": entry("settings", (0, 0), float("nan")),
    "a layer less in the table": edit("problem.safetensors", "layers", lambda A: A[1:]),
    "layers of other integers": edit("problem.safetensors", "layers", lambda A: A.astype(np.int32)),
    "a fourth column": edit("problem.safetensors", "layers", lambda A: np.hstack([A, A[:, :1]])),
    "settings in one column": edit("problem.safetensors", "settings", lambda A: A[:, :1]),
}


OF_DESCENT: dict[str, Change] = {
    "floor step larger": reevaluate({"eta": 1.0 + 1e-3}),
    "floor step twice": reevaluate({"eta": 2.0}),
}


OF_A_FIT: dict[str, Change] = {
    "Lipschitz constant 0": reevaluate(lipschitz_J=0.0),
    "target changed": edit("problem.safetensors", "Y", lambda Y: bumped(Y, 1.0)),
}


def _as_squares(run: Any) -> None:
    """Targets in place of labels, and the kind that goes with them."""
    labels = run.arrays["problem.safetensors"].pop("labels")
    run.arrays["problem.safetensors"]["Y"] = np.eye(3)[labels]
    run.certificate["problem"]["kind"] = "network-mse"


def frozen(name: str) -> Change:
    """A weight of the last iterates becomes one of the problem, which is not trained."""

    def change(run: Any) -> None:
        for path, arrays in run.arrays.items():
            if path != "problem.safetensors":
                run.arrays["problem.safetensors"][name] = arrays.pop(name)

    return change


def in_both(run: Any) -> None:
    """A weight is among the trained ones and among the frozen ones."""
    run.arrays["problem.safetensors"]["W1"] = run.arrays["initial.safetensors"]["W1"]


ANY |= {
    "W1 frozen": frozen("W1"),
    "b1 frozen": frozen("b1"),
    "W1 twice": in_both,
    "a frozen weight of no layer": lambda run: run.arrays["problem.safetensors"].update(W9=np.ones((1, 1))),
}
OF_KINKS: dict[str, Change] = {
    "no kinks": without_margin,
    "kinks smoothed away in the table": entry("layers", (1, 2), 3),
    "margin larger": reevaluate(kink_margin=1.0 + 1e-6),
    "margin below 1": reevaluate(kink_margin=1e-3),
}


def gone(name: str) -> Change:
    """An array of the problem less."""
    return lambda run: run.arrays["problem.safetensors"].pop(name)


OF_WINDOWS: dict[str, Change] = {
    "the map itself around the map": entry("geometry", (0, 0), 2),
    "a maximum in place of a convolution": entry("geometry", (0, 0), 3),
    "a convolution in place of a maximum": entry("geometry", (1, 0), 1),
    "windows of no kind": entry("geometry", (0, 0), 4),
    "windows that begin elsewhere": entry("geometry", (0, 9), 2),
    "windows that begin below 0": entry("geometry", (0, 9), -1),
    "windows of maxima that begin elsewhere": entry("geometry", (1, 8), 1),
    "windows of maxima that overlap": entry("geometry", (1, 6), 1),
    "windows of maxima that hold nothing": entry("geometry", (1, 8), 9),
    "a higher map": entry("geometry", (0, 2), 4),
    "another shape of the map": edit("problem.safetensors", "geometry", lambda G: G[:, [0, 1, 3, 2, *range(4, 12)]]),
    "steps of 0": entry("geometry", (0, 6), 0),
    "more windows than there can be": entry("geometry", (0, 10), 1 << 40),
    "windows of a dense layer": entry("geometry", (2, 0), 1),
    "no geometry": gone("geometry"),
    "a geometry less": edit("problem.safetensors", "geometry", lambda G: G[:-1]),
    "geometry of floats": edit("problem.safetensors", "geometry", lambda G: G.astype(np.float64)),
    "a bias of maxima": entry("layers", (1, 1), 1),
    "nothing added behind the block": entry("skips", (2, 0), -1),
    "a layer added elsewhere": entry("skips", (1, 0), 1),
    "a layer added to itself": entry("skips", (2, 0), 3),
    "no layer added": entry("skips", (2, 0), -2),
    "something added to the outputs": entry("skips", (3, 0), 3),
    "no skips": gone("skips"),
    "skips in a row": edit("problem.safetensors", "skips", lambda S: S[:, 0]),
    "weights as torch has them": everywhere("W1", lambda W: W.reshape(2, 1, 2, 2)),
    "W1 frozen": frozen("W1"),
    "a theorem of minima": lambda run: run.certificate.update(theorem="feed-forward/minimum"),
    "Lipschitz constant smaller": reevaluate(lipschitz_J=1.0 - 1e-6),
    "least singular value larger": reevaluate(sigma_min_J=1.0 + 1e-6),
    "norm smaller": reevaluate(norm_J=1.0 - 1e-6),
}
OF_BATCHES: dict[str, Change] = {
    "larger batches": reevaluate({"batch": 2.0}),
    "half a row in a batch": reevaluate({"batch": 0.75}),
    "no row in a batch": field(("quantities", "batch"), (0.0).hex()),
    "more rows in a batch than there are": reevaluate({"batch": 4.0}),
    "a smaller chance": reevaluate({"delta": 0.5}),
    "no chance": field(("quantities", "delta"), (0.0).hex()),
    "a chance above 1": reevaluate({"delta": 20.0}),
    "longer steps": reevaluate({"eta": 10.0}),
    "shorter epochs": reevaluate({"epoch": 0.5}),
    "the ball smaller": reevaluate({"ball": 0.9}),
    "the ball of nearest fits smaller": reevaluate({"inner_ball": 0.9}),
    "the ball of the fit smaller": reevaluate({"fit_ball": 0.4}),
    "the ball much larger": reevaluate({"ball": 1e6}),
    "least growth": reevaluate({"growth": 0.5}),
    "gaps of the run claimed": lambda run: run.certificate.update(claims=["L1", "L2"]),
    "the theorem of all rows": lambda run: run.certificate.update(theorem="feed-forward/local"),
    **{
        f"{name} {'larger' if sign > 0 else 'smaller'}": reevaluate(**{name: 1.0 + sign * 1e-6})
        for sign, names in (
            (1, ("sigma_min_J", "sigma_ball", "sigma_inner", "kink_margin")),
            (-1, ("lipschitz_fit", "lipschitz_J", "lipschitz_batch", "norm_J_ball", "norm_batch", "second_moment")),
        )
        for name in names
    },
    "the Newton step shorter": reevaluate(newton_step=1.0 - 1e-6),
    "equal rows": edit("problem.safetensors", "X", lambda X: X[[0, 0, 2, 3]]),
}
CASES: dict[str, dict[str, Change]] = {
    "batches": OF_BATCHES,
    "windows": {
        **OF_WINDOWS,
        **OF_A_FIT,
        **OF_DESCENT,
        "margin larger": OF_KINKS["margin larger"],
        "no kinks": without_margin,
    },
    "kinked": {
        **ANY,
        **OF_DESCENT,
        **OF_A_FIT,
        **OF_KINKS,
        "bias missing": without_bias,
        "slope below 0 changed": entry("settings", (1, 0), 0.3),
    },
    "smooth": {**ANY, **OF_DESCENT, **OF_A_FIT},
    "classes": {
        "Lipschitz constant smaller": reevaluate(lipschitz_H=1.0 - 1e-6),
        "least eigenvalue larger": reevaluate(lambda_min_H=1.0 + 1e-4),
        "gradient smaller": reevaluate(initial_gap=1.0 - 1e-6),
        "another label": edit("problem.safetensors", "labels", lambda A: (A + 1) % 3),
        "another class weight": entry("classes", (0, 1), 1.5),
        "a negative class weight": entry("classes", (0, 1), -1.0),
        "no class has a weight": edit("problem.safetensors", "classes", lambda A: 0.0 * A),
        "a class weight less": edit("problem.safetensors", "classes", lambda A: A[:, 1:]),
        "class weights in a row": edit("problem.safetensors", "classes", lambda A: A[0]),
        "no class weights": lambda run: run.arrays["problem.safetensors"].pop("classes"),
        "less smoothing": entry("objective", (0, 2), 0.09),
        "smoothing above 1": entry("objective", (0, 2), 1.1),
        "no smoothing": edit("problem.safetensors", "objective", lambda A: A[:, :2]),
        "a sum instead of a mean": entry("objective", (0, 1), 0.0),
        "the kind without classes": lambda run: run.certificate["problem"].update(kind="network-cross-entropy"),
    },
    "equal rows": {
        **OF_A_FIT,
        "gaps measured from 0": field(("optimal_value",), (0.0).hex()),
        "gaps measured from a little more": scaled(("optimal_value",), 1.0 + 1e-15),
        "gaps measured from a little less": scaled(("optimal_value",), 1.0 - 1e-15),
        "equal rows counted": field(("problem", "N"), 7),
        "gap smaller": reevaluate(initial_gap=1.0 - 1e-6),
        "least singular value larger": reevaluate(sigma_min_J=1.0 + 1e-6),
        "targets of equal rows further apart": edit("problem.safetensors", "Y", apart),
        "one of the equal rows moved": entry("X", (1, 0), 0.25),
        "a row less": edit("problem.safetensors", "X", lambda X: X[:-1]),
    },
    "mean": {
        **OF_A_FIT,
        **OF_KINKS,
        "another mean": entry("multiple", (0, 1), 5),
        "a sum": entry("multiple", (0, 1), 1),
        "no denominator": entry("multiple", (0, 1), 0),
        "a negative multiple": edit("problem.safetensors", "multiple", lambda A: -A),
        "a numerator alone": edit("problem.safetensors", "multiple", lambda A: A[:, :1]),
        "a multiple that is no integer": edit("problem.safetensors", "multiple", lambda A: A.astype(np.float64)),
        "no multiple": lambda run: run.arrays["problem.safetensors"].pop("multiple"),
        "the kind of the plain square": lambda run: run.certificate["problem"].update(kind="network-squared"),
        "least singular value larger": reevaluate(sigma_min_J=1.0 + 1e-6),
        "Lipschitz constant smaller": reevaluate(lipschitz_J=1.0 - 1e-6),
        "gap smaller": reevaluate(initial_gap=1.0 - 1e-6),
    },
    "near": {
        **ANY,
        **OF_A_FIT,
        **OF_KINKS,
        "Newton step shorter": reevaluate(newton_step=1.0 - 1e-6),
        "Newton step 0": reevaluate(newton_step=0.0),
        "Newton step missing": without("newton_step"),
        "least singular value larger": reevaluate(sigma_min_J=1.0 + 1e-6),
        "a contraction that is faster, alone": scaled(("quantities", "contraction"), 1.0 - 1e-6),
        "a decrease beyond the rate": faster(add=1e-2),
        "the theorem of descent": lambda run: run.certificate.update(theorem="feed-forward/local"),
    },
    "minimum": {
        **ANY,
        **OF_DESCENT,
        "Lipschitz constant 0": reevaluate(lipschitz_H=0.0),
        "Lipschitz constant smaller": reevaluate(lipschitz_H=1.0 - 1e-6),
        "least eigenvalue larger": reevaluate(lambda_min_H=1.0 + 1e-4),
        "norm smaller": reevaluate(norm_H=1.0 - 1e-4),
        "gradient smaller": reevaluate(initial_gap=1.0 - 1e-6),
        "gap of the objective smaller, alone": scaled(("quantities", "loss_gap"), 1.0 - 1e-6),
        "another label": edit("problem.safetensors", "labels", lambda A: (A + 1) % 3),
        "a label of no output": edit("problem.safetensors", "labels", lambda A: A + 1),
        "a negative label": edit("problem.safetensors", "labels", lambda A: A - 1),
        "labels that are floats": edit("problem.safetensors", "labels", lambda A: A.astype(np.float64)),
        "labels in a column": edit("problem.safetensors", "labels", lambda A: A[:, None]),
        "less weight decay": entry("objective", (0, 0), 0.09),
        "negative weight decay": entry("objective", (0, 0), -0.1),
        "a sum instead of a mean": entry("objective", (0, 1), 0.0),
        "half a mean": entry("objective", (0, 1), 0.5),
        "no objective": lambda run: run.arrays["problem.safetensors"].pop("objective"),
        "squared error instead": _as_squares,
        "the kind of another objective": lambda run: run.certificate["problem"].update(kind="network-mse"),
        "a theorem of fits": lambda run: run.certificate.update(theorem="feed-forward/local"),
    },
}
