"""Has training converged? Plain networks at strict local minima of their training objective, certified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from surefoot._core.descent import certify
from surefoot._core.near_a_fit.training import METHODS
from surefoot._feed_forward.newton import newton
from surefoot._feed_forward.objective import TorchLoss
from surefoot._feed_forward.system import FeedForwardSystem
from surefoot_check.arrays import digest
from surefoot_check.feed_forward.hessian import Curvature
from surefoot_check.feed_forward.network import Objective

from .feed_forward_cases import CLASSES, Kind, left_out, usable
from .feed_forward_runs import accepted
from .finished import Part, kept_all
from .result import Cell, Experiment, Finding, Progress, Table
from .summaries import median

SCALE = 8.0
"""Standardised pixels are divided by it."""
CALLS = 50
"""Of L-BFGS, 20 steps each."""


class Case(NamedTuple):
    """A network and its objective, in plain values; what was measured with a prototype where that was published: λ_min(H), Λ3 by
    the first bound and by the sharper one, and the largest gradient that would do."""

    kind: Kind
    decay: float
    entropy: bool = False
    least: float | None = None
    bends: tuple[float, float] | None = None
    needed: float | None = None

    @property
    def label(self) -> str:
        """As in the table."""
        kind, loss = self.kind, "cross-entropy" if self.entropy else "squared"
        return f"{kind.network} {kind.activation}, {kind.task}, {loss}, decay {self.decay:g}, N = {kind.rows}"

    def objective(self, X: Tensor, Y: Tensor) -> TorchLoss:
        """The mean over the rows of the cross-entropy or of ½‖f - y‖², and decay/2 ‖θ‖²; the latter times ``factor``."""
        if self.entropy:
            return TorchLoss(nn.CrossEntropyLoss(), X, Y.argmax(1), self.decay)
        return TorchLoss(nn.MSELoss(), X, Y, self.decay * self.factor(Y.shape[1]))

    def factor(self, outputs: int) -> float:
        """How many times the objective of the table the criterion of torch is."""
        return 1.0 if self.entropy else 2.0 / outputs


def _table(name: str, rows: int, *measured: Any) -> Case:
    return Case(Kind("16", "Tanh", name, rows), 1e-3, False, *measured)


CASES = (
    Case(Kind("8", "Tanh", CLASSES, 200), 1e-3, True, 6.6e-5, (617.0, 7.0), 3e-10),
    Case(Kind("16", "GELU", CLASSES, 500), 1e-4, True, 2.6e-6, (2310.0, 6.2), 5.5e-13),
    Case(Kind("10", "Tanh", CLASSES, 1437), 1e-3, False, 5.1e-4, (131.0, 51.0), 2.5e-9),
    _table("concrete", 400, 5.3e-5, (79.0, 38.0), 3.7e-11),
    _table("airfoil", 400),
    _table("autompg", 392),
    _table("energy", 400),
)


@dataclass(frozen=True)
class Found:
    """One seed, in the units of ``Case.objective``; ``first``: the first bound of Λ3, of which ``bend`` is the smaller."""

    holds: bool
    least: float
    first: float | None
    bend: float | None
    needed: float | None
    reached: float
    radius: float | None
    condition: float | None
    accepted: bool


def minimum(
    cases: Sequence[Case] = CASES,
    repeats: int = 3,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    data: Path | None = None,
    cache: Path | None = None,
) -> Experiment:
    """L-BFGS, then Newton's method, until ``feed-forward/minimum`` holds."""
    kinds = [case.kind for case in cases]
    there = usable(kinds, data)
    used = [case for case in cases if case.kind in there]

    def parts() -> Iterator[Part]:
        for case in used:
            X, Y = case.kind.data(data)
            X = X / SCALE if case.kind.task == CLASSES else X
            for repeat in range(repeats):
                choices = {"case": list(case), "seed": seed + repeat}
                yield Part(
                    f"{case.label}: seed {seed + repeat}",
                    {"data": digest(X.numpy()) + digest(Y.numpy()), **choices},
                    choices,
                    {"X": X, "Y": Y},
                )

    results = [Found(**result) for result in kept_all(cache, "minimum", parts(), computed_minimum, progress)]
    draws = [(case, results[number * repeats : (number + 1) * repeats]) for number, case in enumerate(used)]
    table = Table(
        "certified minima",
        (
            *(
                "objective",
                "certified",
                "lambda_min at least",
                "prototype's",
                "Lambda_3, first",
                "Lambda_3",
                "prototype's two",
            ),
            *("|grad| needed", "prototype's need", "|grad| at most", "radius", "kappa", "checker"),
        ),
        tuple(_row(case, found) for case, found in draws),
    )
    return Experiment(
        name="feed-forward/minimum",
        title="Trained networks at strict local minima",
        reference="surefoot, docs/theorems/feed-forward.md, Theorem C (no paper)",
        tables=(table,),
        figures=(),
        findings=_findings(draws),
        settings={
            "data": f"digits, the first N rows, standardised and divided by {SCALE:g}; tables: the first N distinct rows, inputs "
            "and target standardised over them" + left_out(kinds, there),
            "objective": "mean over the rows of the cross-entropy or of ½‖f - y‖², and decay/2 ‖θ‖² of all weights and biases",
            "training": f"L-BFGS from torch's initial weights, at most {CALLS * METHODS['lbfgs'].steps} steps, then Newton's",
            "|grad| needed": "the largest norm of the gradient that the certificate would admit there",
            "lambda_min, |grad|": "proved bounds at the minimum reached; Lambda_3 is one by name",
            "kappa": "bound of ‖H‖ on the ball over the least eigenvalue that is kept",
            "checker": "draws whose certificate it accepts at level fast, in a run of one step",
            "repeats": f"{repeats}; medians over them",
        },
    )


