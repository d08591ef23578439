"""Numbers and symbols in words that a person reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._core.certificate import Condition
from .._core.claims import Claim, Kind

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

TWO_LAYER: dict[str, tuple[str, str]] = {
    "smoothness": ("K", "smoothness of the loss: its gradient changes at most K times as much as its argument"),
    "strong_convexity": ("μ", "strong convexity of the loss (or its Polyak-Łojasiewicz constant)"),
    "initial_gap": ("L₀", "loss minus optimal value at the initial weights"),
    "initial_distance": ("‖W₀ − W*‖", "Frobenius distance of the initial map to the minimiser"),
    "optimum_sigma_min": ("σ_min(W*)", "smallest singular value of the minimiser"),
    "optimum_sigma_max": ("‖W*‖", "largest singular value of the minimiser"),
    "sigma_min_squared": (
        "s₋",
        "λ_min(W1 W1ᵀ) + λ_min(W2 W2ᵀ) at the start: how strongly the weights pass on the gradient",
    ),
    "sigma_max_squared": ("s₊", "‖W1‖² + ‖W2‖² at the start"),
    "lambda_plus": ("λ₊", "largest eigenvalue of the imbalance D = W1ᵀW1 − W2ᵀW2"),
    "lambda_minus": ("λ₋", "largest eigenvalue of −D"),
    "lambda_n": ("λ_n(D)", "n-th largest eigenvalue of D: what the imbalance alone gives W1"),
    "lambda_m": ("λ_m(−D)", "m-th largest eigenvalue of −D: what the imbalance alone gives W2"),
    "radius": ("r", "the map stays within this distance of the minimiser"),
    "beta1": ("β₁", "margin: smallest singular value of the map that training cannot go below"),
    "beta2": ("β₂", "largest norm of the map during training"),
    "alpha1": ("α₁", "lower bound of s₋ from imbalance and margin; the rate is proportional to it"),
    "alpha2": ("α₂", "upper bound of s₊ from imbalance and margin"),
    "guaranteed_sigma": ("(1 − θ) α₁", "lower bound of s₋ during the whole run"),
    "budget": ("θ", "share of α₁ that the drift of the imbalance may use up"),
    "decrease": ("c", "share of the first-order decrease that every step must achieve"),
    "c": ("c", "exponent of the theorem: the imbalance may change by exp(η₀^c)"),
    "d": ("d", "exponent of the theorem: steps may grow by 1 + η₀^d every two iterations"),
    "e1": ("e1", "limit of the first step from the smoothness along the path"),
    "e2": ("e2", "limit of the first step from the change of the imbalance"),
    "e3": ("e3", "limit of the first step from a positive rate"),
    "eta_max": ("η_max", "largest admissible first step: the least of e1, e2, e3"),
    "initial_step": ("η₀", "first step"),
    "mu_bar": ("μ̄", "Polyak-Łojasiewicz constant that holds along the path"),
    "K_bar0": ("K̄₀", "smoothness that holds along the first step"),
    "rho_bar": ("ρ̄", "guaranteed factor of the gap in one iteration"),
    "delta": ("Δ", "ρ̄ times the growth of the squared step; it must stay below 1"),
}
LINEAR_RESNET: dict[str, tuple[str, str]] = {
    "initial_gap": ("gap₀", "loss minus optimal value at the initial weights"),
    "pl_constant": ("μ", "Polyak-Łojasiewicz constant on the ball: the squared gradient is at least 2 μ times the gap"),
    "gauss_newton": (
        "Σ z²",
        "curvature on the ball through the network's Jacobian: its squared norm, summed by layers",
    ),
    "bilinear": ("λ_max(M)", "curvature on the ball from pairs of layers, per unit of the residual's norm"),
    "gamma": ("γ", "steps are at most γ/K; 1 gives the best rate"),
    "radius": ("ϱ", "radius of the ball around the weights for which the constants hold (0: none found)"),
    "required_radius": ("ϱ_min", "length that no path of gradient descent exceeds; it must fit into the ball"),
    "smoothness": ("K₀", "Σ z² + sqrt(2 gap₀) λ_max(M): smoothness of the loss along the first step"),
    "norm_A": ("‖A‖", "largest singular value of the input transformation"),
    "norm_B": ("‖B‖", "largest singular value of the output transformation"),
    "sigma_min_A": ("σ_min(A)", "smallest singular value of A"),
    "sigma_min_B": ("σ_min(B)", "smallest singular value of B"),
    "norm_X": ("‖X‖", "largest singular value of the data"),
    "sigma_min_X": ("σ_r(X)", "smallest positive singular value of the data"),
    "weight_norm": ("‖W‖", "norm of all layers' weights; the theorem starts at zero"),
    "initial_loss": ("ℓ₀", "loss at the initial weights, optimal value included"),
    "initial_step": ("η", "the constant step"),
}
IMPLICIT: dict[str, tuple[str, str]] = {
    "initial_gap": ("½‖r₀‖²", "loss at the initial weights"),
    "gamma": ("γ", "weight of the fixed-point equation"),
    "norm_X": ("‖X‖", "largest singular value of the inputs"),
    "frobenius_X": ("‖X‖_F", "Frobenius norm of the inputs"),
    "norm_A": ("‖A₀‖", "largest singular value of A at the start"),
    "norm_W": ("‖W₀‖", "largest singular value of W at the start"),
    "norm_b": ("‖b₀‖", "largest singular value of b at the start"),
    "sigma_min_Z": ("α", "smallest singular value of the features Z₀, the equilibrium on all samples"),
    "norm_Z": ("z₀", "largest singular value of the features Z₀"),
    "kappa": ("κ", "how far the matrix whose spectrum is used may be from Z₀ Z₀ᵀ: errors of equilibrium and rounding"),
    "node_min": ("σ²", "lower end of the spectrum of Z₀ Z₀ᵀ"),
    "node_max": ("z²", "upper end of the spectrum of Z₀ Z₀ᵀ"),
    "mass": (
        "w",
        "share of ‖r₀‖² at each node of the spectrum between σ² and z²: where in the spectrum the residual lies",
    ),
    "horizon": (
        "K",
        "iteration up to which the bound follows the spectrum; from there on the smallest eigenvalue rules",
    ),
    "tau": ("τ", "error that the output step may have, per unit of η‖r‖"),
    "delta": ("δ", "hidden steps may be 1 + δ times the bound of the gradient, for rounding"),
    "eta": ("η", "the constant step"),
    "f": ("f", "the features drift by at most fσ"),
    "rho": ("ρ", "A drifts by at most ρ"),
    "B": ("B", "largest norm of b during training"),
    "q": ("q", "γ(‖A₀‖ + ρ): contraction factor of the fixed-point map during training"),
    "P": ("P", "bound of the sum of all η‖r_k‖ on frozen features"),
    "nu": ("ν", "bound of the path of b on frozen features"),
    "sigma": ("σ", "smallest singular value of the features that the theorem uses"),
    "s": ("s", "smallest singular value of the features during training"),
    "z": ("z", "largest singular value of the features during training"),
    "c": ("c", "a step moves the features by at most η c ‖b‖ ‖r‖"),
    "descent": ("m", "guaranteed rate: the residual falls by 1 − ηm a step"),
    "epsilon": ("ε", "perturbation of Z Zᵀ by drift and errors; it must stay below σ²"),
    "S": ("S", "bound of the sum of all η‖r_k‖"),
    "C1": ("C₁", "W may move by at most C₁"),
    "C2": ("C₂", "A may move by at most C₂"),
    "C3": ("C₃", "b may move by at most C₃"),
    "l1": ("λ₁", "‖W₀‖ + C₁"),
    "l2": ("λ₂", "‖A₀‖ + C₂"),
    "l3": ("λ₃", "‖b₀‖ + C₃"),
    "g0": ("γ₀", "γ λ₂: contraction factor of the fixed-point map during training"),
    "Q": ("Q", "1 + (γ₀/(1−γ₀))² (λ₁/λ₂)²"),
}
STEP_SIZES: dict[str, tuple[str, str]] = {
    "initial_gap": ("Σ (F_p(x₀) − F_p*)", "objective minus optimal value at the start, summed over the problems"),
    "range_low": ("lo", "least relative step P that the network can propose"),
    "range_high": ("hi", "largest relative step P that the network can propose"),
    "smoothness_ratio": (
        "s",
        "largest smoothness β₁ of a problem relative to the β that its steps P/β are measured in",
    ),
    "convexity_ratio": ("c", "least nonzero eigenvalue of M Mᵀ relative to β, the worst of all problems"),
    "loss_convexity_ratio": ("c_f", "strong convexity of the smooth part relative to β, the worst of all problems"),
    "penalty_convexity_ratio": ("c_h", "strong convexity of the penalty relative to β, the worst of all problems"),
    "radius_energy": ("E", "Σ β R², R a bound of the distance from the iterates to a minimiser"),
    "reach": ("hi s", "largest step relative to the smoothness; above 2 nothing is guaranteed"),
    "decrease": ("1 − ϱ²", "share of the gap that every step takes at least"),
    "omega": ("ω", "min{1, 2 − hi s}: share of the model's decrease that a proximal step realises"),
    "linear": ("ωσ", "share of the gap that every step takes at least, by strong convexity"),
    "curvature": ("γ", "1/gap grows by at least γ a step: the sublinear rate"),
}
DECONVOLUTION: dict[str, tuple[str, str]] = {
    "initial_gap": ("V₀", "change of the first iteration: ‖w₁ − w₀‖² in the norm of the method"),
    "alpha": ("α", "parameter of the z-step"),
    "beta": ("β", "penalty parameter of the method"),
    "gamma": ("γ", "parameter of the x-step"),
    "penalty": ("λ", "weight of ‖x‖₁ in the objective"),
    "transform_norm": ("‖W‖", "largest singular value of the wavelet transform"),
    "blur_norm": ("‖B‖", "largest singular value of the blur"),
    "majorizer_excess": ("s", "bound of ‖S‖, S = M − BᵀB + (1/α − β)I"),
    "objective_bound": ("F", "objective at some point: at least its optimal value"),
    "start_latent": ("‖z₀‖", "size of the picture that the iteration starts from"),
    "start_coefficients": ("‖x₀‖", "size of the coefficients that it starts from"),
    "start_multiplier": ("‖μ₀‖", "size of the multiplier that it starts from"),
    "distance_bound": ("D", "bound of ‖w₀ − w*‖² to a solution w*: the change after t iterations is at most D/t"),
}
SYMBOLS: dict[str, dict[str, tuple[str, str]]] = {
    "two-layer": TWO_LAYER,
    "linear-resnet": LINEAR_RESNET,
    "implicit": IMPLICIT,
    "step-sizes": STEP_SIZES,
    "deconvolution": DECONVOLUTION,
}
"""By system: symbol and one-line meaning of the quantities of certificates; families such as mass[0] by their name."""


@dataclass(frozen=True)
class Terms:
    """What a run's words stand for.

    Attributes:
        gap: what the gap is the name of.
        title: of its plot.
        method: what exact iterations are, for the claim L1.
        subject: what a certificate is of.
    """

    gap: str = "loss minus optimal value"
    title: str = "Distance of the loss to its optimum (gap)"
    method: str = "exact gradient descent with any steps that the theorem allows"
    subject: str = "these weights and data"


TERMS = {
    "step-sizes": Terms(
        "objective minus optimal value, summed over the problems",
        "Distance of the objective to its optimum (gap)",
        "the exact iteration, gradient or proximal, with any relative steps in the network's range",
        "these problems and the range of the network's steps",
    ),
    "deconvolution": Terms(
        "change from an iterate to the next, squared, in the norm of the method (V), whose limit is 0; it is no distance of the "
        "objective to its optimum",
        "Change from an iterate to the next (gap)",
        "the exact iteration of the linearised ADMM",
        "this picture and this start",
    ),
}
"""By system, where it is not gradient descent on the loss of a network."""
PROBLEMS = {
    "samples": "squared loss",
    "least-squares-batch": "least-squares problems",
    "lasso-batch": "LASSO problems",
    "logistic-batch": "logistic-regression problems",
    "deconvolution": "sparse deconvolution",
}
"""What a run is about, by the kind of its problem; others are the loss of that name."""

SCORES: dict[str, tuple[str, str]] = {
    "test_rows": ("Held-out rows", "never seen in training"),
    "test_accuracy": ("Accuracy", "share of the held-out rows whose class is right"),
    "optimum_test_accuracy": ("Accuracy of the loss's minimiser", "what training leads to, on the held-out rows"),
    "test_rmse": ("Root mean square error", "on the held-out rows, in the unit of the target"),
    "optimum_test_rmse": (
        "Root mean square error of the loss's minimiser",
        "what training leads to, in the unit of the target",
    ),
    "test_r2": ("R²", "on the held-out rows: 1 is perfect, 0 no better than their mean"),
    "optimum_test_r2": ("R² of the loss's minimiser", "what training leads to, on the held-out rows"),
}
"""Name and remark of the scores that the command line stores."""

MANY = 1e9
"""Counts above this say no more than that: nobody runs so many iterations."""

ENGINES = {
    "gram": "small matrices W1 W1ᵀ, W1 W2ᵀ, W2 W2ᵀ in place of the weights; the same iterates",
    "weights": "the weights themselves",
    "solver": "the iterates of the problems; the network's weights stay as they are",
    "subspace": "the weights in the subspace that gradient descent can reach; the same iterates",
}


def by_family(quantities: Mapping[str, float]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Quantities by name, and families such as ``mass[0]``, ``mass[1]``, ... by the name before the bracket."""
    single: dict[str, float] = {}
    families: dict[str, list[float]] = {}
    for name, value in quantities.items():
        family, bracket, _ = name.partition("[")
        if bracket:
            families.setdefault(family, []).append(value)
        else:
            single[name] = value
    return single, families


