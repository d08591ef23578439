"""Audits of the linear ResNet theorems from recorded measurements."""

from __future__ import annotations

import math
from itertools import pairwise

from surefoot_check.linear_resnet import local

from .._core.audit import Audit, Check, Lines, audited, constant_step, never_increases, noise
from .._core.certificate import Certificate

Row = dict[str, float]
PROGRESS = "progress: gap' <= (1 - (2-gamma) mu min(eta, gamma/K)) gap, or on schedule"


def audit(trace: list[Row], certificate: Certificate, resolution: float) -> Audit:
    """Check the certificate's inequalities at every recorded step.

    Args:
        trace: rows with ``iteration``, ``gap``, ``gradient_squared``, and ``step`` (absent in the last).
        certificate: of ``linear-resnet/local`` or ``/gd``; bounds are audited only where it holds.
        resolution: the gap that rounding of the weights alone can cause.
    """
    steps = [(a, b) for a, b in pairwise(trace) if "step" in a]
    checks: list[Check] = [never_increases(trace, resolution)]
    if certificate.holds and certificate.theorem == local.THEOREM.id:
        q = certificate.quantities
        checks += [
            (
                "Polyak-Lojasiewicz: 2 mu gap <= |grad|^2",
                (
                    (int(r["iteration"]), 2.0 * q["pl_constant"] * r["gap"], r["gradient_squared"])
                    for r in trace
                    if "gradient_squared" in r
                ),
            ),
            (
                PROGRESS,
                _progress(steps, certificate, resolution),
            ),
            (
                "step at most gamma/K, or tested: gap' <= gap - (1-gamma/2) eta |grad|^2",
                _tested(steps, certificate, resolution),
            ),
            ("the path stays in the ball: sum eta |grad| <= rho", _path(steps, certificate, resolution)),
        ]
    elif certificate.holds:
        checks.append(constant_step(trace, certificate.schedule[0].step))
    return audited(certificate, trace, checks, resolution)


def _progress(steps: list[tuple[Row, Row]], certificate: Certificate, resolution: float) -> Lines:
    q = certificate.quantities
    for a, b in steps:
        eta = min(a["step"], q["gamma"] / float(local.smoothness(q, a["gap"])))
        goal = (1.0 - float(local.decrease(q, eta))) * a["gap"]
        goal = max(goal, certificate.bound(int(b["iteration"])))
        yield int(a["iteration"]), b["gap"], goal + noise(a["gap"], resolution)


def _tested(steps: list[tuple[Row, Row]], certificate: Certificate, resolution: float) -> Lines:
    q = certificate.quantities
    for a, b in steps:
        largest = q["gamma"] / float(local.smoothness(q, a["gap"]))
        if a["step"] <= largest:
            yield int(a["iteration"]), a["step"], largest
        else:
            right = a["gap"] - (1.0 - 0.5 * q["gamma"]) * a["step"] * a["gradient_squared"]
            yield int(a["iteration"]), b["gap"], right + noise(a["gap"], resolution)


def _path(steps: list[tuple[Row, Row]], certificate: Certificate, resolution: float) -> Lines:
    length = 0.0
    for a, _ in steps:
        if a["gap"] > resolution:
            length += a["step"] * math.sqrt(a["gradient_squared"])
            yield int(a["iteration"]), length, certificate.quantities["radius"]
