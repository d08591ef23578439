"""The audit of the theorems from recorded measurements."""

from __future__ import annotations

import math

from .._core.audit import Audit, Check, Lines, Rows, audited, each
from .._core.certificate import Certificate
from .planner import STATES


def audit(trace: Rows, certificate: Certificate, resolution: float) -> Audit:
    """Check the certificate's inequalities at every recorded iterate; of a theorem about states also the test of each, from which
    everything else follows.

    Args:
        trace: rows with the measurements of ``engine.Iterate``, and ``step`` in all but the last.
        certificate: bounds are audited only where it holds.
        resolution: the gap that rounding alone can cause.
    """
    checks: list[Check] = []
    if certificate.claim.of_iterations:
        ball = certificate.quantities["ball"]
        checks.append(
            ("the weights stay in the ball: D <= rho", each(trace, "distance", lambda distance: (distance, ball)))
        )
        if certificate.theorem in STATES:
            test = STATES[certificate.theorem].state
            checks.append((f"the state test: {test}", _potential(trace, certificate, resolution)))
    return audited(certificate, trace, checks, resolution)


def _potential(trace: Rows, certificate: Certificate, resolution: float) -> Lines:
    q, theorem = certificate.quantities, STATES[certificate.theorem]
    limit = q[theorem.start] + math.sqrt(2.0 * resolution)
    for row in trace:
        if "distance" in row:
            yield int(row["iteration"]), theorem.potential(q, row["gap"], row["distance"]), limit
