"""Iterations to an absolute gap of 1e-20 and iterations guaranteed before training, on the settings of the paper."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from report import Report, Shown, orthogonal_problem, parser

import surefoot as sf

TARGET = 1e-20
WIDTHS, NOISES, REPEATS = (500, 1000, 4000), (1.0, 10.0, 50.0), 3
RULES = ("certified-bb", "contraction", "sharp", "exact-line-search", "barzilai-borwein")


def executed(X: object, Y: object, W1: object, W2: object, rule: str, certificate: sf.Certificate, limit: int) -> float:
    """Iterations of a rule; infinite if the limit came first."""
    net = sf.nn.TwoLayerLinear(W1, W2)
    loss = sf.SquaredLoss(X, Y)
    run = sf.descend(net, loss, rule, limit, 0.0, absolute_tolerance=TARGET, certificate=certificate, progress=False)
    return run.iterations if run.status is sf.RunStatus.CONVERGED else float("inf")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the two tables (medians over repeats)."""
    options = parser(__doc__)
    options.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    report = Report(options, arguments)
    widths, noises, repeats = ((50,), (1.0,), 1) if report.smoke else (report.options.widths, NOISES, REPEATS)
    guaranteed: list[list[object]] = []
    taken: list[list[object]] = []
    for width in widths:
        for noise in noises:
            a_priori: dict[str, list[float]] = {"corrected": [], "contraction": [], "drift": []}
            iterations: dict[str, list[float]] = {rule: [] for rule in ("paper-rho", *RULES)}
            for seed in range(repeats):
                X, Y, W1, W2 = orthogonal_problem(width, noise, seed)
                net, loss = sf.nn.TwoLayerLinear(W1, W2), sf.SquaredLoss(X, Y)
                certificates = {name: sf.certify(net, loss, f"two-layer/{name}") for name in a_priori}
                for name, certificate in certificates.items():
                    a_priori[name].append(certificate.iterations_to(TARGET / certificate.initial_gap))
                for rule in iterations:
                    certificate = certificates["corrected" if rule == "paper-rho" else "drift"]
                    iterations[rule].append(executed(X, Y, W1, W2, rule, certificate, 20_000))
            middle = {k: statistics.median(v) for k, v in (a_priori | iterations).items()}
            guaranteed.append(
                [width, noise, *(middle[k] for k in a_priori), Shown(middle["corrected"] / middle["drift"], "{:.1f}x")]
            )
            ratio = Shown(middle["paper-rho"] / middle["certified-bb"], "{:.1f}x")
            taken.append([width, noise, *(middle[k] for k in iterations), ratio])
    report.table(
        f"Iterations to a gap of {TARGET:g} guaranteed before training (median of {repeats})",
        ["width", "noise", "paper, corrected", "contraction (III)", "drift (II + III)", "paper / drift"],
        guaranteed,
    )
    report.table(
        f"Iterations to a gap of {TARGET:g} taken (median of {repeats})",
        ["width", "noise", "paper-rho", *RULES, "paper / certified-bb"],
        taken,
    )


if __name__ == "__main__":
    main()
