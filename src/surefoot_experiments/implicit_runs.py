"""Training runs of implicit networks as in the paper: full-batch gradient descent with what its figures show at every epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surefoot._implicit.engine import WeightEngine, Weights
from surefoot._implicit.equilibrium import solve
from surefoot._implicit.network import ImplicitReLU
from surefoot._implicit.solvers import SolverMemory

from .finished import Part, kept_all
from .implicit_data import TwoClass
from .result import Progress

INCREMENT, LIMIT = 1e-2, 100
"""The paper stops the forward iteration where ‖ΔZ‖ is at most this, or after so many iterations."""
FORMAT = 2
"""Of what a file keeps of a run; raised whenever the same setting would give other numbers."""
TEST_TOLERANCE = 1e-8
EIGENVALUE_TOLERANCE = 1e-7
EIGENVALUE_LIMIT = 10_000


@dataclass(frozen=True)
class Setting:
    """W ~ N(0, 1/m), A = I, b = 0; a constant step on the summed loss ½‖ŷ - y‖²."""

    width: int
    gamma: float
    eta: float
    epochs: int
    seed: int = 0


@dataclass
class Training:
    """A run, with one entry an epoch in each list, that before the first step included.

    Attributes:
        setting: of the run.
        train, test: loss per sample, ½(ŷ - y)² on average.
        accuracy: part of the test samples on the right side of ½.
        contraction: γ‖A‖, of the singular values of A (the run itself rests on an upper bound, which has slack).
        forward: iterations of the paper's forward iteration from 0.
        sharpness: λ_max(H) before the first step.
        ended: why it ended before the last epoch; empty where it did not.
    """

    setting: Setting
    train: list[float] = field(default_factory=list)
    test: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    contraction: list[float] = field(default_factory=list)
    forward: list[int] = field(default_factory=list)
    sharpness: float = 0.0
    ended: str = ""

    @property
    def stability(self) -> float:
        """2/η: gradient descent cannot settle where λ_max(H) is above it."""
        return 2.0 / self.setting.eta

    @property
    def mean_forward(self) -> float:
        """Forward iterations on average."""
        return sum(self.forward) / len(self.forward)

    @property
    def rises(self) -> int:
        """Epochs whose training loss is above that of the epoch before."""
        return sum(b > a for a, b in zip(self.train, self.train[1:], strict=False))


def trainings(data: TwoClass, settings: Sequence[Setting], cache: Path | None, progress: Progress) -> list[Training]:
    """Run every setting; a finished run with the same data and setting in the directory ``cache`` is read instead."""
    distinct = list(dict.fromkeys(settings))
    digest, tensors = data.digest, {"X": data.X, "Y": data.Y, "X_test": data.X_test, "Y_test": data.Y_test}
    parts = (
        Part(
            f"{data.name}: m = {setting.width}, gamma = {setting.gamma:g}, eta = {setting.eta:.3g} "
            f"(run {number} of {len(distinct)})",
            {"implicit": FORMAT, "data": digest, **asdict(setting)},
            {"name": data.name, "setting": asdict(setting)},
            tensors,
        )
        for number, setting in enumerate(distinct, 1)
    )
    results = kept_all(cache, data.name.lower(), parts, computed, progress)
    done = {setting: Training(setting, **result) for setting, result in zip(distinct, results, strict=True)}
    return [done[setting] for setting in settings]


def computed(name: str, setting: dict[str, Any], **data: Tensor) -> dict[str, Any]:
    """What a file keeps of a run; ``data`` are the tensors of ``TwoClass``."""
    run = train(TwoClass(name, **data), Setting(**setting))
    return {name: value for name, value in vars(run).items() if name != "setting"}


def train(data: TwoClass, setting: Setting) -> Training:
    """Gradient descent until the last epoch, or until the equilibrium need not exist any more or every unit is dead."""
    generator = torch.Generator().manual_seed(setting.seed)
    net = ImplicitReLU.paper(data.X.shape[1], setting.width, setting.gamma, generator=generator)
    weights = Weights(net.W.detach().clone(), net.A.detach().clone(), net.b.detach()[:, None].clone())
    engine = WeightEngine(data.loss, weights, setting.gamma)
    run = Training(setting, sharpness=largest_eigenvalue(net.gram(data.X)))
    memory = SolverMemory()
    _record(run, engine, data, memory)
    for _ in range(setting.epochs):
        engine.move(setting.eta)
        if engine.failure is not None:
            run.ended = engine.failure.value
            break
        if not math.isfinite(engine.iterate.gap):
            run.ended = "non_finite"
            break
        _record(run, engine, data, memory)
    return run


def _record(run: Training, engine: WeightEngine, data: TwoClass, memory: SolverMemory) -> None:
    iterate, gamma = engine.iterate, run.setting.gamma
    Phi = (data.X_test @ iterate.at.W).relu()
    Z = solve(iterate.at.A, Phi, gamma, norm_A=iterate.norm_A, tolerance=TEST_TOLERANCE, memory=memory).Z
    outputs = Z @ iterate.at.b
    run.train.append(iterate.gap / len(data.X))
    run.test.append(0.5 * float((outputs - data.Y_test).square().mean()))
    run.accuracy.append(float(((outputs > 0.5) == (data.Y_test > 0.5)).double().mean()))
    run.contraction.append(gamma * float(torch.linalg.matrix_norm(iterate.at.A, 2)))
    # float32, as the difference is far below what the rule looks at
    plain = solve(
        iterate.at.A.float(),
        iterate.Phi.float(),
        gamma,
        norm_A=iterate.norm_A * (1.0 + 1e-6),
        solver="plain",
        increment=INCREMENT,
        max_iterations=LIMIT,
    )
    run.forward.append(plain.iterations)


def largest_eigenvalue(H: Tensor) -> float:
    """λ_max of a symmetric positive semidefinite H (N, N) by power iteration, to about seven digits."""
    v = torch.ones(len(H), dtype=H.dtype) / math.sqrt(len(H))
    value = 0.0
    for _ in range(EIGENVALUE_LIMIT):
        w = H @ v
        size = float(torch.linalg.vector_norm(w))
        if size == 0.0 or abs(size - value) <= EIGENVALUE_TOLERANCE * size:
            return size
        v, value = w / size, size
    return value
