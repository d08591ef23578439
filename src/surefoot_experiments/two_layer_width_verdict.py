"""What the paper claims of width and imbalance, and whether the runs agree."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean

from .result import Finding, Table
from .two_layer_width_runs import PLAIN

ALMOST = 1.5
"""At most this many times the iterations of plain gradient descent is 'almost matching' it."""


def figure3_findings(
    kappas: dict[tuple[float, int], list[float]],
    ratios: dict[tuple[float, int], list[float]],
    exponents: list[float],
    widths: list[int],
) -> tuple[Finding, ...]:
    """Whether larger widths condition the problem and speed up training as claimed."""
    first, last, low, high = widths[0], widths[-1], min(exponents), max(exponents)
    by_width = [fmean(kappas[low, h]) for h in widths]
    differences = [
        abs(kappa / same - 1.0)
        for p in exponents
        for h in widths
        for kappa, same in zip(kappas[p, h], kappas[low, h], strict=True)
    ]
    decided = [(fmean(ratios[low, h]), fmean(ratios[high, h])) for h in widths]
    ordered = all(a < b for a, b in decided)
    holds = [ratio <= kappa**-2 for key in kappas for kappa, ratio in zip(kappas[key], ratios[key], strict=True)]
    return (
        Finding(
            "For fixed p, a larger width leads to a well-conditioned T_0.",
            f"kappa(T_0) {by_width[0]:.2f} at h = {first}, {by_width[-1]:.2f} at h = {last}",
            all(a > b for a, b in pairwise(by_width)),
            "The mean falls at every width.",
        ),
        Finding(
            "T_0 is well-conditioned under suitable choices of p; Figure 3 has one curve of kappa(T_0) for each p.",
            f"for the same draw, kappa(T_0) differs between the p by {max(differences):.0e} of itself",
            max(differences) > 1e-6,
            "Scaling all weights by h^(-p) scales every singular value of T_0 alike: no p changes kappa(T_0), and "
            "separate curves can only come from separate random draws.",
        ),
        Finding(
            "For a fixed width, a smaller p leads to a smaller alpha1/alpha2.",
            f"at h = {last}: {decided[-1][0]:.3f} for p = {low:g}, {decided[-1][1]:.3f} for p = {high:g}",
            ordered,
            "Backwards: Theorem 3.3 gives 1 - O(h^(2p-1)), which grows as p falls; larger weights make the imbalance "
            "large beside the margin's radius (docs/errata.md).",
        ),
        Finding(
            "1/kappa(T_0)^2 is at least alpha1/alpha2 (21), squares corrected.",
            f"holds in {sum(holds)} of {len(holds)} cases",
            all(holds),
            "alpha1 and alpha2 bound the squared singular values s- and s+.",
        ),
    )


def figure4_findings(table: Table, variances: list[float], widths: list[int]) -> tuple[Finding, ...]:
    """Whether imbalance speeds up training as claimed, beside gradient descent on the loss itself."""
    cells = {(r["noise variance"], r["width"], r["method"]): r for r in table.records()}

    def count(variance: float, width: int, method: str) -> float:
        value = cells[variance, width, method]["iterations"]
        return math.inf if value is None else float(value)

    findings: list[Finding] = []
    last = widths[-1]
    for variance in variances:
        ours, plain = count(variance, last, "paper-rho"), count(variance, last, PLAIN)
        findings.append(
            Finding(
                f"Steps (19) almost match plain gradient descent at large width (noise variance {variance:g}).",
                f"h = {last}: {ours:.1f} iterations beside {plain:.1f}",
                ours <= ALMOST * plain,
                f"Agreement means at most {ALMOST:g} times the iterations. The schedule stays near .999 eta_max, far "
                "below 1/K_t, because the noise makes L(0) large beside alpha1.",
            )
        )
        factors = [float(cells[variance, h, "paper-rho"]["final factor"] or 1.0) for h in widths]
        wider = [float(cells[variance, h, "paper-rho"]["alpha1/alpha2"] or 0.0) for h in widths]
        findings.append(
            Finding(
                f"As the width grows, alpha1/alpha2 grows and the rate comes closer (noise variance {variance:g}).",
                f"h = {widths[0]} to {last}: alpha1/alpha2 {wider[0]:.2f} to {wider[-1]:.2f}, "
                f"final factor {factors[0]:.3f} to {factors[-1]:.3f}",
                wider[-1] > wider[0] and factors[-1] < factors[0],
                "Smallest against largest width.",
            )
        )
    bb = [count(v, last, "certified-bb") for v in variances]
    search = [count(v, last, "exact-line-search") for v in variances]
    plain = [count(v, last, PLAIN) for v in variances]
    findings.append(
        Finding(
            "(Not in the paper: rules without a schedule at the largest width.)",
            f"iterations: certified-bb {min(bb):.1f} to {max(bb):.1f}, exact line search {min(search):.1f} to "
            f"{max(search):.1f}, plain gradient descent {min(plain):.1f} to {max(plain):.1f}",
            None,
            "The network itself is not slower: with steps that follow its current weights it matches plain gradient "
            "descent.",
        )
    )
    return tuple(findings)
