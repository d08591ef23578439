"""What the numbers on the lemmas of the implicit ReLU paper say."""

from __future__ import annotations

from collections.abc import Sequence

from .result import Finding, Table

ROUNDING = 1e-9
DIFFERENCES = 1e-6
"""Relative; of quotients of differences, whose own error this is at most."""


def findings(tables: Sequence[Table]) -> tuple[Finding, ...]:
    """One for each lemma: ``tables`` are those of ``implicit_lemmas.lemmas``."""
    spectrum, bounds, gradients, equilibria, runs = tables
    return (
        _existence(equilibria),
        *_spectrum(spectrum),
        *_gradients(gradients),
        *_lower_bounds(bounds),
        _lipschitz(equilibria),
        _closed_form(equilibria),
        *_runs(runs),
    )


def _numbers(table: Table, column: str) -> list[float]:
    return [float(str(cell)) for cell in table.column(column)]


def _existence(table: Table) -> Finding:
    largest = max(_numbers(table, "largest |Z|_F / (Lemma 3.1)"))
    return Finding(
        "|Z|_F <= |Phi|_F / (1 - gamma0) (Lemma 3.1).",
        f"largest ratio of the sides {largest:.4g}",
        largest <= 1.0 + ROUNDING,
        "Attained at one unit with A > 0.",
    )


def _spectrum(table: Table) -> tuple[Finding, Finding]:
    margins = [float(str(r["least Re lambda(Q)"])) - float(str(r["1 - gamma0"])) for r in table.records()]
    singular = [float(str(r["least sigma(Q)"])) / float(str(r["1 - gamma0"])) for r in table.records()]
    turned = max(_numbers(table, "largest Im lambda(Q)"))
    return (
        Finding(
            "lambda_min(Q) > 1 - gamma0 (Lemma 3.2, (6)).",
            f"least Re lambda(Q) - (1 - gamma0) = {min(margins):.2g}; |Im lambda(Q)| up to {turned:.3g}",
            min(margins) > ROUNDING and turned <= ROUNDING,
            "Agreement means real eigenvalues, all above 1 - gamma0. With A = I and all units active there is equality; Q is "
            "not symmetric, and of a rotation no eigenvalue is real.",
        ),
        Finding(
            "(Not in the paper: sigma_min(Q) >= 1 - gamma0 and Re lambda(Q) >= 1 - gamma0.)",
            f"least sigma(Q) / (1 - gamma0) = {min(singular):.4g}",
            min(singular) >= 1.0 - ROUNDING and min(margins) >= -ROUNDING,
            "|Qx| >= (1 - gamma0) |x|. This is what the proof needs: (29) bounds the largest singular value.",
        ),
    )


def _gradients(table: Table) -> tuple[Finding, Finding]:
    formulas = max(max(_numbers(table, name)) for name in ("(7), W", "(8), A", "(9), b", "(11), H"))
    velocity = max(_numbers(table, "(10), velocity"))
    return (
        Finding(
            "The gradients (7) to (9) and H of (11).",
            f"largest relative difference from this library's {formulas:.1e}",
            formulas <= ROUNDING,
            "The library forms neither Q nor a Kronecker product: docs/theorems/implicit.md.",
        ),
        Finding(
            "The prediction moves by -H (y^ - y) along the flow (Lemma 4.1, (10)).",
            f"largest relative difference from the velocity, by differences, {velocity:.1e}",
            velocity <= DIFFERENCES,
            f"Agreement means at most {DIFFERENCES:g}. No entry of gamma ZA + Phi or of XW is 0 here; where one is, the "
            "prediction need not have a derivative.",
        ),
    )


def _lower_bounds(table: Table) -> tuple[Finding, Finding]:
    printed, corrected = (
        min(min(_numbers(table, f"least sigma_min({part}) / {which}")) for part in ("M", "Pi"))
        for which in ("printed", "corrected")
    )
    return (
        Finding(
            "sigma_min(M) and sigma_min(Pi) have the lower bounds of section 4.1, with 1/(1 - gamma0).",
            f"least ratio of the sides {printed:.3g}",
            printed >= 1.0 - ROUNDING,
            "False already at N = m = 1, x = 1, W = 2, A = -1, b = 1, gamma = 1/2. No theorem uses them.",
        ),
        Finding(
            "(Not in the paper: the same with 1/(1 + gamma0).)",
            f"least ratio of the sides {corrected:.4g}",
            corrected >= 1.0 - ROUNDING,
            "Attained at that one unit. Where a unit is inactive both bounds are 0.",
        ),
    )


def _lipschitz(table: Table) -> Finding:
    ratios = [(str(r["instances"]), float(str(r["largest |Z_a - Z_b| / (16)"]))) for r in table.records()]
    one = max(ratio for name, ratio in ratios if name == "one unit")
    random = max(ratio for name, ratio in ratios if name != "one unit")
    return Finding(
        "|Z_a - Z_b| is at most the right side of (16) (Lemma 4.3).",
        f"largest ratio of the sides {max(one, random):.4g}: {one:.4g} at one unit, {random:.2g} at random weights",
        max(one, random) <= 1.0 + ROUNDING,
        "The statement is right and cannot be improved by a factor; two lines of its proof are wrong (docs/errata.md).",
    )


def _closed_form(table: Table) -> Finding:
    distance = max(_numbers(table, "largest distance from Lemma 5.1"))
    ratio = min(_numbers(table, "least alpha0 (1+gamma0) / sigma_min(Phi)"))
    return Finding(
        "Z = Phi (I - gamma A)^(-1) for A >= 0 (Lemma 5.1), so that alpha0 >= sigma_min(Phi) / (1 + gamma0).",
        f"largest relative distance {distance:.1e}; least ratio of the sides {ratio:.3g}",
        distance <= ROUNDING and ratio >= 1.0 - ROUNDING,
        "A >= 0 entry by entry.",
    )


def _runs(table: Table) -> tuple[Finding, Finding]:
    def of(theorem: str, column: str) -> list[float]:
        return [float(str(r[column])) for r in table.records() if r["theorem"] == theorem]

    found = []
    for theorem, what in (("4.2", "gradient flow"), ("4.4", "gradient descent")):
        bound, norms = max(of(theorem, "largest loss / bound")), max(of(theorem, "norms / lambda at the end"))
        features = min(of(theorem, "sigma_min(Z) / (alpha0/2) at the end"))
        loose = of(theorem, "guaranteed / needed")
        found.append(
            Finding(
                f"(i) to (iii) of Theorem {theorem}, {what}.",
                f"largest loss / bound {bound:.3g}, norms / lambda {norms:.3g}, sigma_min(Z) / (alpha0/2) {features:.3g}; "
                f"guaranteed over needed {min(loose):.3g} to {max(loose):.3g}",
                bound <= 1.0 + ROUNDING and norms <= 1.0 + ROUNDING and features >= 1.0 - ROUNDING,
                "Hypotheses checked before the run. The checker accepts no run of a flow: it is a curve, of which the integrator "
                "has points with an error that nothing bounds."
                if theorem == "4.2"
                else "Hypotheses checked before the run. At these N the guaranteed count can be run; with a few tens of "
                "images it is 1e11 and more (implicit/certificates).",
            )
        )
    return found[0], found[1]
