"""Implicit ReLU networks: the loss and its gradient at equal accuracy, ours, torchdeq, and autograd through the unroll."""

from __future__ import annotations

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from report import Report, Shown, parser
from torch import Tensor

import surefoot as sf
from surefoot._implicit.solvers import SolverMemory

PEERS = ("torchdeq",)
SIDE = 28


@dataclass(frozen=True)
class Sizes:
    """Rows, width, γ of each problem, and timed rounds."""

    rows: int
    width: int
    gammas: tuple[float, ...]
    rounds: int


FULL, SMOKE = Sizes(1000, 1000, (0.1, 0.5, 0.8), 5), Sizes(20, 15, (0.5,), 1)
TARGETS = {torch.float32: 1e-5, torch.float64: 1e-8}
"""Relative error of Z that all must reach."""
CANCELLED = 10.0
"""The gradients may have so many times that: their sums over the rows cancel."""
STEPS, ETA = 4, 1e-3
SOLVERS = ("fixed_point_iter", "anderson", "broyden")
TUNING, FINER = 8, 10.0**-0.5
"""How often a tolerance is lowered, and by what factor, before a solver is said not to reach the target."""
LIMIT = 200
FAR = 1.5

Weights = tuple[Tensor, ...]
Tolerances = tuple[float, float]


@dataclass(frozen=True)
class Problem:
    """Rows and labels, γ, W, A and b at two consecutive iterates of gradient descent, and Z at the first."""

    X: Tensor
    y: Tensor
    gamma: float
    before: Weights
    after: Weights
    start: Tensor

    def to(self, dtype: torch.dtype) -> Problem:
        """The same, rounded."""
        before, after = (tuple(w.to(dtype) for w in weights) for weights in (self.before, self.after))
        return Problem(self.X.to(dtype), self.y.to(dtype), self.gamma, before, after, self.start.to(dtype))


