"""Feed-forward networks: certificates and checks against one eigenvalue problem, both bounds of Lambda, steps of descent against
plain ones, the cost of watching a training, a Gauss-Newton step against least squares, and the largest problem."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from checker import timed
from report import Report, Shown, one_thread, parser
from torch import Tensor, nn

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._feed_forward.directions import inverse_at, jacobian
from surefoot._feed_forward.system import FeedForwardSystem
from surefoot_check import check
from surefoot_check.feed_forward.enclosures import Measured

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "GELU": nn.GELU, "ReLU": nn.ReLU}
INPUTS = 50
NEAR = 1e-10
"""How far the targets are from what the network gives, entry by entry: near enough that an exact fit is certified."""


@dataclass(frozen=True)
class Setting:
    """Rows, outputs, and the width of both hidden layers."""

    rows: int
    outputs: int
    width: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.outputs}, {INPUTS}-{self.width}-{self.width}-{self.outputs}"


@dataclass(frozen=True)
class Sizes:
    """What the tables are of.

    Attributes:
        certified: with every activation.
        steps: of descent, of training, and of a finish.
        count: of steps of descent.
        trained: of steps of a training that is watched, and after how many of them it is looked at.
        idle: calls of a watch that does not look.
        largest: in a process of its own, without level exact.
        limit: seconds after which level exact ends on it.
        repeats: of a short measurement.
    """

    certified: tuple[Setting, ...]
    steps: tuple[Setting, ...]
    count: int
    trained: tuple[int, int]
    idle: int
    largest: Setting
    limit: float
    repeats: int


FULL = Sizes(
    (Setting(100, 1, 100), Setting(300, 1, 100), Setting(100, 10, 100), Setting(1000, 1, 256)),
    (Setting(100, 1, 100), Setting(100, 10, 100)),
    300,
    (3000, 100),
    100_000,
    Setting(500, 10, 256),
    60.0,
    3,
)
SMOKE = Sizes((Setting(4, 2, 8),), (Setting(4, 1, 8),), 3, (4, 2), 10, Setting(4, 2, 8), 60.0, 1)


def problem(of: Setting, activation: str = "tanh") -> tuple[nn.Sequential, Tensor, Tensor]:
    """A network as torch draws it, inputs, and targets that it nearly fits."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        widths, kind = (INPUTS, of.width, of.width), ACTIVATIONS[activation]
        hidden = [module for n, m in itertools.pairwise(widths) for module in (nn.Linear(n, m), kind())]
        net = nn.Sequential(*hidden, nn.Linear(of.width, of.outputs)).double()
    X = torch.randn(of.rows, INPUTS, generator=generator, dtype=torch.float64)
    noise = torch.randn(of.rows, of.outputs, generator=generator, dtype=torch.float64)
    return net, X, net(X).detach() + NEAR * noise


def gram(size: int) -> np.ndarray:
    """A positive definite matrix."""
    A = np.random.default_rng(0).standard_normal((size, size))
    return A @ A.T


def written(net: nn.Sequential, loss: sf.SquaredLoss, directory: Path) -> sf.Certificate:
    """A certified run of two steps."""
    certificate = sf.certify(net, loss)
    if not certificate.holds:
        raise RuntimeError(f"the certificate of the benchmark does not hold: {certificate}")
    sf.descend(copy.deepcopy(net), loss, max_iterations=2, certificate=certificate, directory=directory, progress=False)
    return certificate


def certificates(report: Report, sizes: Sizes) -> None:
    """Print the table of certificates and checks."""
    rows: list[list[object]] = []
    for of in sizes.certified:
        S = gram(of.rows * of.outputs)
        full = timed(lambda S=S: np.linalg.eigh(S), sizes.repeats)[0]
        values = timed(lambda S=S: np.linalg.eigvalsh(S), sizes.repeats)[0]
        for activation in ACTIVATIONS:
            net, X, Y = problem(of, activation)
            loss = sf.SquaredLoss(X, Y)
            with tempfile.TemporaryDirectory() as parent:
                run = Path(parent) / "run"
                written(net, loss, run)
                ours = timed(lambda net=net, loss=loss: sf.certify(net, loss), sizes.repeats)[0]
                checked = timed(lambda run=run: check(run), sizes.repeats)[0]
            shown = (Shown(ours / by, "{:.1f}x") for by in (full, values))
            rows.append([str(of), activation, full, values, ours, *shown, checked, Shown(checked / ours, "{:.1f}x")])
    report.table(
        "Certify, and check at level fast, against eigh of n = rows times outputs: processor seconds",
        ["network", "activation", "eigh", "eigvalsh", "certify", "/ eigh", "/ eigvalsh", "check", "/ certify"],
        rows,
    )


