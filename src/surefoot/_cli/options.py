"""What the options of several commands share, as dataclasses from which the parser and the help texts are made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import Field, dataclass
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, TypeVar

from tyro.conf import arg

from .._core.usual import DELTA
from .._data.formats import PATHS

if TYPE_CHECKING:
    from .._core.draws import Drawing
    from .._data.dataset import Data

Flag = Annotated[bool, arg(help_behavior_hint="")]
Quiet = Annotated[bool, arg(help="Print only the outcome.", help_behavior_hint="")]
Json = Annotated[bool, arg(help="Print JSON, and nothing else, on standard output.", help_behavior_hint="")]
KeepProblem = Annotated[
    str | None,
    arg(
        metavar="FILE",
        help="Write the problem's arrays there if they take more than 256 MiB, for `surefoot check DIR --data FILE`; smaller "
        "ones are in DIR.",
        help_behavior_hint="(default: only their hashes are kept)",
    ),
]
Out = Annotated[str, arg(metavar="DIR", help="Directory to write: new, or empty.")]
Resume = Annotated[
    bool,
    arg(
        help="Continue the training in DIR with the settings stored there; only --epochs may be given anew.",
        help_behavior_hint="",
    ),
]


class Runnable(Protocol):
    """A command with its options."""

    def run(self, held: ExitStack) -> int:
        """Do it; the exit code. What enters ``held`` is left when the command ends."""
        ...


class TrainOptions(Runnable, Protocol):
    """What the options of ``train`` are for every system: a dataclass with these."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    system: ClassVar[str]

    @property
    def out(self) -> str:
        """The run directory."""
        ...

    @property
    def resume(self) -> bool:
        """Whether to go on with the run in it."""
        ...


Options = TypeVar("Options")


def certify_exits(no: str = "it does not") -> Callable[[type[Options]], type[Options]]:
    """End the help text of a form of ``certify`` with its exit codes; ``no`` says what 1 means."""
    return _ending(f"Exit code: 0 the theorem holds, 1 {no}.")


def train_exits(
    no: str = "no guarantee under --require-certificate",
    failed: str = "diverged or no step lowers the loss",
    kept: str = "a checkpoint",
) -> Callable[[type[Options]], type[Options]]:
    """End the help text of a form of ``train`` with its exit codes; ``kept`` says what a signal leaves behind."""
    return _ending(
        f"Exit code: 0 done (certified or not: it says which), 1 {no},\n"
        f"4 {failed}, 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP (all keep {kept})."
    )


def _ending(text: str) -> Callable[[type[Options]], type[Options]]:
    """A decorator that adds a paragraph to the docstring, which is the help text."""

    def add(options: type[Options]) -> type[Options]:
        options.__doc__ = f"{cleandoc(options.__doc__ or '')}\n\n{text}"
        return options

    return add


@dataclass(frozen=True, kw_only=True)
class Batched:
    """Which mini-batches."""

    batch: Annotated[
        int | None,
        arg(
            metavar="N",
            help="SGD with so many rows a batch, drawn afresh at each step, from weights near an exact fit; what is guaranteed "
            "has a probability.",
            help_behavior_hint="(default: the full gradient)",
        ),
    ] = None
    delta: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="With --batch the probability, over the batches, that what is guaranteed may fail with.",
            help_behavior_hint=f"(default: {DELTA:g})",
        ),
    ] = None

    def drawing(self, seed: int) -> Drawing | None:
        """The batches; ``None`` for the full gradient.

        Raises:
            ValueError: a delta without batches.
        """
        from .._core.draws import drawing

        if self.batch is None:
            if self.delta is not None:
                raise ValueError("--delta goes with --batch, without which nothing is drawn; leave it out")
            return None
        return drawing(self.batch, DELTA if self.delta is None else self.delta, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Which data."""

    data: Annotated[
        str,
        arg(
            metavar="NAME|PATH",
            help=f"Data set: digits, diabetes, or a path: {PATHS}.",
        ),
    ] = "digits"
    target: Annotated[
        str | None,
        arg(
            metavar="NAME[,...]",
            help="Of a table, the column to predict: its name or its number (from 1), or several; all others are inputs.",
            help_behavior_hint="(default: the last)",
        ),
    ] = None
    separator: Annotated[
        str | None,
        arg(
            metavar="CHARACTER",
            help="What is between the cells of a CSV table: a character, such as ';', or tab.",
            help_behavior_hint="(default: whichever of tab, semicolon and comma fits)",
        ),
    ] = None
    decimal: Annotated[
        Literal[".", ","], arg(metavar="SIGN", help="The decimal sign of a CSV table, a point or a comma.")
    ] = "."
    categories: Annotated[
        Literal["error", "one-hot"],
        arg(
            help="What becomes of text in a table: an error, or a column of 0 and 1 for each text that a train row has; of the "
            "target, classes."
        ),
    ] = "error"
    missing: Annotated[
        Literal["error", "drop", "mean"],
        arg(
            help="What becomes of a row of a table with a missing value: an error, it is dropped, or filled in with the mean of "
            "the train rows."
        ),
    ] = "error"

    def load(self) -> Data:
        """Read the data.

        Raises:
            DataError: (a ``ValueError``) as ``surefoot.data.load``.
        """
        from ..data import load

        return load(
            self.data,
            target=self.target,
            separator=self.separator,
            decimal=self.decimal,
            categories=self.categories,
            missing=self.missing,
        )


@dataclass(frozen=True, kw_only=True)
class Rows(Source):
    """Which data, and what to fit to what."""

    inputs: Annotated[
        Literal["standardise", "whiten", "raw"],
        arg(
            help="Columns of X, from the train rows: standardise to mean 0 and variance 1 (constant columns are "
            "dropped), whiten to principal axes of variance 1 (condition number 1), or raw."
        ),
    ] = "standardise"
    targets: Annotated[
        Literal["auto", "one-hot", "centred", "raw"],
        arg(
            help="What the squared loss fits: classes as one-hot columns, centred; numbers, centred; or raw numbers. "
            "auto takes the numbers where the data has any, else the classes."
        ),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class LinearFit(Rows):
    """Which data, and what its squared loss has beside the squares."""

    l2: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="Weight of the penalty l2/2 ‖W‖² of the linear map.",
            help_behavior_hint="(default: 0)",
        ),
    ] = None
    rcond: Annotated[
        float | None,
        arg(
            metavar="NUMBER",
            help="Drop directions of the inputs whose singular values are at most this times the largest.",
            help_behavior_hint="(default: max(rows, columns) times the rounding unit)",
        ),
    ] = None
    intercept: Annotated[
        bool, arg(help="Fit an intercept, too, which is not penalised; it is eliminated.", help_behavior_hint="")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Matrices:
    """Which matrices."""

    matrices: Annotated[
        str | None,
        arg(
            metavar="FILE.npy",
            help="Matrices to train on, N x rows x columns; a fifth of them is held out to test on.",
            help_behavior_hint="(default: random)",
        ),
    ] = None
    size: Annotated[str | None, arg(metavar="ROWSxCOLUMNS", help_behavior_hint="(default: 50x100)")] = None
    """Size of the random matrices, with independent N(0, 1) entries."""
    count: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 100)")] = None
    """Number of random matrices to train on; as many again are held out to test on."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of whatever is random."""