def settled(step: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """The limit of a contraction, far more accurately than any target."""
    point = start
    for _ in range(LIMIT):
        point, last = step(point), point
        if torch.dist(point, last) <= 1e-13 * torch.linalg.vector_norm(point):
            break
    return point


def problem(sizes: Sizes, gamma: float) -> Problem:
    """Digits at 28×28, unit norm, label whether at least 5; a few steps from W ~ N(0, 1/m), A = I and b = 0."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    small = torch.as_tensor(images[: sizes.rows]).reshape(-1, 1, 8, 8)
    X = torch.nn.functional.interpolate(small, (SIDE, SIDE), mode="bilinear").reshape(len(small), -1)
    X = X / torch.linalg.vector_norm(X, dim=1, keepdim=True)
    y = torch.as_tensor(labels[: sizes.rows] >= 5).double()
    net, memory = sf.nn.ImplicitReLU.paper(SIDE**2, sizes.width, gamma), SolverMemory()
    # with the step 1e-3 the network collapses at γ = .8
    eta = ETA if gamma < 0.8 else 0.1 * ETA
    weights = [tuple(w.detach().clone() for w in net.parameters())]
    for _ in range(STEPS + 1):
        net.zero_grad()
        (0.5 * (net(X, memory) - y).square().sum()).backward()
        with torch.no_grad():
            for weight in net.parameters():
                weight.sub_(eta * weight.grad)
        weights.append(tuple(w.detach().clone() for w in net.parameters()))
    W, A, _ = weights[-2]
    Phi = (X @ W).relu()
    start = settled(lambda Z: torch.addmm(Phi, Z, A, alpha=gamma).relu_(), Phi)
    return Problem(X, y, gamma, weights[-2], weights[-1], start)


class Method(ABC):
    """One way to compute the loss and its gradient at ``data.after``."""

    def __init__(self, data: Problem) -> None:
        self.data = data
        self.weights = [w.clone().requires_grad_() for w in data.after]

    @abstractmethod
    def forward(self) -> tuple[Tensor, Tensor]:
        """Z and the loss."""

    def __call__(self) -> list[Tensor]:
        """Z and the gradients."""
        for weight in self.weights:
            weight.grad = None
        Z, loss = self.forward()
        loss.backward()
        return [Z.detach(), *(w.grad for w in self.weights)]


class Ours(Method):
    """``sf.nn.ImplicitReLU``; warm: every call starts from what the step before left."""

    def __init__(self, data: Problem, warm: bool, tolerances: Tolerances) -> None:
        super().__init__(data)
        self._net = sf.nn.ImplicitReLU(*data.before, data.gamma, tolerance=min(tolerances))
        self._left = SolverMemory()
        if warm:
            (0.5 * (self._net(data.X, self._left) - data.y).square().sum()).backward()
        self.weights = list(self._net.parameters())
        with torch.no_grad():
            for weight, new in zip(self.weights, data.after, strict=True):
                weight.copy_(new)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Z and the loss; what the last step left stays as it is."""
        memory = replace(self._left)
        loss = 0.5 * (self._net(self.data.X, memory) - self.data.y).square().sum()
        return memory.Z, loss


class FixedPoint(Method):
    """A way to find Z from Φ, with the rest in autograd."""

    @abstractmethod
    def fixed_point(self, Phi: Tensor) -> Tensor:
        """Z from Φ."""

    def forward(self) -> tuple[Tensor, Tensor]:
        """Z and the loss."""
        W, _, b = self.weights
        Z = self.fixed_point((self.data.X @ W).relu())
        return Z, 0.5 * (Z @ b - self.data.y).square().sum()


class TorchDEQ(FixedPoint):
    """A solver of torchdeq, with implicit differentiation by the same solver."""

    def __init__(self, data: Problem, warm: bool, solver: str, tolerances: Tolerances) -> None:
        from torchdeq import get_deq  # pyright: ignore[reportMissingImports]

        super().__init__(data)
        self._start = data.start if warm else torch.zeros_like(data.start)
        self._deq = get_deq(
            ift=True, f_solver=solver, b_solver=solver, f_stop_mode="rel", b_stop_mode="rel", f_tol=tolerances[0],
            b_tol=tolerances[1], f_max_iter=LIMIT, b_max_iter=LIMIT,
        )  # fmt: skip

    def fixed_point(self, Phi: Tensor) -> Tensor:
        A, gamma = self.weights[1], self.data.gamma
        return self._deq(lambda z: torch.addmm(Phi, z, A, alpha=gamma).relu(), self._start)[0][-1]


class Unroll(FixedPoint):
    """The plain iteration from 0 to a relative change, differentiated by autograd."""

    def __init__(self, data: Problem, tolerances: Tolerances) -> None:
        super().__init__(data)
        self._tolerance = tolerances[0]

    def fixed_point(self, Phi: Tensor) -> Tensor:
        Z = Phi
        for _ in range(LIMIT):
            Z, last = torch.addmm(Phi, Z, self.weights[1], alpha=self.data.gamma).relu(), Z
            if torch.dist(Z.detach(), last.detach()) <= self._tolerance * torch.linalg.vector_norm(Z.detach()):
                break
        return Z


def reference(data: Problem) -> list[Tensor]:
    """Z and the gradients, in float64."""
    data = data.to(torch.float64)
    X, (W, A, b), gamma = data.X, data.after, data.gamma
    XW = X @ W
    Phi = XW.relu()
    Z = settled(lambda Z: torch.addmm(Phi, Z, A, alpha=gamma).relu_(), Phi)
    residual, active = Z @ b - data.y, (Z > 0).double()
    C = torch.outer(residual, b)
    V = settled(lambda V: torch.addmm(C, V, A.T, alpha=gamma).mul_(active), C * active)
    return [Z, X.T @ (V * (XW > 0)), gamma * Z.T @ V, Z.T @ residual]


def errors(computed: Sequence[Tensor], exact: Sequence[Tensor]) -> tuple[float, float]:
    """Relative error of Z, and the largest of those of the gradients."""
    each = [
        float(torch.dist(x.double(), e) / torch.linalg.vector_norm(e)) for x, e in zip(computed, exact, strict=True)
    ]
    return each[0], max(each[1:])


def tuned(
    make: Callable[[Tolerances], Method], exact: Sequence[Tensor], target: float, first: Tolerances
) -> tuple[Method | None, Tolerances]:
    """The method with the loosest tolerances of Z and of the gradient that reach the target, or nothing."""
    forward, backward = first
    for _ in range(TUNING):
        method = make((forward, backward))
        of_Z, of_gradients = errors(method(), exact)
        if max(of_Z, of_gradients / CANCELLED) <= target:
            return method, (forward, backward)
        forward *= FINER
        backward *= FINER if of_Z <= target else 1.0
    return None, first


def memory(method: Method) -> tuple[int, int]:
    """Bytes that torch allocates: at the peak, and between the forward and the backward pass."""
    method()
    for weight in method.weights:
        weight.grad = None
    activities = [torch.profiler.ProfilerActivity.CPU]
    kept = peak = 0
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        with torch.profiler.record_function("forward pass"):
            held = method.forward()
        held[1].backward()
    events: Any = profile.profiler.kineto_results.events()
    end = next(e.start_ns() + e.duration_ns() for e in events if e.name() == "forward pass")
    total = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
        kept = total if event.start_ns() <= end else kept
    return peak, kept


def medians(methods: Sequence[Method], rounds: int) -> list[float]:
    """Median seconds of processor time of each, alternately; what is far behind the fastest peer of the first runs only twice."""
    times: list[list[float]] = [[] for _ in methods]
    for count in range(rounds + 1):
        for index, method in enumerate(methods):
            if count > 1 and index and times[index][1] > FAR * min(taken[1] for taken in times[1:]):
                continue
            start = time.process_time()
            method()
            times[index].append(time.process_time() - start)
    return [statistics.median(taken[1:]) for taken in times]


def compare(problem: Problem, dtype: torch.dtype, solvers: Sequence[str], rounds: int) -> list[list[object]]:
    """Rows of the table."""
    data, target = problem.to(dtype), TARGETS[dtype]
    exact, gamma = reference(data), data.gamma
    guess = 3.0 * target * (1.0 - gamma) / gamma
    first = dict.fromkeys(("ours", *solvers), (guess, guess)) | {"ours": (10.0 * target, 10.0 * target)}
    rows: list[list[object]] = []
    for warm in (False, True):
        methods: dict[str, Method | None] = {}
        for name in first:
            make = partial(Ours, data, warm) if name == "ours" else partial(TorchDEQ, data, warm, name)
            methods[name], first[name] = tuned(make, exact, target, first[name])
        if not warm:
            methods["autograd, unrolled"] = tuned(partial(Unroll, data), exact, target, (0.3 * guess, guess))[0]
        reached = {name: method for name, method in methods.items() if method is not None}
        took = dict(zip(reached, medians(list(reached.values()), rounds), strict=True))
        for name in methods:
            case = [gamma, str(dtype).removeprefix("torch."), "warm" if warm else "cold"]
            case.append(f"torchdeq {name}" if name in solvers else name)
            if name not in reached:
                rows.append([*case, "not reached", *"-----"])
                continue
            of_Z, of_gradients = errors(reached[name](), exact)
            peak, kept = memory(reached[name])
            ratio = Shown(took[name] / took["ours"], "{:.1f}x") if "ours" in took else "-"
            sizes = Shown(peak / 1e6, "{:.0f}"), Shown(kept / 1e6, "{:.0f}")
            rows.append([*case, took[name], ratio, Shown(of_Z, "{:.0e}"), Shown(of_gradients, "{:.0e}"), *sizes])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    report = Report(parser(__doc__), arguments, PEERS)
    sizes, solvers = SMOKE if report.smoke else FULL, SOLVERS if report.has("torchdeq") else ()
    rows: list[list[object]] = []
    for gamma in sizes.gammas:
        data = problem(sizes, gamma)
        for dtype in TARGETS:
            rows += compare(data, dtype, solvers, sizes.rounds)
    report.table(
        f"Loss and gradient of an implicit ReLU network, N = {sizes.rows}, m = {sizes.width}, at equal accuracy",
        ["γ", "dtype", "start", "method", "s", "ratio", "error of Z", "of gradients", "peak MB", "kept MB"],
        rows,
        "Tolerances tuned until Z is within 1e-5 (float32) or 1e-8 (float64), every gradient within 10 times that, relative.\n"
        "Warm: from the results of the step before; kept: between forward and backward pass.",
    )


if __name__ == "__main__":
    main()