def computed_minimum(case: Sequence[Any], seed: int, X: Tensor, Y: Tensor) -> dict[str, Any]:
    """Of one seed, in plain values; ``case``: the fields of a ``Case``."""
    of = Case(Kind(*case[0]), *case[1:])
    net, loss, factor = of.kind.net(X.shape[1], Y.shape[1], seed), of.objective(X, Y), of.factor(Y.shape[1])
    _train(net, of, X, Y)
    newton(net, loss)
    certificate = certify(net, loss)
    q = certificate.quantities
    least, bend = q["lambda_min_H"] / factor, q["lipschitz_H"] / factor if "lipschitz_H" in q else None
    return asdict(
        Found(
            certificate.holds,
            least,
            _first_bound(net, loss, q["ball"]) / factor if "ball" in q else None,
            bend,
            0.5 * least**2 / bend if bend else None,
            q["g0"] / factor,
            certificate.radius,
            q["norm_H_ball"] / q["m_star"] if certificate.holds else None,
            certificate.holds and accepted(net, loss, certificate),
        )
    )


def _first_bound(net: nn.Sequential, loss: TorchLoss, ball: float) -> float:
    """Λ3 of Lemma 2."""
    system = FeedForwardSystem()
    problem = system.problem(net, loss)
    stored, weights = system.stored_at(problem, system.reduced(net, problem))
    assert isinstance(stored, Objective)
    return Curvature(stored, weights).by_layers(ball)[0]


def _train(net: nn.Sequential, case: Case, X: Tensor, Y: Tensor) -> None:
    """L-BFGS on the objective, until no step lowers it."""
    loss, method = case.objective(X, Y), METHODS["lbfgs"]
    optimizer = method.make(net.parameters(), method.rate)
    criterion = nn.CrossEntropyLoss() if case.entropy else nn.MSELoss()
    last = None

    def closure() -> float:
        optimizer.zero_grad()
        value = criterion(net(X), loss.targets)
        value = value + 0.5 * loss.weight_decay * sum(weight.square().sum() for weight in net.parameters())
        value.backward()
        return float(value.detach())

    for _ in range(CALLS):
        value = optimizer.step(closure)
        if value == last:
            break
        last = value


def refusal() -> str:
    """What is said of a network with kinks."""
    kind = Kind("16", "ReLU", CLASSES, 50)
    X, Y = kind.data(None)
    try:
        certify(kind.net(X.shape[1], Y.shape[1], 0), Case(kind, 1e-3, True).objective(X, Y))
    except ValueError as error:
        return str(error)
    return ""


def _row(case: Case, found: Sequence[Found]) -> tuple[Cell, ...]:
    return (
        case.label,
        f"{sum(draw.holds for draw in found)} of {len(found)}",
        median(draw.least for draw in found),
        case.least,
        median(draw.first for draw in found),
        median(draw.bend for draw in found),
        None if case.bends is None else "; ".join(f"{bend:g}" for bend in case.bends),
        median(draw.needed for draw in found),
        case.needed,
        median(draw.reached for draw in found),
        median(draw.radius for draw in found),
        median(draw.condition for draw in found),
        f"{sum(draw.accepted for draw in found)} of {len(found)}",
    )


def _findings(draws: Sequence[tuple[Case, list[Found]]]) -> tuple[Finding, ...]:
    every = [draw for _, found in draws for draw in found]
    said = refusal()
    return (
        Finding(
            "Training ends at a strict local minimum, which is certified.",
            f"{sum(draw.holds for draw in every)} of {len(every)} draws",
            all(draw.holds for draw in every),
            "After L-BFGS and Newton's method.",
        ),
        Finding(
            "The checker accepts every certificate.",
            f"{sum(draw.accepted for draw in every)} of {len(every)}",
            all(draw.accepted for draw in every),
            "At level fast, a run of one step.",
        ),
        Finding(
            "Networks with kinks are refused, and told what to use.",
            said or "a network with ReLU was certified",
            "GELU" in said and "sf.SquaredLoss" in said,
            "Minima of regularised networks with kinks lie on kinks. The alternative is named.",
        ),
    )
