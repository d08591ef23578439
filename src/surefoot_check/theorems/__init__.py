"""The theorems, one file each. ``surefoot`` evaluates them in floats; the checker proves them in ball arithmetic."""

from __future__ import annotations

from . import (
    deconvolution_ladmm,
    implicit_flow,
    implicit_gd,
    implicit_measured,
    implicit_spectral,
    inverse_interval,
    inverse_order,
    inverse_training,
    linear_resnet_gd,
    linear_resnet_local,
    step_sizes_as_printed,
    step_sizes_monotone,
    step_sizes_prox_monotone,
    step_sizes_prox_rate,
    step_sizes_rate,
    two_layer_as_printed,
    two_layer_constant,
    two_layer_contraction,
    two_layer_corrected,
    two_layer_drift,
    two_layer_sharp,
)
from .statement import Inequality, Schedule, Segment, Theorem

THEOREMS: dict[str, Theorem] = {
    module.THEOREM.id: module.THEOREM
    for module in (
        two_layer_drift,
        two_layer_contraction,
        two_layer_constant,
        two_layer_sharp,
        two_layer_corrected,
        two_layer_as_printed,
        linear_resnet_local,
        linear_resnet_gd,
        implicit_spectral,
        implicit_measured,
        implicit_gd,
        implicit_flow,
        step_sizes_monotone,
        step_sizes_rate,
        step_sizes_prox_monotone,
        step_sizes_prox_rate,
        step_sizes_as_printed,
        inverse_interval,
        inverse_order,
        inverse_training,
        deconvolution_ladmm,
    )
}

__all__ = ["THEOREMS", "Inequality", "Schedule", "Segment", "Theorem"]
