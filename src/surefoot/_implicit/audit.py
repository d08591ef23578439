"""Audits of the theorems of implicit ReLU networks from recorded measurements."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from surefoot_check.implicit import measured as implicit_measured
from surefoot_check.implicit import spectral as implicit_spectral

from .._core.audit import Audit, Check, Led, Lines, audited, constant_step, each, noise
from .._core.certificate import Certificate
from .._core.near_a_fit import audit as near_a_fit
from .engine import LOWER
from .near import NEAR_A_FIT

Row = dict[str, float]
OURS = (implicit_spectral.THEOREM.id, implicit_measured.THEOREM.id)


def audit(trace: list[Row], certificate: Certificate, resolution: float) -> Audit:
    """Check the certificate's inequalities at every recorded iterate.

    Args:
        trace: rows with the measurements of ``engine.Iterate``, ``step`` (absent in the last), and in every row but the first
            what is known of the step that led to it.
        certificate: bounds are audited only where it holds, and speaks of iterations.
        resolution: the gap that rounding alone can cause.
    """
    checks: list[Check] = [
        ("well posed: gamma |A| < 1", each(trace, "contraction", lambda contraction: (contraction, 1.0)))
    ]
    guaranteed = certificate.claim.of_iterations
    if guaranteed and certificate.theorem in OURS:
        q = certificate.quantities
        # steps whose gradient is rounding noise prove nothing either way
        steps = [(a, b) for a, b in pairwise(trace) if "step" in a and a["gap"] > resolution]
        checks += [
            Led("the map stays a contraction: sum |A' - A| <= rho", _drift(steps, q)),
            ("|b| <= B", each(trace, "output_norm", lambda norm: (norm, q["B"]))),
            Led("features stay near: sum |Z' - Z| <= f sigma", _movement(steps, q)),
            ("hidden steps are small: at most 1 + delta times the bound of Lemma 1", _hidden(steps, q)),
            ("the output step is accurate: |h| <= tau |r|", _defect(steps, q)),
            ("one step: |r'| <= (1 - eta m) |r|", _contraction(trace, certificate, resolution)),
        ]
    if certificate.theorem in NEAR_A_FIT:
        checks += near_a_fit.checks(trace, certificate, resolution)
    elif guaranteed:
        checks.append(constant_step(trace, certificate.schedule[0].step))
    return audited(certificate, trace, checks, resolution)


def _movement(steps: list[tuple[Row, Row]], q: Mapping[str, float]) -> Lines:
    sigma = q["sigma_min_Z"] if "sigma_min_Z" in q else q["sigma"]
    moved = noise_of_steps = 0.0
    for a, b in steps:
        if "feature_step" not in b:  # of a loop of one's own
            continue
        moved += b["feature_step"]
        noise_of_steps += a["equilibrium_error"] + b["equilibrium_error"]
        yield int(b["iteration"]), moved, q["f"] * sigma + noise_of_steps


def _drift(steps: list[tuple[Row, Row]], q: Mapping[str, float]) -> Lines:
    """η‖∂A‖_F summed; "hidden_A" is twice the norm of the gradient."""
    moved = 0.0
    for a, b in steps:
        if "hidden_A" in b:
            moved += 0.5 * b["hidden_A"] * a["step"]
            yield int(b["iteration"]), moved, q["rho"]


def _hidden(steps: list[tuple[Row, Row]], q: Mapping[str, float]) -> Lines:
    """2‖fl(η∂A)‖ ≤ (1 + δ) ηγz‖b‖‖r‖/(1 - q), and W likewise (Lemma 5); the larger ratio of the two."""
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