def bounds(report: Report, sizes: Sizes) -> None:
    """Print the table of the two bounds of the change of the Jacobian."""
    rows: list[list[object]] = []
    system = FeedForwardSystem()
    for of in sizes.certified:
        for activation in ACTIVATIONS:
            net, X, Y = problem(of, activation)
            loss = system.problem(net, sf.SquaredLoss(X, Y))
            at = Measured(*system.stored_at(loss, system.reduced(net, loss)))
            first, by_layers = timed(lambda at=at: at.lipschitz_by_layers(0.0))
            second, by_rows = timed(lambda at=at: at.lipschitz_by_rows(0.0))
            rows.append([str(of), activation, by_layers, first, by_rows, second])
    report.table(
        "Lambda at radius 0 by layers (Lemma 1) and by rows (Lemma 3), each with processor seconds",
        ["network", "activation", "by layers", "s", "by rows", "s"],
        rows,
    )


def plain(net: nn.Sequential, X: Tensor, Y: Tensor, count: int) -> None:
    """Gradient descent with a fixed step, as one writes it."""
    net = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    for _ in range(count):
        optimizer.zero_grad()
        (0.5 * (net(X) - Y).square().sum()).backward()
        optimizer.step()


def descent(net: nn.Sequential, loss: sf.SquaredLoss, certificate: sf.Certificate, rule: str, count: int) -> None:
    """So many steps of a certified run, without files."""
    net = copy.deepcopy(net)
    sf.descend(net, loss, rule, count, 0.0, certificate=certificate, progress=False)


def steps(report: Report, sizes: Sizes) -> None:
    """Print the table of steps."""
    rows: list[list[object]] = []
    for of in sizes.steps:
        net, X, Y = problem(of)
        loss = sf.SquaredLoss(X, Y)
        certificate = sf.certify(net, loss)
        by = timed(partial(plain, net, X, Y, sizes.count), sizes.repeats)[0] / sizes.count
        for rule in ("floor", "certified-bb"):
            follow = partial(descent, net, loss, certificate, rule)
            work = [timed(partial(follow, count), sizes.repeats)[0] for count in (0, sizes.count)]
            ours = (work[1] - work[0]) / sizes.count
            rows.append([str(of), rule, by * 1e3, ours * 1e3, Shown(ours / by, "{:.1f}x")])
    report.table(
        "A step of certified descent against one of torch.optim.SGD: processor milliseconds, tanh",
        ["network", "rule", "SGD", "ours", "ratio"],
        rows,
        "Ours test the state and record it; certified-bb tries longer steps first, each a pass forward.",
    )


def watched(report: Report, sizes: Sizes) -> None:
    """Print the table of a training that is watched."""
    rows: list[list[object]] = []
    count, every = sizes.trained
    for of in sizes.steps:
        times: list[float] = []
        spent, looks = 0.0, 0
        for watching in (False, True):
            net, X, Y = problem(of)
            Y = Y.sign()
            watch = sf.watch(net, sf.SquaredLoss(X, Y), every, report=None) if watching else None
            optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
            start = time.perf_counter()
            for _ in range(count):
                optimizer.zero_grad()
                (0.5 * (net(X) - Y).square().sum()).backward()
                optimizer.step()
                if watch is not None:
                    watch.step()
            times.append(time.perf_counter() - start)
            if watch is not None:
                spent, looks = sum(seen.seconds for seen in watch.history), len(watch.history)
        net, X, Y = problem(of)
        idle = sf.watch(net, sf.SquaredLoss(X, Y), sizes.idle + 1, report=None)
        nothing = timed(lambda idle=idle: [idle.step() for _ in range(sizes.idle)])[0] / sizes.idle
        shown = [Shown(100.0 * spent / times[1], "{:.1f} %"), Shown(nothing * 1e6, "{:.2f}")]
        rows.append([str(of), *(t / count * 1e3 for t in times), looks, *shown])
    report.table(
        f"Adam, {count:,} steps, and sf.watch(every={every}), whose share is at most 10 %: milliseconds a step",
        ["network", "alone", "watched", "looks", "share of looks", "a call that does not look, µs"],
        rows,
        "The first look is taken whatever it costs.",
    )


