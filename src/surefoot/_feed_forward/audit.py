"""The audit of the local theorem from recorded measurements."""

from __future__ import annotations

import math

from surefoot_check.feed_forward import local

from .._core.audit import Audit, Check, Lines, Rows, audited, each
from .._core.certificate import Certificate


def audit(trace: Rows, certificate: Certificate, resolution: float) -> Audit:
    """Check the certificate's inequalities at every recorded iterate: the state test, from which everything else follows.

    Args:
        trace: rows with the measurements of ``engine.Iterate``, and ``step`` in all but the last.
        certificate: bounds are audited only where it holds.
        resolution: the gap that rounding alone can cause.
    """
    checks: list[Check] = []
    if certificate.claim.of_iterations:
        ball = certificate.quantities["ball"]
        checks += [
            ("the weights stay in the ball: D <= rho", each(trace, "distance", lambda found: (found, ball))),
            ("the state test: |r| + Q(D) <= r0", _potential(trace, certificate, resolution)),
        ]
    return audited(certificate, trace, checks, resolution)


def _potential(trace: Rows, certificate: Certificate, resolution: float) -> Lines:
    q = certificate.quantities
    limit = q["r0"] + math.sqrt(2.0 * resolution)
    for row in trace:
        if "distance" in row:
            yield int(row["iteration"]), local.potential(q, row["gap"], row["distance"]), limit
