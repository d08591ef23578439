"""A run directory of each theorem that the checker accepts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import batches
import numpy as np
import step_sizes_reference as reference
import tamper
from draws import normal
from good_runs import deconvolution, near_a_minimum, nearly_fitted, nearly_fitted_implicit, total_variation
from instances.two_layer import prescribed_families

import surefoot as sf

STEP_SIZES = {
    "monotone": ("step-sizes/monotone", "least-squares-batch", 0.0, 2.0),
    "rate": ("step-sizes/rate", "least-squares-batch", 0.9, 1.9),
    "tall": ("step-sizes/rate", "least-squares-batch", 0.9, 1.9),
    "prox-monotone": ("step-sizes/prox-monotone", "lasso-batch", 0.5, 2.0),
    "lasso": ("step-sizes/prox-rate", "lasso-batch", 0.8, 1.6),
    "logistic": ("step-sizes/prox-rate", "logistic-batch", 1.0, 1.5),
}
STEPS = 16


def _resnet(name: str, path: Path) -> None:
    if name == "sgd-local":
        return _descend(*batches.fitted(6, 2, 1, 3, 40.0, 2), "linear-resnet/sgd-local", path)
    net = sf.nn.LinearResNet.modified_identity(3, 2, 8, 4, 60.0)
    if name == "far":  # products of layers whose norms the product of the layers' norms overstates
        net = sf.nn.LinearResNet(normal(6, 3, seed=3), normal(2, 6, seed=4), 0.1 * normal(4, 6, 6, seed=5))
    X, Y = normal(30, 3, seed=0), normal(30, 2, seed=1)
    if name == "far":
        Y = (net(X) + 0.001 * normal(30, 2, seed=6)).detach()
    loss = sf.SquaredLoss(X, Y)
    theorem = "linear-resnet/gd" if name == "gd" else None
    _descend(net, loss, theorem, path, steps=None if name == "gd" else "smooth")


def _implicit(name: str, path: Path) -> None:
    if name in ("local", "exact-fit"):
        return _descend(*nearly_fitted_implicit(1), f"implicit/{name}", path)
    X, y = normal(6, 5, seed=0), normal(6, seed=1)
    X = X / X.norm(dim=1, keepdim=True)
    net = sf.nn.ImplicitReLU.certifiable(X, y, 24, seed=0)
    if name == "gd":  # the paper's condition asks for larger weights
        W, A, b = (weight.detach() for weight in (net.W, net.A, net.b))
        net = sf.nn.ImplicitReLU(1e4 * W, 1e4 * A, b, net.gamma / 1e4)
    _descend(net, sf.SquaredLoss(X, y), f"implicit/{name}", path)


def _descend(net: Any, loss: Any, theorem: str | None, path: Path, steps: str | None = None) -> None:
    certificate = sf.certify(net, loss, theorem)
    assert certificate.holds, str(certificate)
    sf.descend(net, loss, steps, 10, certificate=certificate, directory=path, progress=False)


def _feed_forward(name: str, path: Path) -> None:
    if name == "sgd":
        return _descend(*batches.drawn(nearly_fitted(3)), "feed-forward/sgd", path)
    _descend(*(near_a_minimum(3) if name == "minimum" else nearly_fitted(3)), f"feed-forward/{name}", path)


def step_sizes(name: str, path: Path) -> None:
    """A run of learned step sizes, by its name in ``STEP_SIZES``."""
    theorem, kind, low, high = STEP_SIZES[name]
    arrays = reference.batch(kind, 5, 3, *((8, 4) if name in ("tall", "logistic") else (4, 6)))
    if name == "logistic":
        arrays["l2"] = np.array([0.5, 0.3, 0.4])
        arrays = reference.with_minimisers(arrays)
    initial = reference.weights(arrays, low, high)
    made = reference.certificate(theorem, kind, arrays, initial)
    assert made.holds
    files = {"problem.safetensors": arrays, "initial.safetensors": initial}
    files |= reference.checkpoints(reference.run(arrays, initial, STEPS), initial, made, 4)
    reference.directory_of(path, files, made, tamper.safetensors)


def _inverse(name: str, path: Path) -> None:
    if name == "order":
        sf.nn.LearnedInverse.ones(6, 3).save_certificate(path, (0.02, 1.0), "inverse/order")
    else:
        sf.nn.LearnedInverse.chebyshev(4, 4, (1e-3, 1.0)).save_certificate(path)


OTHERS: dict[str, Callable[[Path], None]] = {
    **{f"linear-resnet {name}": partial(_resnet, name) for name in ("gd", "local", "far", "sgd-local")},
    **{f"implicit {name}": partial(_implicit, name) for name in ("spectral", "measured", "gd", "local", "exact-fit")},
    **{f"feed-forward {name}": partial(_feed_forward, name) for name in ("local", "exact-fit", "minimum", "sgd")},
    **{f"step-sizes {name}": partial(step_sizes, name) for name in STEP_SIZES},
    **{f"inverse {name}": partial(_inverse, name) for name in ("interval", "order")},
}
"""``OTHERS[name](path)`` writes a run of a theorem of another system than two-layer networks, which the checker accepts."""


def _two_layer(name: str, path: Path) -> None:
    if name == "prescribed":
        weights, loss = prescribed_families()["orthonormal"]()
        return _descend(sf.nn.TwoLayerLinear(*weights), loss, "two-layer/prescribed", path)
    theorem, _, sensing = name.partition(", ")
    rows = normal(3, 2, 2, seed=1) if sensing else normal(8, 3, seed=1)
    loss = sf.MatrixSensing(rows, normal(3, seed=2)) if sensing else sf.SquaredLoss(rows, normal(8, 2, seed=2))
    _descend(sf.nn.TwoLayerLinear.gaussian(*loss.shape, 12, std=1.0, seed=0), loss, f"two-layer/{theorem}", path)


EVERY: dict[str, Callable[[Path], None]] = {
    **{
        f"two-layer {name}": partial(_two_layer, name)
        for name in ("drift", "drift, many minimisers", "contraction", "constant", "sharp", "corrected", "prescribed")
    },
    **OTHERS,
    "deconvolution": deconvolution,
    "deconvolution tv": total_variation,
}
"""The same of every theorem of every system."""