def power_of_ten(exponent: int) -> str:
    """10 to an integer power, with superscript digits."""
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"


def number(value: float, digits: int = 4) -> str:
    """A number with 4 (``digits``) significant digits; thousands separated; powers of ten as such."""
    if isinstance(value, int) and abs(value) < 10**15:
        return f"{value:,}".replace("-", "−")
    try:
        value = float(value)
    except OverflowError:
        return "more than 10³⁰⁸"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0.0 else "−∞"
    if value == 0.0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if -4 <= int(exponent) < 6:
        text = f"{float(f'{value:.{digits}g}'):,.{max(digits - 1 - int(exponent), 0)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        mantissa = mantissa.rstrip("0").rstrip(".")
        ten = power_of_ten(int(exponent))
        text = ten if mantissa == "1" else f"{mantissa} × {ten}"
    return text.replace("-", "−")


def count(value: float) -> str:
    """A number of iterations; ``inf`` reads as none: no number suffices, or none is known."""
    if not value < math.inf:
        return "none"
    return f"{int(value):,}" if value <= MANY else "more than 10⁹"


def iterations(value: float) -> str:
    """``1 iteration``, ``12 iterations``, …"""
    return f"{count(value)} iteration{'' if value == 1 else 's'}"


def factor(decrease: float) -> str:
    """The factor 1 - ``decrease`` of the gap in one iteration, so that factors near 1 keep their digits."""
    if decrease == 0.0:
        return "1 (no rate)"
    return number(1.0 - decrease) if decrease >= 0.01 else f"1 − {number(decrease)}"


