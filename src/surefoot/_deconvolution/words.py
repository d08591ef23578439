"""What reports and screens say of the solvers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._core.words import Words


def _steps_taken(
    trace: Sequence[Mapping[str, float]],
    initial: Mapping[str, Any],
    quantities: Mapping[str, float],
    number: Callable[[float], str],
) -> tuple[str, str, str]:
    """The parameters of the method."""
    names = [name for name in ("alpha", "beta", "gamma") if name in quantities]
    values = ", ".join(f"{name} = {number(quantities[name])}" for name in names)
    return "Parameters", values, "fixed; the method has no other steps"


WORDS = Words(
    symbols={
        "initial_gap": ("V₀", "change of the first iteration: ‖w₁ − w₀‖² in the norm of the method"),
        "alpha": ("α", "parameter of the z-step"),
        "beta": ("β", "penalty parameter of the method"),
        "gamma": ("γ", "parameter of the x-step"),
        "penalty": ("λ", "weight of the prior in the objective: of ‖x‖₁, or of the total variation"),
        "transform_norm": ("‖W‖", "largest singular value of the wavelet transform"),
        "blur_norm": ("‖B‖", "largest singular value of the blur"),
        "majorizer_excess": ("s", "bound of ‖S‖, S = M − BᵀB, and (1/α − β)I for sparse coefficients"),
        "objective_bound": ("F", "objective at some point: at least its optimal value"),
        "start_latent": ("‖z₀‖", "size of the picture that the iteration starts from"),
        "start_coefficients": ("‖x₀‖", "size of the coefficients that it starts from"),
        "constant_gain": ("b", "at most ‖B1‖/‖1‖: how much the blur leaves of a constant picture"),
        "pixels": ("N", "pixels of all latent pictures"),
        "aspect": ("a", "longer over shorter side of a latent picture"),
        "observed_norm": ("‖y‖", "size of the observed picture"),
        "start_differences": ("‖x₀‖", "size of the differences that it starts from"),
        "start_multiplier": ("‖μ₀‖", "size of the multiplier that it starts from"),
        "distance_bound": ("D", "bound of ‖w₀ − w*‖² to a solution w*: the change after t iterations is at most D/t"),
    },
    gap="change from an iterate to the next, squared, in the norm of the method (V), whose limit is 0; it is no distance of the "
    "objective to its optimum",
    title="Change from an iterate to the next (gap)",
    method="the exact iteration of the solver (ADMM)",
    subject="this picture and this start",
    problems={"deconvolution": "sparse deconvolution", "total-variation": "deconvolution with total variation"},
    apart=("deconvolution", "total-variation"),
    own_steps=("guarantee", "it converges; the change V from iterate to iterate never increases"),
    steps_taken=_steps_taken,
    instead={
        "trace": "sf.Trace is for training loops; sf.descend(solver, problem) records the iterations of the solver",
        "certify_every": "certify_every does not apply to the solvers: their guarantee holds from the start",
    },
)
