"""The commands of the program, one line each: the one list. Only the module of the command that is run is imported."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command.

    Attributes:
        summary: one line for those who choose.
        options: where the class of its options is, as ``module:name``; empty for a command that takes another name.
    """

    summary: str
    options: str = ""


COMMANDS = {
    "demo": Command("Start here: a tour of what there is, on bundled data.", "surefoot._cli.inspection:Demo"),
    "certify": Command("Evaluate a convergence theorem on your data, before training."),
    "certify two-layer": Command("two-layer linear network", "surefoot._two_layer.command:Certify"),
    "certify linear-resnet": Command("deep linear residual network", "surefoot._linear_resnet.command:Certify"),
    "certify implicit": Command("infinite-depth ReLU network", "surefoot._implicit.command:Certify"),
    "certify feed-forward": Command(
        "plain network: is an exact fit or a minimum near?", "surefoot._feed_forward.command:Certify"
    ),
    "certify step-sizes": Command("learned step sizes of a solver", "surefoot._step_sizes.command:Certify"),
    "certify inverse": Command("matrix inverse by products alone", "surefoot._inverse.command:Certify"),
    "certify holdout": Command(
        "iterations that a solver needs, from counts on held-out problems", "surefoot._holdout.command:Holdout"
    ),
    "train": Command("Certify, train, audit; write a run directory with a report."),
    "train two-layer": Command("two-layer linear network", "surefoot._two_layer.command:Train"),
    "train linear-resnet": Command("deep linear residual network", "surefoot._linear_resnet.command:Train"),
    "train implicit": Command("infinite-depth ReLU network", "surefoot._implicit.command:Train"),
    "train feed-forward": Command(
        "plain network, until an exact fit or a minimum is guaranteed", "surefoot._feed_forward.command:Train"
    ),
    "train step-sizes": Command("network that chooses step sizes of a solver", "surefoot._step_sizes.command:Train"),
    "train inverse": Command("coefficients of a matrix inverse", "surefoot._inverse.command:Train"),
    "train svd": Command("step sizes of a differentiable SVD; for research", "surefoot._orthogonal.command:Train"),
    "train deconvolution": Command(
        "unrolled network that sharpens photographs", "surefoot._deconvolution.command:Train"
    ),
    "train layers": Command(
        "steps of a solver, layer by layer, each proved on its problems", "surefoot._layers.command:Layers"
    ),
    "check": Command("Prove what a run or certificate claims, independently.", "surefoot._cli.inspection:Check"),
    "report": Command(
        "Write the report of a run anew, or compare several runs.",
        "surefoot._cli.inspection:Report",
    ),
    "deblur": Command("Sharpen photographs whose blur is known.", "surefoot._deconvolution.command_deblur:Deblur"),
    "reproduce": Command("Reproduce a figure or table of a paper.", "surefoot._cli.inspection:Reproduce"),
    "list": Command("List systems, theorems, step rules, data sets, experiments.", "surefoot._cli.inspection:List"),
    "completion": Command("Print a script that completes commands by Tab.", "surefoot._cli.completion:Completion"),
}
"""By name; those of ``certify`` and ``train`` have two words."""
