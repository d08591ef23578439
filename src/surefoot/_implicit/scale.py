"""Initial weights that are certified from the start: the scale β, γ and the step ("The scale" in docs/theorems/implicit.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from surefoot_check.implicit import spectral
from surefoot_check.problems import Samples

from .._core.losses import SCALE
from .._core.refusals import NotCertifiable
from .._core.samples import SampleLoss
from .._core.schedule import iterations_to
from .._core.validate import positive_integer
from .._data.parallel_rows import parallel_rows
from . import planner
from .choices import TARGET, measure, step_choices
from .row_rank import deficient

LOOSE = 1.01
"""The count may exceed that of an infinite scale by this factor."""
SMALLEST, LARGEST = -20, 60
"""log2 of the scales that are tried."""
HALVINGS = 12
BACKOFF = 1.0 + 1e-3
"""The scale is enlarged by this, since the certificate is evaluated again on the rounded weights."""


def check_samples(loss: SampleLoss, width: int) -> None:
    """Raise unless networks of ``width`` units may be certifiable at these samples.

    Raises:
        NotCertifiable: parallel or zero rows, a width below N, or data of extreme scale.
        TypeError, ValueError: ``width`` is no positive integer.
    """
    report = parallel_rows(loss.X)
    if report:
        raise NotCertifiable(report.text)
    positive_integer("width", width)
    if width < len(loss.X):
        raise NotCertifiable(
            f"width is {width}, below the {len(loss.X)} samples: the features cannot have full row rank; "
            "use a width of 2 N or more"
        )
    _check_scale(loss)


def certifiable(loss: SampleLoss, W: Tensor) -> tuple[float, float]:
    """β and γ = a/β of the weights β(W, I), b = 0: the least β that certifies about as few iterations as any.

    The theorem depends on the scale through ‖r_0‖²/β⁴ only, and holds for every large β if it holds for one, so that one
    measurement serves all scales. a = ‖X‖²/(‖X‖² + ‖Φ‖²) is, to leading order, where the least β is smallest (A = I).

    Args:
        loss: samples that ``check_samples`` admits.
        W: (d, m) float64.

    Raises:
        NotCertifiable: features without full row rank, or no scale suffices.
    """
    X, m = loss.X, W.shape[1]
    Phi = (X @ W).relu()
    norm_X, norm_Phi = (float(torch.linalg.matrix_norm(x, 2)) for x in (X, Phi))
    a = 1.0 / (1.0 + (norm_Phi / norm_X) ** 2)
    arrays = {name: array.cpu().numpy() for name, array in loss.arrays().items()}
    weights = {
        "W": W.cpu().numpy(),
        "A": np.eye(m),
        "b": np.zeros((m, loss.Y.shape[1])),
        "gamma": np.array(a),
    }
    base = measure(Samples(arrays["X"], arrays["Y"]), weights, spectral.THEOREM)
    missing = [name for name in spectral.THEOREM.base if name not in base]
    if missing or not base["node_min"] > base["kappa"]:
        Z = Phi / (1.0 - a)  # A = I
        raise NotCertifiable(deficient(X, Z, base.get("node_min", 0.0)))
    exponent = _least_exponent(base)
    if exponent is None:
        raise NotCertifiable(
            f"no scale of the weights up to 2^{LARGEST} makes {spectral.THEOREM.id} hold: give the samples norm 1, or use fewer"
        )
    beta = 2.0**exponent * BACKOFF
    return beta, a / beta


def _check_scale(loss: SampleLoss) -> None:
    """Raise ``NotCertifiable`` for samples whose squares would overflow or vanish."""
    largest = float(torch.linalg.matrix_norm(loss.X, 2))
    if not 1.0 / SCALE <= largest <= SCALE:
        raise NotCertifiable(
            f"X has largest singular value {largest:.3g}, outside {1.0 / SCALE:.0e} to {SCALE:.0e}, so that products would "
            "overflow or vanish: scale every row of X to norm 1"
        )
    largest = float(loss.Y.abs().max())
    if largest and not 1.0 / SCALE <= largest <= SCALE:
        raise NotCertifiable(
            f"y reaches {largest:.3g}, outside {1.0 / SCALE:.0e} to {SCALE:.0e}, so that products would overflow or vanish: "
            "scale the labels, for example divide by y.abs().max()"
        )


def _least_exponent(base: Mapping[str, float]) -> float | None:
    """log2 of the least scale at which some step certifies at most ``LOOSE`` times as many iterations as at the largest scale."""
    models: list[tuple[dict[str, float], spectral.Model]] = []
    for choices in step_choices(spectral.THEOREM.id, base):
        q = {**base, **choices}
        q["horizon"] = planner.horizon(q)
        model = spectral.model(q)
        if model is not None:
            models.append((q, model))
    limits = [_count(q, model, LARGEST) for q, model in models]
    best = min(limits, default=math.inf)
    if not math.isfinite(best):
        return None
    q, model = models[limits.index(best)]
    enough = LOOSE * best

    low, high = SMALLEST, LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _count(q, model, middle) <= enough else (middle, high)
    lower, upper = float(low), float(high)
    for _ in range(HALVINGS):
        middle = 0.5 * (lower + upper)
        lower, upper = (lower, middle) if _count(q, model, middle) <= enough else (middle, upper)
    return upper


def _count(q: Mapping[str, float], spectrum: spectral.Model, exponent: float) -> float:
    """Iterations to ``TARGET`` that the theorem guarantees with the weights scaled by β = 2^exponent, γ by 1/β and η by 1/β²."""
    beta = 2.0**exponent
    powers = {"gamma": -1, "norm_A": 1, "tau": 1, "kappa": 2, "node_min": 2, "node_max": 2, "eta": -2}
    scaled = {**q, **{name: q[name] * beta**power for name, power in powers.items()}}
    model = replace(spectrum, total=spectrum.total / beta**2, nu=spectrum.nu / beta)
    (f, rho, B), holds = planner.least_radii(scaled, model)
    if not holds:
        return math.inf
    return iterations_to(planner.schedule_of({**scaled, "f": f, "rho": rho, "B": B}, model), TARGET)
