"""What reports and screens say of learned step sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._core.words import Words


def _steps_taken(
    trace: Sequence[Mapping[str, float]],
    initial: Mapping[str, Any],
    quantities: Mapping[str, float],
    number: Callable[[float], str],
) -> tuple[str, str, str]:
    """The range of the network's steps."""
    rows = [row for row in trace if "step" in row]
    low, high = (initial["range"].tolist()) if "range" in initial else (math.nan, math.nan)
    taken = f"{number(min(r['lowest'] for r in rows))} … {number(max(r['highest'] for r in rows))}" if rows else "none"
    return "Relative steps P taken", taken, f"the network's range: {number(low)} … {number(high)}; a step is P/β"


WORDS = Words(
    advised={
        r"build it with a range up to 2": r"use --range 0,2",
        r"a range (inside \(0, 2\)), such as \(([0-9.]+), ([0-9.]+)\)": r"a --range \1, such as \2,\3",
        r"a range (with a smaller upper end), such as \(0, 1\.95\)": r"a --range \1, such as 0,1.95",
    },
    symbols={
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
        "T": ("T", "iterations of the solver that are trained through"),
        "beta": ("β", "largest smoothness of a problem; of training"),
        "beta0": ("β₀", "least nonzero eigenvalue of M Mᵀ; of training"),
        "norm_X0": ("‖X₀‖", "norm of the iterates that the solver starts from"),
        "norm_Y": ("‖Y‖", "norm of the right-hand sides"),
        "norm_MtY": ("‖MᵀY‖", "norm of the gradient at 0"),
        "alpha0": ("α₀", "smallest singular value of the last hidden layer's outputs"),
        "theta": ("Θ_L", "product of ‖W_ℓ‖ + C_ℓ of all layers"),
        "theta_inner": ("Θ_{L−1}", "the same without the last layer"),
        "inverse_squares": ("Σ λ̄_ℓ⁻²", "sum of (‖W_ℓ‖ + C_ℓ)⁻² of the layers"),
        "inverse_largest": ("max 1/(C_ℓ λ̄_ℓ)", "largest 1/(C_ℓ (‖W_ℓ‖ + C_ℓ)) of a layer"),
        "log10_learning_rate": ("log₁₀ η", "of the step of training"),
        "log10_sum_Lambda": ("log₁₀ ΣΛ_t", "of the sum of the constants Λ_t of equation (12)"),
        "log10_delta1": ("log₁₀ δ₁", "of the constant δ₁ of the paper's Theorem 4.7"),
        "log10_delta2": ("log₁₀ δ₂", "of its δ₂, which is δ₁ without its first term"),
        "log10_delta3": ("log₁₀ δ₃", "of its δ₃, a bound of what enters the network"),
        "log10_delta4": ("log₁₀ δ₄", "of its δ₄, the least slope of the last layer"),
        "log10_13d_needed": ("log₁₀ (13d)", "of the right side of (13d) as the proof needs it"),
        "log10_decrease": ("log₁₀ 4η(β₀/β)²δ₄α₀²", "of the share of the loss that a step of training is said to take"),
        "curvature": ("γ", "1/gap grows by at least γ a step: the sublinear rate"),
    },
    gap="objective minus optimal value, summed over the problems",
    title="Distance of the objective to its optimum (gap)",
    method="the exact iteration, gradient or proximal, with any relative steps in the network's range",
    subject="these problems and the range of the network's steps",
    problems={
        "least-squares-batch": "least-squares problems",
        "lasso-batch": "LASSO problems",
        "logistic-batch": "logistic-regression problems",
    },
    engines={"solver": "the iterates of the problems; the network's weights stay as they are"},
    own_steps=("steps", "whatever the network proposes, with any weights"),
    steps_taken=_steps_taken,
    instead={
        "trace": "sf.Trace is for training loops; sf.descend(net, problems) records the iterations of a solver",
        "certify_every": "certify_every does not apply to learned step sizes: the theorem holds from the start or not at all",
    },
)
