"""Implicit networks certified after their features have moved: Adam, at most three Gauss-Newton steps, implicit/local."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from report import Report, Shown, parser
from torch import Tensor

import surefoot as sf

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist01.npz"
SEEDS = range(3)
RATE = 1e-3
STEPS = 3
"""Of Gauss-Newton, at most."""
TARGET = 1e-2
"""Relative gap of the counts, from where the certificate begins."""
PARTS = 12
"""How often the last Gauss-Newton step is shortened less, each time by a factor of 10, until what is left of the residual is
certified: were it taken whole, there would often be nothing left to count."""


@dataclass(frozen=True)
class Setting:
    """Rows of two classes, width, and steps of Adam."""

    rows: int
    width: int
    steps: int


FULL, SMOKE = (Setting(20, 80, 75), Setting(50, 200, 25), Setting(100, 400, 50)), (Setting(8, 32, 40),)


@dataclass(frozen=True)
class Found:
    """Where a certificate holds.

    Attributes:
        steps, finish: of Adam, and of Gauss-Newton.
        moved: ‖Z - Z(0)‖_F/‖Z(0)‖_F.
        certificate: there.
        net, loss: whose it is.
        seconds: of training, looks and certificates up to there.
    """

    steps: int
    finish: int
    moved: float
    certificate: sf.Certificate
    net: sf.nn.ImplicitReLU
    loss: sf.SquaredLoss
    seconds: float

    def needed(self) -> int:
        """Steps of descent with the certificate's own constant step to ``TARGET``, at most as many as are guaranteed."""
        certificate = self.certificate
        most = int(certificate.iterations_to(TARGET)) + 1
        net = copy.deepcopy(self.net)
        run = sf.descend(net, self.loss, certificate.step_size, most, TARGET, certificate=certificate, progress=False)
        if run.status is not sf.RunStatus.CONVERGED or not run.certified:
            raise RuntimeError(f"the guarantee does not hold: {run}")
        return run.iterations


def problem(rows: int, seed: int, source: Path | str) -> tuple[Tensor, Tensor, torch.Generator]:
    """Drawn rows of classes 0 and 1, of norm 1; -1 and 1 for their classes; and what draws the weights."""
    data = sf.data.load(source).classes(0, 1).train()
    assert isinstance(data.X, Tensor) and data.labels is not None
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(data.X), generator=generator)[:rows]
    X = data.X[drawn].double()
    return X / torch.linalg.vector_norm(X, dim=1, keepdim=True), 2.0 * data.labels[drawn].double() - 1.0, generator


def certified(setting: Setting, seed: int, source: Path | str) -> Found | None:
    """After Adam, and the least finish; ``None`` where no finish is certified."""
    X, y, generator = problem(setting.rows, seed, source)
    loss = sf.SquaredLoss(X, y)
    net = sf.nn.ImplicitReLU.gaussian(X.shape[1], setting.width, generator=generator)
    first, start = net.equilibrium(X).Z, time.perf_counter()
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    for _ in range(setting.steps):
        optimizer.zero_grad()
        (0.5 * (net(X) - y).square().sum()).backward()
        optimizer.step()
        net.contract_()
    found = finished(net, loss)
    if found is None:
        return None
    steps, certificate, net = found
    moved = float(torch.dist(net.equilibrium(X).Z, first) / torch.linalg.vector_norm(first))
    return Found(setting.steps, steps, moved, certificate, net, loss, time.perf_counter() - start)


def finished(net: sf.nn.ImplicitReLU, loss: sf.SquaredLoss) -> tuple[int, sf.Certificate, sf.nn.ImplicitReLU] | None:
    """The least finish that is certified: so many Gauss-Newton steps, the last as short as may be."""
    after = copy.deepcopy(net)
    for steps in range(1, STEPS + 1):
        before = copy.deepcopy(after)
        sf.descend(after, loss, "gauss-newton", 1, 0.0, progress=False)
        if not sf.certify(after, loss, "implicit/local").holds:
            continue
        for between in shortened(before, after):
            certificate = sf.certify(between, loss, "implicit/local")
            if certificate.holds:
                return steps, certificate, between
    return None


def shortened(before: sf.nn.ImplicitReLU, after: sf.nn.ImplicitReLU) -> Iterator[sf.nn.ImplicitReLU]:
    """The network after a step of which 1/10, 1/100, ... is missing, and at last nothing."""
    for missing in (*(10.0**-power for power in range(1, PARTS + 1)), 0.0):
        between = copy.deepcopy(after)
        with torch.no_grad():
            for weight, old in zip(between.parameters(), before.parameters(), strict=True):
                weight.lerp_(old, missing)
        yield between


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, default=DATA, metavar="FILE", help="mnist01.npz")
    report = Report(options, arguments)
    source: Path | str = "digits" if report.smoke else report.options.data
    if not report.smoke and not report.options.data.exists():
        print(f"{report.options.data} is missing; give MNIST's digits 0 and 1 by --data: nothing to measure")
        return
    rows: list[list[object]] = []
    for setting in SMOKE if report.smoke else FULL:
        for seed in SEEDS[:1] if report.smoke else SEEDS:
            found = certified(setting, seed, source)
            size = f"{setting.rows}, {setting.width}"
            if found is None:
                rows.append([size, seed, setting.steps, "none", *["–"] * 8])
                continue
            q, needed = found.certificate.quantities, found.needed()
            count = found.certificate.iterations_to(TARGET)
            rows.append(
                [
                    *(size, seed, found.steps, found.finish, Shown(found.moved, "{:.2f}")),
                    *(Shown(q[name], "{:.3g}") for name in ("lipschitz_J", "sigma_min_J", "kink_margin")),
                    *(count, needed, Shown(count / needed, "{:.2f}x"), Shown(found.seconds, "{:.1f}")),
                ]
            )
    data = "digits" if report.smoke else "MNIST"
    report.table(
        f"Certified after features have moved: {data} 0/1, unit rows, W std .5, A std .5/√m, b = 0, γ = .3, Adam {RATE:g}, ±1",
        ["N, m", "seed", "Adam", "finish", "moved", "Λ", "σ", "kinks", "guaranteed", "needed", "ratio", "s"],
        rows,
        f"Counts to {TARGET:g} of the gap of the certified weights, by the certificate's constant step. moved: ‖Z - Z(0)‖/‖Z(0)‖ "
        "of the certified weights.",
    )


if __name__ == "__main__":
    main()
