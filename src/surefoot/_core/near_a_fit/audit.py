"""The audit of theorems on an exact fit or a minimum nearby, from recorded measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator

from surefoot_check.near_a_fit.state import StateTheorem

from ..audit import Audit, Check, Lines, Rows, audited, each
from ..certificate import Certificate
from .planner import about_states


def audit(trace: Rows, certificate: Certificate, resolution: float) -> Audit:
    """Check the certificate's inequalities at every recorded iterate; of a theorem about states also the test of each, from which
    everything else follows.

    Args:
        trace: rows with the measurements of an iterate, among them its distance to the start, and ``step`` in all but the last.
        certificate: bounds are audited only where it holds.
        resolution: the gap that rounding alone can cause.
    """
    return audited(certificate, trace, checks(trace, certificate, resolution), resolution)


def checks(trace: Rows, certificate: Certificate, resolution: float) -> Iterator[Check]:
    """Those of the theorems alone; see ``audit``."""
    if not certificate.claim.of_iterations:
        return
    ball = certificate.quantities["ball"]
    yield "the weights stay in the ball: D <= rho", each(trace, "distance", lambda distance: (distance, ball))
    theorem = about_states(certificate.theorem)
    if theorem is not None:
        yield f"the state test: {theorem.state}", _potential(theorem, trace, certificate, resolution)


def _potential(theorem: StateTheorem, trace: Rows, certificate: Certificate, resolution: float) -> Lines:
    q = certificate.quantities
    limit = q[theorem.start] + math.sqrt(2.0 * resolution)
    for row in trace:
        if "distance" in row:
            yield int(row["iteration"]), theorem.potential(q, row["gap"], row["distance"]), limit
