"""Options that draw random problems, and what is said of these."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from tyro.conf import arg

from .._cli.values import at_least_one, matrix_size

if TYPE_CHECKING:
    from .._problems import Problems

LAMBDA = 0.1
Kind = Literal["least-squares", "lasso", "logistic"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class RandomProblems:
    """Which problems."""

    problem: Annotated[
        Kind,
        arg(
            help="Random problems: ½‖Mx - y‖²; the same + λ‖x‖₁, y = Mx̂ + noise with a sparse x̂; or logistic regression "
            "+ λ‖x‖₁. M is Gaussian, with columns of norm 1 but for logistic."
        ),
    ] = "least-squares"
    size: Annotated[str, arg(metavar="ROWSxCOLUMNS")] = "20x32"
    """Rows and columns of each M."""
    problems: Annotated[int, arg(metavar="N")] = 32
    """Number of problems in a batch."""
    lam: Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="(default: 0.1 with lasso and logistic)")] = (
        None
    )
    """Weight λ of the l1 penalty."""

    def draw(self, seed: int, shape: tuple[int, int] | None = None) -> Problems:
        """A batch of problems; the seed says which. Of another ``shape``, if given."""
        from .._problems import Lasso, LeastSquares, Logistic

        rows, columns = shape or matrix_size(self.size)
        at_least_one("--problems", self.problems)
        if seed < 0:
            raise ValueError(f"--seed is {seed}; it must be at least 0")
        if self.problem == "least-squares":
            if self.lam is not None:
                raise ValueError("--lam belongs to --problem lasso and logistic; leave it out, or choose one of them")
            return LeastSquares.random(self.problems, rows, columns, seed=seed)
        if not 0.0 < self.penalty < math.inf:
            raise ValueError(f"--lam is {self.penalty:g}; it must be positive and finite")
        kind = Lasso if self.problem == "lasso" else Logistic
        return kind.random(self.problems, rows, columns, lam=self.penalty, seed=seed)

    @property
    def penalty(self) -> float:
        """λ, where there is a penalty."""
        return LAMBDA if self.lam is None else self.lam

    def described(self, problems: Problems) -> dict[str, Any]:
        """Plain values."""
        return {
            "data": f"{problems.count} random {self.problem} problems, {problems.rows}x{problems.columns}",
            "kind": self.problem,
            "problems": problems.count,
            "rows": problems.rows,
            "columns": problems.columns,
            "lam": None if self.problem == "least-squares" else self.penalty,
        }


def pair(text: str) -> tuple[float, float]:
    """LO and HI of ``--range``."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = math.nan, math.nan
    if not 0.0 <= low < high < math.inf:
        raise ValueError(f"--range is {text!r}; it must be LO,HI with 0 <= LO < HI, for example 0,2 or 1,1.95")
    return low, high
