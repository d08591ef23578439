"""The commands ``certify implicit`` and ``train implicit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import arg

from .._cli.forms import Certifying, Question, Training
from .._cli.options import Source, certify_exits, train_exits
from .._cli.values import LONGEST
from .._core.late import late

if TYPE_CHECKING:
    from .._cli.built import Built
    from .._cli.screen import Screen
    from .._core.run import Run

GAMMA = 0.3
"""γ by default where features move."""


@dataclass(frozen=True, kw_only=True)
class Drawn(Source):
    """Which rows of which data."""

    classes: Annotated[
        str | None,
        arg(
            metavar="A,B[,...]",
            help="Keep the rows of these classes only, for example 0,1.",
            help_behavior_hint="(default: all rows)",
        ),
    ] = None
    samples: Annotated[
        int,
        arg(
            metavar="N",
            help="Rows to train on, drawn from the train rows with the classes in proportion; all, if there are fewer. "
            "The paper takes 1000 of two classes.",
        ),
    ] = 100
    inputs: Annotated[
        Literal["auto", "unit", "standardise", "whiten", "raw"],
        arg(
            help="unit scales every row to norm 1, as the paper does; standardise and whiten act on columns, by the drawn "
            "rows: to mean 0 and variance 1, or to principal axes of variance 1 (certified in the fewest iterations, but "
            "useless on held-out rows where there are more columns than rows); raw takes the rows as they are. "
            "auto is standardise, or unit with --gamma, --weights, or a theorem of weights whose features have moved."
        ),
    ] = "auto"
    targets: Annotated[
        Literal["auto", "classes", "centred", "raw"],
        arg(
            help="What the squared loss fits: classes as one column of 0 and 1 if there are two, else as one-hot "
            "columns; numbers, centred; or raw numbers. auto takes the numbers where the data has any, else the classes."
        ),
    ] = "auto"
    merge: Annotated[
        bool,
        arg(
            help="Merge duplicate and parallel rows and drop all-zero ones, which leaves the gradient of the loss as it "
            "is: no certificate holds with such rows.",
            help_behavior_hint="",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Implicit(Drawn, Question):
    """Which rows of which data, which initial weights, which theorem."""

    system: ClassVar[str] = "implicit"
    width: Annotated[
        int | None,
        arg(
            metavar="N",
            help="Width m. Certificates need at least as many units as rows; 2 to 4 times as many do well.",
            help_behavior_hint="(default: 4 x rows but at most 2000; where features stay put at least the inputs)",
        ),
    ] = None
    gamma: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="Weight of the fixed-point equation, below 1: the initial weights are then those of the paper, "
            "W ~ N(0, 1/m), A = I, b = 0, which no theorem covers at usual sizes. Of implicit/local and implicit/exact-fit they "
            "are W ~ N(0, 1/4), A ~ N(0, 1/4m), b = 0, from which features are learned.",
            help_behavior_hint="(default: gamma and the scale of W and A are chosen so that the default theorem holds; of "
            f"implicit/local and implicit/exact-fit {GAMMA:g})",
        ),
    ] = None
    weights: Annotated[
        str | None,
        arg(
            metavar="FILE",
            help="Weights of the network: a safetensors file of its state_dict, or of a run, such as RUN/final.safetensors.",
            help_behavior_hint="(default: drawn)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the drawn rows and the initial weights."""
    theorem: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: implicit/spectral)")] = None
    """Theorem to evaluate; `surefoot list` names them."""

    @property
    def moving(self) -> bool:
        """Whether the theorem is one of weights whose features have moved."""
        from .near import NEAR_A_FIT

        return self.theorem in NEAR_A_FIT

    def build(self) -> Built:
        return late(f"{__package__}.command_run", "built")(self)


@certify_exits("it does not, or no scale of the weights makes it hold")
@dataclass(frozen=True, kw_only=True)
class Certify(Certifying, Implicit):
    """Evaluate a theorem on an infinite-depth ReLU network, z = relu(γzA + relu(xW)), ŷ = zb. Nothing is trained."""


@train_exits("no guarantee (at any scale, or with --require-certificate)", "diverged, collapsed, ill posed or stuck")
@dataclass(frozen=True, kw_only=True)
class Train(Training, Implicit):
    """Certify, train, audit and evaluate an infinite-depth ReLU network, z = relu(γzA + relu(xW)), ŷ = zb."""

    optimizer: Annotated[
        Literal["auto", "adam", "lbfgs", "sgd", "none"],
        arg(
            help="What trains the network, features and all, on all rows, until a fit is guaranteed, with --theorem "
            "implicit/local or implicit/exact-fit; not with --weights. auto is adam with these, else none."
        ),
    ] = "auto"
    learning_rate: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="Its learning rate.",
            help_behavior_hint="(default: 1e-3; lbfgs: 1; sgd: 1e-4)",
        ),
    ] = None
    optimizer_steps: Annotated[int, arg(metavar="N")] = 200
    """Limit on its steps."""
    finish: Annotated[
        Literal["auto", "gauss-newton", "none"],
        arg(
            help=f"What goes on from there towards an exact fit until one is guaranteed, for at most {LONGEST} steps. auto is "
            "gauss-newton with --theorem implicit/local or implicit/exact-fit, else none."
        ),
    ] = "auto"
    tolerance: Annotated[float, arg(metavar="NUMBER")] = 1e-3
    """Stop at this loss, relative to the initial loss."""

    def build(self) -> Built:
        return late(f"{__package__}.command_run", "trained_network")(self)

    def show(self, run: Run, screen: Screen) -> None:
        late(f"{__package__}.command_run", "show")(run, screen)

    def measured(self, run: Run) -> dict[str, Any]:
        return {"feature_movement": late(f"{__package__}.command_run", "relative_movement")(run)}
