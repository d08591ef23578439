"""What reports and screens say of learned step sizes."""

from __future__ import annotations

from .._core.words import Words

WORDS = Words(
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
    instead={
        "trace": "sf.Trace is for training loops; sf.descend(net, problems) records the iterations of a solver",
        "certify_every": "certify_every does not apply to learned step sizes: the theorem holds from the start or not at all",
    },
)
