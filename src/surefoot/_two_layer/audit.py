"""Audits of the two-layer theorems from recorded measurements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from surefoot_check.two_layer import constants as tl
from surefoot_check.two_layer.constant import ConstantStep
from surefoot_check.two_layer.corrected import Corrected
from surefoot_check.two_layer.drift import DECREASE, Drift
from surefoot_check.two_layer.prescribed import Prescribed, step_at, steps_of

from .._core.audit import Audit, Check, Lines, audited, constant_step, each, never_increases, noise
from .._core.certificate import Certificate
from .._core.plans import PLANS
from . import planner
from .floor import KAPPA, Budget, floor

Row = dict[str, float]


def audit(trace: list[Row], certificate: Certificate, resolution: float) -> Audit:
    """Check the certificate's inequalities at every recorded step.

    Args:
        trace: rows with ``iteration``, ``gap``, ``step`` (absent in the last) and the measurements of ``Iterate``.
        certificate: any two-layer certificate; the bounds are audited where no hypothesis fails; those that a
            refuted theorem claims, too.
        resolution: the gap that rounding of the weights alone can cause.
    """
    steps = [(a, b) for a, b in pairwise(trace) if "step" in a]
    # rounding moves sqrt(gap) by up to sqrt(resolution); of a gap L that is 2 sqrt(L·resolution) + resolution
    theorem = PLANS[certificate.theorem].theorem
    rises = isinstance(theorem, Prescribed)  # its steps may raise the gap
    checks: list[Check] = [] if rises else [never_increases(trace, resolution)]
    checks += [
        ("descent of Theorem I: L' <= L - (eta - eta^2 K'(eta)/2) |grad L|^2", _descent(steps, resolution)),
    ]
    if steps and "curvature" in steps[0][0] and "strong_convexity" in certificate.quantities:
        checks.append(("contraction of Theorem III", _contraction(steps, certificate, resolution)))
    if certificate.holds and isinstance(theorem, Drift):
        checks += [
            ("drift budget (T): d <= kappa (theta alpha1 - Q)(1 - L'/L)", _drift(steps, certificate, resolution)),
            (
                "progress: the gap falls as far as the floor step guarantees, or is on schedule",
                _progress(steps, certificate, resolution),
            ),
            *_path(steps, certificate, resolution),
            (
                "s-(t) stays at least (1-theta) alpha1",
                each(trace, "sigma_min_squared", lambda sigma: (certificate.quantities["guaranteed_sigma"], sigma)),
            ),
        ]
        if isinstance(theorem, ConstantStep):
            checks.append(constant_step(trace, certificate.schedule[0].step))
    elif certificate.schedule and isinstance(theorem, Corrected):
        checks.append(
            ("steps lie between eta0 and min((1+eta0^d)^(t/2) eta0, 1/K_t)", _paper_steps(steps, certificate))
        )
    elif certificate.holds and isinstance(theorem, Prescribed):
        checks.append(("every step is the prescribed one (difference)", _prescribed_steps(steps, certificate)))
    return audited(certificate, trace, checks, resolution)


def _descent(steps: list[tuple[Row, Row]], resolution: float) -> Lines:
    for a, b in steps:
        gain = float(tl.sharp_gain(a["step"], (a["k0"], a["k1"], a["k2"])))
        right = a["gap"] - gain * a["gradient_squared"]
        yield int(a["iteration"]), b["gap"], right + noise(a["gap"], resolution)


def _contraction(steps: list[tuple[Row, Row]], certificate: Certificate, resolution: float) -> Lines:
    q = certificate.quantities
    for a, b in steps:
        factor = planner.contraction_factor(
            a["step"],
            q["strong_convexity"] * a["sigma_min_squared"],
            q["smoothness"] * a["sigma_max_squared"],
            a["curvature"],
        )
        yield int(a["iteration"]), b["gap"], factor * factor * a["gap"] + noise(b["gap"], resolution)


def _spent(steps: list[tuple[Row, Row]]) -> Iterator[tuple[Row, Row, float, float]]:
    """Each step with its drift and the drift spent before it."""
    spent = 0.0
    for a, b in steps:
        drift = a["step"] * a["step"] * a["drift_per_step"]
        yield a, b, drift, spent
        spent += drift


def _drift(steps: list[tuple[Row, Row]], certificate: Certificate, resolution: float) -> Lines:
    budget = Budget.of(certificate, certificate.quantities["smoothness"])
    for a, b, drift, spent in _spent(steps):
        if a["gap"] > resolution:
            fall = 1.0 - (b["gap"] - noise(b["gap"], resolution)) / a["gap"]
            yield int(a["iteration"]), drift, KAPPA * (budget.spendable - spent) * fall


def _progress(steps: list[tuple[Row, Row]], certificate: Certificate, resolution: float) -> Lines:
    budget = Budget.of(certificate, certificate.quantities["smoothness"])
    for a, b, _, spent in _spent(steps):
        if a["gap"] > resolution:
            goal = max(floor(a, budget, spent).goal, budget.guarantee(int(b["iteration"])))
            yield int(a["iteration"]), b["gap"], goal + noise(a["gap"], resolution)


def _path(steps: list[tuple[Row, Row]], certificate: Certificate, resolution: float) -> list[tuple[str, Lines]]:
    if not Budget.of(certificate, certificate.quantities["smoothness"]).path:
        return []
    rows = (
        (
            int(a["iteration"]),
            b["gap"],
            a["gap"] - DECREASE * a["step"] * a["gradient_squared"] + noise(a["gap"], resolution),
        )
        for a, b in steps
    )
    return [("sufficient decrease (S): L' <= L - c eta |grad L|^2", rows)]


def _prescribed_steps(steps: list[tuple[Row, Row]], certificate: Certificate) -> Lines:
    first, cycled = steps_of(certificate.quantities)
    for a, _ in steps:
        t = int(a["iteration"])
        yield t, abs(a["step"] - step_at(first, cycled, t)), 0.0


def _paper_steps(steps: list[tuple[Row, Row]], certificate: Certificate) -> Lines:
    q = certificate.quantities
    eta0 = q["initial_step"]
    for a, _ in steps:
        t, step = int(a["iteration"]), a["step"]
        printed = planner.printed_coefficients(q["smoothness"], a["sigma_max_squared"], a["gap"], a["map_norm"])
        yield t, step, min(planner.step_cap(q, t), planner.cubic_root(*printed) * (1.0 + 2e-12))
        yield t, eta0, step