def finishes(report: Report, sizes: Sizes) -> None:
    """Print the table of Gauss-Newton steps."""
    rows: list[list[object]] = []
    for of in sizes.steps:
        net, X, Y = problem(of)
        system = system_of(net)
        loss = system.problem(net, sf.SquaredLoss(X, Y.sign()))
        at = system.reduced(net, loss)
        forming, J = timed(lambda loss=loss, at=at: jacobian(loss, at), sizes.repeats)
        assert isinstance(J, Tensor)
        r = loss.residual(at).reshape(-1)
        forms: dict[str, Callable[[], Tensor]] = {
            "ours": lambda loss=loss, at=at, r=r: inverse_at(loss, at)(r),
            "gelsy": lambda J=J, r=r: torch.linalg.lstsq(J, r[:, None], driver="gelsy").solution[:, 0],
            "gels": lambda J=J, r=r: torch.linalg.lstsq(J, r[:, None], driver="gels").solution[:, 0],
        }
        taken = {name: timed(form, sizes.repeats) for name, form in forms.items()}
        d = {name: result for name, (_, result) in taken.items() if isinstance(result, Tensor)}
        apart = float((d["ours"] - d["gelsy"]).norm() / d["gelsy"].norm())
        rows.append(
            [
                str(of),
                forming,
                *(taken[name][0] for name in forms),
                Shown(taken["ours"][0] / taken["gelsy"][0], "{:.2f}x"),
                Shown(apart, "{:.0e}"),
            ]
        )
    report.table(
        "A Gauss-Newton step J⁺r, by JJᵀ layer by layer, against torch.linalg.lstsq of the Jacobian: processor seconds",
        ["network", "forming J", "J⁺r, ours", "gelsy", "gels", "ours / gelsy", "apart, relative"],
        rows,
    )


def largest_problem(of: Setting, limit: float) -> list[object]:
    """Of a process: seconds of a certificate and of its check, and how level exact ends, each with the peak so far in GiB."""
    one_thread()
    net, X, Y = problem(of, "GELU")
    loss, cells = sf.SquaredLoss(X, Y), list[object]()

    def peak() -> Shown:
        status = Path("/proc/self/status").read_text()  # getrusage counts what a process was before exec
        return Shown(int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) / 2**20, "{:.1f}")

    with tempfile.TemporaryDirectory() as parent:
        run = Path(parent) / "run"
        ours, certificate = timed(lambda: sf.certify(net, loss))
        assert isinstance(certificate, sf.Certificate) and certificate.holds
        cells += [ours, peak()]
        sf.descend(net, loss, max_iterations=2, certificate=certificate, directory=run, progress=False)
        for level, seconds in (("fast", None), ("exact", limit)):
            checked, verdict = timed(lambda level=level, s=seconds: check(run, level, seconds=s).outcome)
            cells += [checked, str(verdict), peak()]
    return cells


def largest(report: Report, sizes: Sizes) -> None:
    """Print the table of the largest problem."""
    of = sizes.largest
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        cells = pool.submit(largest_problem, of, sizes.limit).result()
    S = gram(of.rows * of.outputs)
    full = timed(lambda: np.linalg.eigh(S))[0]
    report.table(
        f"The largest problem, n = {of.rows * of.outputs:,}, GELU: processor seconds, and peak of resident memory so far in GiB",
        ["network", "eigh", "certify", "GiB", "fast", "outcome", "GiB", f"exact, {sizes.limit:g} s", "outcome", "GiB"],
        [[str(of), full, *cells]],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    report = Report(parser(__doc__), arguments)
    sizes = SMOKE if report.smoke else FULL
    certificates(report, sizes)
    bounds(report, sizes)
    steps(report, sizes)
    watched(report, sizes)
    finishes(report, sizes)
    largest(report, sizes)


if __name__ == "__main__":
    main()
