"""The commands ``certify feed-forward`` and ``train feed-forward``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tyro.conf import arg

from .._cli.forms import Certifying, Question, Training
from .._cli.options import Batched, Rows, certify_exits, train_exits
from .._cli.values import LONGEST
from .._core.late import late

if TYPE_CHECKING:
    from .._cli.built import Built
    from .._cli.screen import Screen
    from .._core.run import Run

DEFAULTS = {False: (50, "100,100", 10_000), True: (200, "16", 2_000)}
"""Rows, hidden layers and steps of the optimiser: of an exact fit, and of a minimum, whose Hessian has an entry for each two
weights, and to which Newton's method goes from there."""
DECAY = 1e-3
"""Weight decay of mse and cross-entropy by default."""


@dataclass(frozen=True, kw_only=True)
class FeedForward(Batched, Rows, Question):
    """Which rows of which data, which network, which weights, which theorem."""

    system: ClassVar[str] = "feed-forward"
    loss: Annotated[
        Literal["squared", "mse", "cross-entropy"],
        arg(
            help="squared: ½‖f(X) - Y‖², to be fitted exactly. mse, cross-entropy: torch's mean over the rows, with a weight "
            "decay, of which a strict local minimum is sought; mse with a decay of 0 is fitted exactly."
        ),
    ] = "squared"
    weight_decay: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="Adds ½ NUMBER ‖weights and biases‖², as torch's SGD does.",
            help_behavior_hint=f"(default: {DECAY:g} with mse and cross-entropy)",
        ),
    ] = None
    samples: Annotated[
        int | None,
        arg(
            metavar="N",
            help="Rows to fit, drawn from the train rows; all, if there are fewer.",
            help_behavior_hint=f"(default: {DEFAULTS[False][0]}, or {DEFAULTS[True][0]} with a weight decay)",
        ),
    ] = None
    hidden: Annotated[
        str | None,
        arg(
            metavar="N[,N...]",
            help="Widths of the hidden layers.",
            help_behavior_hint=f"(default: {DEFAULTS[False][1]}, or {DEFAULTS[True][1]} with a weight decay)",
        ),
    ] = None
    activation: Annotated[
        Literal["tanh", "sigmoid", "softplus", "silu", "gelu", "elu", "relu", "leaky-relu", "hard-tanh"],
        arg(help="What lies behind each hidden layer, with torch's settings."),
    ] = "tanh"
    weights: Annotated[
        str | None,
        arg(
            metavar="FILE",
            help="Weights of the network, a safetensors file of its state_dict, or of a run.",
            help_behavior_hint="(default: torch's initial ones)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the drawn rows, the initial weights and the batches."""
    theorem: Annotated[
        str | None,
        arg(
            metavar="NAME",
            help="Theorem to evaluate; `surefoot list` names them.",
            help_behavior_hint="(default: feed-forward/local; with --batch feed-forward/sgd, with a weight decay "
            "feed-forward/minimum)",
        ),
    ] = None

    @property
    def decay(self) -> float:
        """The weight decay."""
        given = self.weight_decay
        if given is None:
            return 0.0 if self.loss == "squared" else DECAY
        if self.loss == "squared" and given != 0.0:
            raise ValueError("--weight-decay goes with --loss mse or cross-entropy; --loss squared is fitted exactly")
        if not 0.0 <= given < math.inf:
            raise ValueError(f"--weight-decay is {given}; it must be 0 or a positive number")
        return given

    @property
    def seeks_minimum(self) -> bool:
        """Whether a minimum is sought rather than an exact fit."""
        return self.loss == "cross-entropy" or self.decay > 0.0

    def build(self) -> Built:
        return late(f"{__package__}.command_run", "built")(self)


@certify_exits()
@dataclass(frozen=True, kw_only=True)
class Certify(Certifying, FeedForward):
    """Evaluate a theorem on a plain network, linear layers with an activation between them: is an exact fit near, or, with a
    weight decay, has the training converged to a minimum? Nothing is trained."""


@train_exits()
@dataclass(frozen=True, kw_only=True)
class Train(Training, FeedForward):
    """Train a plain network by an optimiser until an exact fit is guaranteed, or, with a weight decay, to a minimum; then
    certify, descend, audit and evaluate."""

    optimizer: Annotated[
        Literal["auto", "adam", "lbfgs", "sgd"],
        arg(
            help="What trains the network, on all rows, until a fit or a minimum is guaranteed; not with --weights. auto is "
            "lbfgs with a weight decay, else adam."
        ),
    ] = "auto"
    learning_rate: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="Its learning rate.",
            help_behavior_hint="(default: 1e-3; lbfgs: 1; sgd: 1e-4 for the squared loss, which is a sum, and 0.1 for a mean)",
        ),
    ] = None
    optimizer_steps: Annotated[
        int | None,
        arg(
            metavar="N",
            help="Limit on its steps.",
            help_behavior_hint=f"(default: {DEFAULTS[False][2]}, or {DEFAULTS[True][2]} with a weight decay)",
        ),
    ] = None
    finish: Annotated[
        Literal["auto", "gauss-newton", "newton", "none"],
        arg(
            help=f"What goes on from there, for at most {LONGEST} steps: gauss-newton towards an exact fit, newton towards a "
            "minimum. auto is newton with a weight decay, else none."
        ),
    ] = "auto"

    def build(self) -> Built:
        return late(f"{__package__}.command_run", "trained_network")(self)

    def show(self, run: Run, screen: Screen) -> None:
        late(f"{__package__}.command_run", "show")(run, screen)
