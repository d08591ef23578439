"""What reports and screens say of feed-forward networks."""

from __future__ import annotations

from surefoot_check.feed_forward import exact_fit, local, minimum, sgd

from .._core.minibatch_words import SYMBOLS
from .._core.near_a_fit.words import SYMBOLS as NEAR_A_FIT
from .._core.words import Words

OBJECTIVES = ("network-mse", "network-weighted-cross-entropy", "network-cross-entropy")
"""Kinds of problems whose gap is half the square of the norm of a gradient."""

WORDS = Words(
    symbols={
        **NEAR_A_FIT,
        **SYMBOLS,
        "initial_gap": (
            "½s₀²",
            "loss at these weights less its least value; of a minimum half the square of the norm of the gradient",
        ),
        "eta": (
            "η",
            "the floor step; of mini-batches the constant step, whose gradient is N/B times that of the batch",
        ),
        "lambda_min_H": (
            "m₀",
            "smallest eigenvalue of the Hessian at these weights, on what the objective sees",
        ),
        "norm_H": ("‖H₀‖", "largest eigenvalue of the Hessian in magnitude"),
        "lipschitz_H": ("Λ₃", "the Hessian changes at most Λ₃ times as much as the weights, on the ball"),
        "g0": ("g₀", "bound of the norm of the gradient at these weights"),
        "m_star": ("m*", "smallest eigenvalue that the Hessian keeps; the rate is proportional to it"),
        "norm_H_ball": ("M", "largest eigenvalue of the Hessian on the ball"),
        "loss_gap": ("g₀²/2m*", "the objective at these weights is above its value at the minimum by at most this"),
    },
    gap="the squared loss less its least value",
    title="Squared loss less its least value (gap)",
    gaps=dict.fromkeys(OBJECTIVES, ("½‖∇L‖² of the training objective L", "½‖∇L‖² of the training objective (gap)")),
    problems={
        "network-squared": "squared loss of a feed-forward network",
        "network-squared-multiple": "mean or sum of squared errors of a feed-forward network",
        "network-mse": "squared error of a feed-forward network, with weight decay",
        "network-weighted-cross-entropy": "cross-entropy of a feed-forward network, with class weights or label smoothing, and "
        "weight decay",
        "network-cross-entropy": "cross-entropy of a feed-forward network, with weight decay",
    },
    apart=OBJECTIVES,
    networks="A plain torch.nn.Sequential of Linear layers, convolutions, pooling, residual blocks and activations",
    engines={"weights": "the weights themselves"},
    points={
        local.THEOREM.id: "an exact fit",
        exact_fit.THEOREM.id: "an exact fit",
        minimum.THEOREM.id: "a local minimum",
        sgd.THEOREM.id: "an exact fit",
    },
    instead={
        "trace": "sf.Trace does not record feed-forward networks, whose theorems are about a state, however it was reached; "
        "sf.watch(model, loss) certifies states along a loop of one's own",
        "certify_every": "certify_every does not apply to feed-forward networks, whose certificate covers every iterate of its "
        "run; to find one along a training, use sf.watch(model, loss)",
    },
)
