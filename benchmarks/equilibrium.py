"""Equilibrium layers on a user's cell: forward and backward at equal accuracy, our solvers beside those of torchdeq."""

from __future__ import annotations

import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from report import Report, Shown, parser
from torch import Tensor, nn

import surefoot as sf

PEERS = ("torchdeq",)
OURS = ("auto", "plain", "anderson")
THEIRS = ("fixed_point_iter", "anderson", "broyden")
TARGETS = {torch.float32: 1e-5, torch.float64: 1e-8}
"""Relative error of z that all must reach."""
CANCELLED = 10.0
"""The gradients may have so many times that: their sums over samples and entries cancel."""
TUNING, COARSE, FINE = 10, 10.0**-0.5, 10.0**0.25
"""How often a tolerance is lowered, and by what factor, before a solver is said not to reach the target; then it is raised."""
LIMIT, BROYDEN = 5000, 120
"""Most evaluations; torchdeq's Broyden reserves memory for each."""
FAR = 1.6


@dataclass(frozen=True)
class Sizes:
    """Rows and width of the dense cells and of a tiny one; rows, channels and side of the pictures; factors; timing."""

    dense: tuple[int, int]
    tiny: tuple[int, int]
    pictures: tuple[int, int, int]
    contractions: tuple[float, ...]
    kinds: tuple[str, ...]
    rounds: int
    shortest: float
    """Seconds that one timing lasts at least: a small problem is repeated."""


FULL = Sizes((128, 300), (8, 16), (16, 32, 16), (0.3, 0.5, 0.8, 0.95, 0.99), ("", ", symmetric"), 5, 0.01)
SMOKE = Sizes((3, 8), (2, 4), (2, 3, 4), (0.5,), ("",), 1, 0.0)


class Dense(nn.Module):
    """φ(zW + x) with ‖W‖ = q/max φ': gaussian, or symmetric, where the rate is close to q."""

    def __init__(self, width: int, q: float, activation: str, symmetric: bool) -> None:
        super().__init__()
        W = draw(width, width, seed=1)
        W = W + W.T if symmetric else W
        steepest = {"tanh": 1.0, "gelu": 1.1290}[activation]
        self.weight = nn.Parameter(W * (q / steepest / torch.linalg.matrix_norm(W, 2)))
        self.activation = {"tanh": torch.tanh, "gelu": nn.functional.gelu}[activation]

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """The next state (N, width)."""
        return self.activation(z @ self.weight + x)


class Convolution(nn.Module):
    """tanh of a circular 3×3 convolution of norm q, plus x; symmetric: its kernel is that of a symmetric matrix."""

    def __init__(self, channels: int, side: int, q: float, symmetric: bool) -> None:
        super().__init__()
        kernel = draw(channels, channels, 3, 3, seed=1)
        kernel = kernel + kernel.transpose(0, 1).flip(2, 3) if symmetric else kernel
        # circular: the discrete Fourier transform has the singular values
        spectrum = torch.fft.fft2(kernel, (side, side)).permute(2, 3, 0, 1)
        self.weight = nn.Parameter(kernel * (q / torch.linalg.matrix_norm(spectrum, 2).max()))

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        """The next state (N, channels, side, side)."""
        around = nn.functional.pad(z, (1, 1, 1, 1), mode="circular")
        return torch.tanh(nn.functional.conv2d(around, self.weight) + x)


