"""Implicit ReLU networks: loss and gradient at equal accuracy, ours, torchdeq's solvers, and autograd through the unroll.

torchdeq is not a dependency; without it its rows are left out. Compare in an environment of its own:
``pip install torch==2.13.0 torchdeq==0.1.0`` first, then the project.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from report import one_thread, table
from torch import Tensor

import surefoot as sf
from surefoot.nn import SolverMemory

SIZE, WIDTH, SIDE = 1000, 1000, 28
GAMMAS = (0.1, 0.5, 0.8)
TARGETS = {torch.float32: 1e-5, torch.float64: 1e-8}
STEPS, ETA = 4, 1e-3
ROUNDS = 5
SOLVERS = ("fixed_point_iter", "anderson", "broyden")

Weights = tuple[Tensor, Tensor, Tensor]
Measured = tuple[Tensor, Tensor, Tensor, Tensor]
"""Z and the gradients of W, A and b."""


def torchdeq_core() -> Callable[..., torch.nn.Module] | None:
    """``torchdeq.get_deq``, or nothing where it is not installed."""
    try:
        from torchdeq import get_deq
    except ImportError:
        return None
    return get_deq


@dataclass(frozen=True)
class Problem:
    """The rows, and two consecutive iterates of gradient descent; all float64."""

    X: Tensor
    y: Tensor
    gamma: float
    before: Weights
    after: Weights


def problem(gamma: float) -> Problem:
    """Bundled digits, 28×28, unit norm, whether they are at least 5; W ~ N(0, 1/m), A = I and a few steps from there."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    small = torch.as_tensor(images[:SIZE]).reshape(-1, 1, 8, 8)
    X = torch.nn.functional.interpolate(small, (SIDE, SIDE), mode="bilinear").reshape(len(small), -1)
    X = X / torch.linalg.vector_norm(X, dim=1, keepdim=True)
    y = torch.as_tensor(labels[:SIZE] >= 5).double()
    net = sf.nn.ImplicitReLU.paper(SIDE**2, WIDTH, gamma)
    # the paper's step makes the network collapse at γ = .8
    eta, memory = ETA if gamma < 0.8 else 0.1 * ETA, SolverMemory()
    iterates: list[Weights] = []
    for _ in range(STEPS + 1):
        iterates.append((net.W.detach().clone(), net.A.detach().clone(), net.b.detach().clone()))
        net.zero_grad()
        (0.5 * (net(X, memory=memory) - y).square().sum()).backward()
        with torch.no_grad():
            for weight in net.parameters():
                weight.sub_(eta * weight.grad)
    iterates.append((net.W.detach().clone(), net.A.detach().clone(), net.b.detach().clone()))
    return Problem(X, y, gamma, iterates[-2], iterates[-1])


class Ours:
    """``sf.nn.ImplicitReLU`` with ``solver="auto"``; what it starts from is put back before every call."""

    def __init__(self, data: Problem, dtype: torch.dtype, warm: bool, tolerance: float) -> None:
        self.X, self.y = data.X.to(dtype), data.y.to(dtype)
        self.net = sf.nn.ImplicitReLU(*(w.to(dtype) for w in data.before), data.gamma, tolerance=tolerance)
        self.memory = SolverMemory() if warm else None
        self()
        with torch.no_grad():
            for weight, new in zip(self.net.parameters(), data.after, strict=True):
                weight.copy_(new)
        self.kept = None if self.memory is None else self.memory.copy()

    def __call__(self) -> Measured:
        if self.memory is not None and hasattr(self, "kept"):
            self.memory = self.kept.copy()
        self.net.zero_grad()
        (0.5 * (self.net(self.X, memory=self.memory) - self.y).square().sum()).backward()
        Z = self.net.equilibrium(self.X).Z if self.memory is None else self.memory.Z
        return Z, self.net.W.grad, self.net.A.grad, self.net.b.grad
