"""Audits of the theorems of implicit ReLU networks from recorded measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from surefoot_check.theorems import implicit_measured, implicit_spectral

from .._core.audit import Audit, common_checks, constant_step, line, noise
from .._core.certificate import Certificate
from .engine import LOWER

Row = dict[str, float]
Lines = Iterator[tuple[int, float, float]]
OURS = (implicit_spectral.THEOREM.id, implicit_measured.THEOREM.id)


def audit(trace: list[Row], certificate: Certificate, resolution: float) -> Audit:
    """Check the certificate's inequalities at every recorded iterate.

    Args:
        trace: rows with the measurements of ``engine.Iterate``, ``step`` (absent in the last), and in every row but the first
            what is known of the step that led to it.
        certificate: bounds are audited only where it holds.
        resolution: the gap that rounding alone can cause.
    """
    checks: list[tuple[str, Lines]] = [
        ("well posed: gamma |A| < 1", ((int(r["iteration"]), r["contraction"], 1.0) for r in trace))
    ]
    if certificate.holds and certificate.theorem in OURS:
        q = certificate.quantities
        # steps whose gradient is rounding noise prove nothing either way
        steps = [(a, b) for a, b in pairwise(trace) if "step" in a and a["gap"] > resolution]
        checks += [
            ("gamma |A| <= q", ((int(r["iteration"]), r["contraction"], q["q"]) for r in trace)),
            ("|b| <= B", ((int(r["iteration"]), r["output_norm"], q["B"]) for r in trace)),
            ("features stay near: |Z - Z0| <= f sigma", _movement(trace, q)),
            ("hidden steps are small: at most 1 + delta times Lemma 1.4", _hidden(steps, q)),
            ("the output step is accurate: |h| <= tau |r|", _defect(steps, q)),
            ("one step: |r'| <= (1 - eta m) |r|", _contraction(trace, certificate, resolution)),
        ]
    if certificate.holds:
        checks.append(constant_step(trace, certificate.schedule[0].step))
    checks += common_checks(trace, certificate.bound if certificate.holds else None, resolution)
    return Audit(certificate.theorem, tuple(line(name, rows) for name, rows in checks), resolution, certificate.holds)


def _movement(trace: list[Row], q: Mapping[str, float]) -> Lines:
    sigma = q["sigma_min_Z"] if "sigma_min_Z" in q else q["sigma"]
    for row in trace:
        if "feature_movement" not in row:  # of a loop of one's own
            continue
        allowed = q["f"] * sigma + row["equilibrium_error"] + trace[0]["equilibrium_error"]
        yield int(row["iteration"]), row["feature_movement"], allowed


def _hidden(steps: list[tuple[Row, Row]], q: Mapping[str, float]) -> Lines:
    """2‖fl(η∂A)‖ ≤ (1 + δ) ηγz‖b‖‖r‖/(1 - q), and W likewise (Lemma 5.2); the larger ratio of the two."""
    for a, b in steps:
        if "hidden_A" not in b:
            continue
        size = (1.0 + q["delta"]) * a["output_norm"] * a["residual_lower"] / (1.0 - q["q"]) * LOWER
        A_allowed, W_allowed = q["gamma"] * q["z"] * size, q["norm_X"] * size
        pairs = ((b["hidden_A"], A_allowed), (b["hidden_W"], W_allowed))
        yield int(a["iteration"]), *max(pairs, key=lambda pair: pair[0] / pair[1] if pair[1] > 0.0 else pair[0])


def _defect(steps: list[tuple[Row, Row]], q: Mapping[str, float]) -> Lines:
    for a, b in steps:
        if "output_defect" in b:
            yield int(a["iteration"]), b["output_defect"], q["tau"] * a["residual_lower"]


def _contraction(trace: list[Row], certificate: Certificate, resolution: float) -> Lines:
    factor = 1.0 - certificate.schedule[-1].decrease
    for a, b in pairwise(trace):
        if "step" in a:
            yield int(a["iteration"]), b["gap"], factor * a["gap"] + noise(a["gap"], resolution)