def draw(*shape: int, seed: int) -> Tensor:
    """Normal numbers, float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass
class Problem:
    """A cell of contraction factor q, its input, and the vector v of the loss ⟨v, z⟩; with what is known of it exactly."""

    name: str
    q: float
    cell: nn.Module
    x: Tensor
    v: Tensor

    @classmethod
    def make(cls, name: str, q: float, cell: nn.Module, *shape: int) -> Problem:
        """In float64, of numbers that float32 has, with small inputs, so that φ' is not small."""
        problem = cls(name, q, cell, 0.3 * draw(*shape, seed=2), draw(*shape, seed=3))
        return problem.to(torch.float32).to(torch.float64)

    def to(self, dtype: torch.dtype) -> Problem:
        """The same; the cell is shared, and cast."""
        return Problem(self.name, self.q, self.cell.to(dtype), self.x.to(dtype), self.v.to(dtype))

    def parameters(self) -> list[Tensor]:
        """What has a gradient beside x."""
        return list(self.cell.parameters())

    def settled(self, step: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
        """The fixed point of a map with factor q, to 1e-12 or its rounding: by plain steps, from wherever it starts."""
        point, best, since = start, math.inf, 0
        while since < 20:
            after = step(point)
            distance = float(torch.dist(after, point) / torch.linalg.vector_norm(after))
            best, since = (distance, 0) if distance < best else (best, since + 1)
            point = after
            if distance <= 1e-12 * (1.0 - self.q):
                break
        return point

    def fixed_point(self) -> Tensor:
        """z, in float64, without a gradient."""
        layer = sf.nn.EquilibriumLayer(self.cell, tolerance=1e-11, max_iterations=LIMIT, on_failure="return")
        with torch.no_grad():  # only the start: the plain steps after it decide
            return self.settled(lambda z: self.cell(z, self.x), layer(self.x))

    def reference(self) -> list[Tensor]:
        """z and the gradients with respect to x and the parameters."""
        z = self.fixed_point().requires_grad_()
        x = self.x.clone().requires_grad_()
        value = self.cell(z, x)

        def back(u: Tensor) -> Tensor:
            return self.v + torch.autograd.grad(value, z, u, retain_graph=True)[0]

        u = self.settled(back, self.v)
        return [z.detach(), *torch.autograd.grad(value, [x, *self.parameters()], u)]

    def against_differences(self, exact: Sequence[Tensor], step: float = 1e-4) -> float:
        """Relative error of the derivative in a random direction against a central difference of the loss, of order 4."""
        places = [self.x, *(p.data for p in self.parameters())]
        directions = [draw(*p.shape, seed=4 + i) for i, p in enumerate(places)]
        directions = [
            d * (torch.linalg.vector_norm(p) / torch.linalg.vector_norm(d))
            for d, p in zip(directions, places, strict=True)
        ]
        claimed = sum(float((g * d).sum()) for g, d in zip(exact[1:], directions, strict=True))
        before = [p.clone() for p in places]
        slope = 0.0
        for times, weight in ((2, -1), (1, 8), (-1, -8), (-2, 1)):
            for place, old, direction in zip(places, before, directions, strict=True):
                place.copy_(old + times * step * direction)
            slope += weight * float((self.v * self.fixed_point()).sum()) / (12.0 * step)
        for place, old in zip(places, before, strict=True):
            place.copy_(old)
        return abs(claimed - slope) / abs(slope)


def problems(sizes: Sizes) -> Iterator[Problem]:
    """Every cell at every factor."""
    (rows, width), (few, narrow), (pictures, channels, side) = sizes.dense, sizes.tiny, sizes.pictures
    for q in sizes.contractions:
        for kind in sizes.kinds:
            symmetric = bool(kind)
            yield Problem.make(f"tanh{kind}", q, Dense(width, q, "tanh", symmetric), rows, width)
            yield Problem.make(f"GELU{kind}", q, Dense(width, q, "gelu", symmetric), rows, width)
            shape = pictures, channels, side, side
            yield Problem.make(f"convolution{kind}", q, Convolution(channels, side, q, symmetric), *shape)
            yield Problem.make(f"tiny tanh{kind}", q, Dense(narrow, q, "tanh", symmetric), few, narrow)


class Method(ABC):
    """One way to compute z and the gradients; counts holds the evaluations of the latest call, forward and backward."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.counts = [0, 0]

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """z, differentiable."""

    @abstractmethod
    def count(self) -> None:
        """Fill in ``counts``."""

    def __call__(self) -> list[Tensor]:
        """z and the gradients."""
        x = self.problem.x.clone().requires_grad_()
        z = self.forward(x)
        gradients = torch.autograd.grad((self.problem.v * z).sum(), [x, *self.problem.parameters()])
        self.count()
        return [z.detach(), *gradients]

    def limited(self) -> bool:
        """Whether a solve ended at its limit."""
        return max(self.counts) >= LIMIT


class Ours(Method):
    """``sf.nn.EquilibriumLayer``."""

    def __init__(self, problem: Problem, solver: Any, forward: float, backward: float) -> None:
        super().__init__(problem)
        self.layer = sf.nn.EquilibriumLayer(
            problem.cell, solver=solver, tolerance=forward, backward_tolerance=backward, max_iterations=LIMIT,
            on_failure="return",
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """z by the layer."""
        return self.layer(x)

    def count(self) -> None:
        """As the records have them."""
        records = self.layer.info, self.layer.backward_info
        self.counts = [0 if record is None else record.iterations for record in records]


class TorchDEQ(Method):
    """A solver of torchdeq, with implicit differentiation by the same solver."""

    def __init__(self, problem: Problem, solver: str, forward: float, backward: float) -> None:
        from torchdeq import get_deq  # pyright: ignore[reportMissingImports]

        super().__init__(problem)
        self.records: list[Any] = []
        self.most = BROYDEN if solver == "broyden" else LIMIT
        self.deq = get_deq(
            ift=True, f_solver=solver, b_solver=solver, f_stop_mode="rel", b_stop_mode="rel", f_tol=forward,
            b_tol=backward, f_max_iter=self.most, b_max_iter=self.most,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """The last state."""

        self.records = []
        f = partial(self.problem.cell, x=x)
        states, record = self.deq(f, torch.zeros_like(x), backward_writer=self.records.append)
        self.records.insert(0, record)
        return states[-1]

    def count(self) -> None:
        """The steps at which the best states were found."""
        self.counts = [int(record["nstep"].max()) for record in self.records]

    def limited(self) -> bool:
        """Whether a solve took its best step last."""
        return max(self.counts) >= self.most


def errors(computed: Sequence[Tensor], exact: Sequence[Tensor]) -> tuple[float, float]:
    """Relative error of z, and the largest of those of the gradients."""
    each = [
        float(torch.dist(c.double(), e) / torch.linalg.vector_norm(e)) for c, e in zip(computed, exact, strict=True)
    ]
    return each[0], max(each[1:])


def tuned(make: Callable[[float, float], Method], exact: Sequence[Tensor], target: float) -> Method | None:
    """The method with the loosest tolerances of z and of the gradient that reach the target, or nothing."""

    def reached(forward: float, backward: float) -> tuple[Method, bool, bool]:
        method = make(forward, backward)
        of_z, of_gradients = errors(method(), exact)
        return method, of_z <= target, max(of_gradients / CANCELLED, of_z) <= target

    forward = backward = 10.0 * target
    for _ in range(TUNING):
        found, first, both = reached(forward, backward)
        if both:
            break
        if found.limited():
            return None
        forward *= 1.0 if first else COARSE
        backward *= COARSE if first else 1.0
    else:
        return None
    for looser in ((FINE * forward, FINE * backward), (FINE * forward, backward), (forward, FINE * backward)):
        method, _, both = reached(*looser)
        if both:
            return method
    return found


def seconds(methods: Sequence[Method], rounds: int, shortest: float) -> list[list[float]]:
    """Processor seconds of each in each round; what is far behind the fastest of a first round runs only twice."""
    repeats, times = [1] * len(methods), [[] for _ in methods]
    for count in range(rounds + 1):
        for index, method in enumerate(methods):
            if count > 1 and times[index][0] > FAR * min(taken[0] for taken in times):
                times[index].append(times[index][0])
                continue
            start = time.process_time()
            for _ in range(repeats[index]):
                method()
            taken = (time.process_time() - start) / repeats[index]
            if count:
                times[index].append(taken)
            else:
                repeats[index] = max(1, math.ceil(shortest / max(taken, 1e-9)))
    return times


@dataclass
class Case:
    """The rows of a problem in one dtype: of the comparison, and of the methods."""

    summary: list[object]
    methods: list[list[object]]


def compare(
    problem: Problem, dtype: torch.dtype, exact: Sequence[Tensor], gap: float, theirs: Sequence[str], sizes: Sizes
) -> Case:
    """Tune, time, and compare."""
    data, target = problem.to(dtype), TARGETS[dtype]
    makers: dict[tuple[str, str], Callable[[float, float], Method]] = {
        **{("", name): partial(Ours, data, name) for name in OURS},
        **{("torchdeq", name): partial(TorchDEQ, data, name) for name in theirs},
    }
    found = {key: tuned(make, exact, target) for key, make in makers.items()}
    methods = {key: method for key, method in found.items() if method is not None}
    times = dict(zip(methods, seconds(list(methods.values()), sizes.rounds, sizes.shortest), strict=True))
    head = [problem.name, problem.q, str(dtype).removeprefix("torch.")]
    auto = times.get(("", "auto"))
    rows: list[list[object]] = []
    for key, method in found.items():
        name = " ".join(part for part in key if part)
        if method is None:
            rows.append([*head, name, *["not reached"] * 2, *"--"])
            continue
        ratio = "-" if auto is None else Shown(against(times[key], auto), "{:.2f}")
        shown = [Shown(error, "{:.0e}") for error in errors(method(), exact)]
        rows.append([*head, name, ratio, "+".join(map(str, method.counts)), *shown])
    problem.to(torch.float64)
    if auto is None:
        return Case([*head, "not reached", *["-"] * 5, Shown(gap, "{:.0e}")], rows)
    summary: list[object] = [*head, Shown(1e3 * statistics.median(auto), "{:.3g}")]
    for whose in ("", "torchdeq"):
        ratios = {key[1]: against(auto, taken) for key, taken in times.items() if key[0] == whose and key[1] != "auto"}
        best = max(ratios, key=lambda name: ratios[name], default=None)
        summary += ["-", "-"] if best is None else [best, Shown(ratios[best], "{:.2f}")]
    return Case([*summary, "+".join(map(str, methods["", "auto"].counts)), Shown(gap, "{:.0e}")], rows)


def against(times: Sequence[float], others: Sequence[float]) -> float:
    """Median ratio of times of the same round."""
    return statistics.median(a / b for a, b in zip(times, others, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    options = parser(__doc__)
    options.add_argument("--only", default="", metavar="TEXT", help="only the cells whose name has it")
    report = Report(options, arguments, PEERS)
    sizes, theirs = SMOKE if report.smoke else FULL, THEIRS if report.has("torchdeq") else ()
    cases: list[Case] = []
    for problem in problems(sizes):
        if report.options.only in problem.name:
            exact = problem.reference()
            gap = problem.against_differences(exact)
            cases += [compare(problem, dtype, exact, gap, theirs, sizes) for dtype in TARGETS]
    (rows, width), (few, narrow), (pictures, channels, side) = sizes.dense, sizes.tiny, sizes.pictures
    report.table(
        f"z = f(z, x) and its gradients at equal accuracy: dense {rows}×{width}, tiny {few}×{narrow}, "
        f"convolution {pictures}×{channels}×{side}×{side}",
        ["cell", "q", "dtype", "auto ms", "own", "auto/own", "peer", "auto/peer", "evaluations", "differences"],
        [case.summary for case in cases],
        "Tolerances tuned until z is within 1e-5 (float32) or 1e-8 (float64), every gradient within 10 times that, relative.\n"
        "own, peer: the fastest of our other solvers, and of torchdeq's; evaluations of auto, forward and backward;\n"
        "differences: the exact gradient against finite differences of the loss, in float64.",
    )
    report.table(
        "Every method: time over that of auto",
        ["cell", "q", "dtype", "method", "time", "evaluations", "error of z", "of gradients"],
        [row for case in cases for row in case.methods],
    )


if __name__ == "__main__":
    main()
