"""A short training of every system into a directory, and whether two directories hold the same run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from draws import normal
from good_runs import nearly_fitted
from safetensors.torch import load as load_tensors

import surefoot as sf
from surefoot._deconvolution.learned import training as deconvolution
from surefoot._deconvolution.learned.training_data import TrainingData
from surefoot.deconvolution import LADMM, DeconvolutionProblem, PeriodicBlur

STEPS = 6
UNREPEATABLE = {"seconds", "rule.seconds"}
"""Fields of JSON files and tensors of checkpoints that hold elapsed time."""

Training = Callable[..., object]
"""``train(directory, resume, steps)``; without steps, ``STEPS`` of them."""


def two_layer(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """With a second certificate on the way, and one that is not followed."""
    net, loss = sf.nn.TwoLayerLinear.gaussian(4, 2, 12), sf.SquaredLoss(normal(20, 4, seed=0), normal(20, 2, seed=1))
    options = {"tolerance": 0.0, "certify_every": 3, "progress": False}
    return sf.descend(net, loss, None, steps, directory=directory, resume=resume, **options)  # pyright: ignore[reportArgumentType]


def linear_resnet(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """By gradient descent on all samples."""
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 60.0)
    loss = sf.SquaredLoss(normal(8, 2, seed=0), normal(8, 2, seed=1))
    certificate = sf.certify(net, loss, "linear-resnet/gd")
    options = {"tolerance": 0.0, "certificate": certificate, "progress": False}
    return sf.descend(net, loss, None, steps, directory=directory, resume=resume, **options)  # pyright: ignore[reportArgumentType]


def sgd(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """By ``sf.sgd``."""
    net = sf.nn.LinearResNet.modified_identity(4, 2, 8, 3, 2.0)
    X, Y = normal(20, 4, seed=0), normal(20, 2, seed=1)
    return sf.sgd.descend(net, X, Y, 8, 1e-4, steps, seed=3, directory=directory, resume=resume)


def implicit(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """An implicit ReLU network."""
    X, y = normal(5, 4, seed=0), normal(5, seed=1).sign()
    X = X / X.norm(dim=1, keepdim=True)
    net, loss = sf.nn.ImplicitReLU.certifiable(X, y, 20), sf.SquaredLoss(X, y)
    certificate = sf.certify(net, loss, "implicit/measured")
    options = {"tolerance": 0.0, "certificate": certificate, "progress": False}
    return sf.descend(net, loss, None, steps, directory=directory, resume=resume, **options)  # pyright: ignore[reportArgumentType]


def feed_forward(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """A plain network."""
    net, loss = nearly_fitted()
    return sf.descend(net, loss, None, steps, 0.0, directory=directory, resume=resume, progress=False)


def step_sizes(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """Training of the network, by L-BFGS."""
    net, problems = sf.nn.StepSizeNet.orthogonal(seed=0), sf.learned.LeastSquares.random(2, 4, 5, seed=0)
    return sf.learned.train(net, problems, "lbfgs", epochs=steps, iterations=3, directory=directory, resume=resume)


def solving(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """The solver whose steps the network chooses."""
    net, problems = sf.nn.StepSizeNet.orthogonal(seed=0), sf.learned.LeastSquares.random(2, 4, 5, seed=0)
    options = {"max_iterations": steps, "tolerance": 0.0, "progress": False}
    return sf.descend(net, problems, directory=directory, resume=resume, **options)  # pyright: ignore[reportArgumentType]


def inverse(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """The coefficients of a learned inverse."""
    return sf.nn.LearnedInverse.ones(2, 2).fit(
        normal(3, 4, 5, seed=0), epochs=steps, directory=directory, resume=resume
    )


def svd(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """The steps of a learned SVD, with its inverses trained inside."""
    net = sf.nn.LearnedSVD(4, 5, 2, layers=1, inverse=(2, 2))
    options = {"batch": 2, "inverse_iterations": 2, "directory": directory, "resume": resume}
    return net.fit(normal(4, 4, 5, seed=0), iterations=steps, **options)  # pyright: ignore[reportArgumentType]


def learned_deconvolution(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """A deconvolution network, with the coefficients of its inverses trained beside it."""
    net = sf.nn.LearnedDeconvolution(1, 0, inverse=(2, 2), seed=0)
    options = {"steps": steps, "batch": 1, "crop": 38, "directory": directory, "resume": resume}
    return deconvolution.train(net, _pictures(), "objective", **options)  # pyright: ignore[reportArgumentType]


def ladmm(directory: Path, resume: bool = False, steps: int = STEPS) -> object:
    """L-ADMM on two pictures."""
    blur = PeriodicBlur(torch.full((3, 3), 1.0 / 9.0, dtype=torch.float64), (16, 14))
    observed = blur.forward(normal(2, 1, 16, 14, seed=4)) + 0.01 * normal(2, 1, 16, 14, seed=5)
    problem = DeconvolutionProblem(observed, blur, 0.02, "db2")
    options = {"max_iterations": steps, "tolerance": 0.0, "progress": False}
    return sf.descend(LADMM(0.5), problem, directory=directory, resume=resume, **options)  # pyright: ignore[reportArgumentType]


def _pictures() -> TrainingData:
    generator = torch.Generator().manual_seed(0)
    kernels = torch.rand(2, 37, 37, generator=generator)
    return TrainingData(
        torch.rand(40, 180, 180, generator=generator), kernels / kernels.sum((1, 2), keepdim=True), "noise"
    )


TRAININGS: dict[str, Training] = {
    "two-layer": two_layer,
    "linear-resnet": linear_resnet,
    "sgd": sgd,
    "implicit": implicit,
    "feed-forward": feed_forward,
    "step-sizes": step_sizes,
    "solving": solving,
    "inverse": inverse,
    "svd": svd,
    "deconvolution": learned_deconvolution,
    "ladmm": ladmm,
}


# -- what two directories must agree in --------------------------------------------------------------------------------


def content(path: Path) -> object:
    """A file without elapsed times: the bytes, where it has none."""
    raw = path.read_bytes()
    if path.suffix == ".json" and b'"seconds"' in raw:
        return {name: value for name, value in json.loads(raw).items() if name not in UNREPEATABLE}
    if path.suffix == ".safetensors" and b'"rule.seconds"' in raw:
        tensors = load_tensors(raw)
        return {name: (t.dtype, t.tolist()) for name, t in sorted(tensors.items()) if name not in UNREPEATABLE}
    return raw


def files(directory: Path) -> dict[str, Path]:
    """All files below a directory, by name."""
    return {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}


def differences(directory: Path, whole: Path, dense: Path) -> list[str]:
    """What differs from the uninterrupted run ``whole``: files that are missing, left over, or have another content. A checkpoint
    that only this run took must be that of ``dense``, the uninterrupted run with a checkpoint before every step; a report, which
    shows the checkpoints, then has to be there only."""
    present, expected, every = files(directory), files(whole), files(dense)
    more = any("checkpoints/" in name for name in present.keys() - expected.keys())
    wrong = [f"{name} is missing" for name in expected.keys() - present.keys()]
    for name, path in present.items():
        other = expected.get(name, every.get(name) if "checkpoints/" in name else None)
        if other is None:
            wrong.append(f"{name} is left over")
        elif content(path) != content(other) and not (more and path.suffix in (".html", ".png")):
            wrong.append(f"{name} differs")
    return sorted(wrong)


@contextmanager
def in_use(directory: Path) -> Iterator[None]:
    """Within the context, another process might be writing a run into the directory."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
