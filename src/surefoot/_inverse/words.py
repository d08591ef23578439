"""What reports and screens say of learned inverses."""

from __future__ import annotations

from .._core.words import Words

WORDS = Words(
    advised={
        r"LearnedInverse\.chebyshev\((\d+), (\d+), \(([^ ]+), ([^ ]+)\)\)": (
            r"--coefficients chebyshev --layers \1 --degree \2 --interval \3,\4"
        ),
    },
    gap="largest ‖AA⁺ − AX‖ of all matrices of the interval",
    title="Distance to the inverse (gap)",
    method="the exact network, layer by layer,",
    subject="these coefficients and this interval",
    iterations="layers",
    initial="‖AA⁺ - AX_0‖",
    problems={"spectrum": "all matrices of an interval"},
    apart=("spectrum",),
    symbols={
        "initial_gap": ("e₀", "largest ‖AA⁺ − AX₀‖ = |1 − σ²/c₀| on the interval; of training, its loss at the start"),
        "lower": ("l", "lower end of the interval of σ²/c₀, σ the nonzero singular values"),
        "upper": ("u", "upper end of that interval"),
        "residual": ("e_k", "largest ‖AA⁺ − AX_k‖ on the interval after k layers"),
        "deviation": ("max |C − 1|", "largest distance of a coefficient to 1"),
        "degree": ("N", "L^K: degree in σ²/c₀ of what the network leaves of the residual"),
        "best_possible": (
            "1/T_N",
            "smallest worst residual on the interval that any coefficients can reach (Chebyshev)",
        ),
        "floor": ("ℓ*", "least loss of training; above 0 where more than L distinct singular values occur"),
        "smoothness": ("M", "largest eigenvalue of the Hessian of the training loss"),
        "strong_convexity": ("μ", "smallest eigenvalue of that Hessian"),
        "decrease": ("1 − (1 − μ/M)²", "share of the training loss that every step takes at least"),
    },
    instead=dict.fromkeys(
        ("descend", "trace", "certify_every"),
        "a learned inverse is not descended; net(A) inverts, net.fit(matrices) trains, sf.certify certifies",
    ),
)