def fall(claim: Claim) -> str:
    """What is left of the gap, in a few words."""
    match claim.kind:
        case Kind.RATE:
            return factor(claim.decrease or claim.final) + ("" if claim.decrease else " in the end")
        case Kind.SUBLINEAR:
            return f"{number(claim.constant)}/t"
        case Kind.LEVELS:
            return "by iteration"
        case Kind.MONOTONE:
            return factor(0.0)
        case Kind.NOTHING:
            return ""


def margin(value: float | None) -> str:
    """A log10 margin as a factor, or in per cent where that is below 2."""
    if value is None:
        return "no ratio: a side is ≤ 0"
    if abs(value) < math.log10(2.0):
        share = f"{number(100.0 * math.expm1(abs(value) * math.log(10.0)), 3)} %"
        return f"{share} to spare" if value >= 0.0 else f"short by {share}"
    ratio = number(10.0 ** abs(value), 3) if abs(value) < 300.0 else power_of_ten(round(abs(value)))
    return f"{ratio} times to spare" if value >= 0.0 else f"short by a factor of {ratio}"


def relation(sign: str) -> str:
    """≤ and ≥ for their ASCII forms."""
    return {"<=": "≤", ">=": "≥"}.get(sign, sign)


def sides(condition: Condition) -> str:
    """Both sides of a hypothesis with the relation that is asked of them."""
    return f"{number(condition.left)} {relation(condition.relation)} {number(condition.right)}"


def plain(value: Any) -> str:
    """A settings value as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return str(value)
