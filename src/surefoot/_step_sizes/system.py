"""Learned step sizes as the core sees them: ``sf.certify(net, problems)`` and ``sf.descend(net, problems)``.

What moves is the iterate of the problems, from 0; an iteration of the run is one of the solver. The network's weights are not
part of any claim: the theorems hold for whatever it says, within its range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from surefoot_check.arrays import within
from surefoot_check.statement import Theorem
from surefoot_check.step_sizes import constants as shared
from surefoot_check.step_sizes import enclosures as rigorous
from surefoot_check.step_sizes import monotone as step_sizes_monotone
from surefoot_check.step_sizes import prox_monotone as step_sizes_prox_monotone
from surefoot_check.step_sizes import prox_rate as step_sizes_prox_rate
from surefoot_check.step_sizes import rate as step_sizes_rate
from surefoot_check.step_sizes.batches import LARGEST

from .._core.audit import Audit, Check, Led, Lines, audited, never_increases, noise
from .._core.certificate import Certificate, Condition, publish
from .._core.losses import Loss
from .._core.refusals import checkable
from .._core.steps import StepRule
from .._core.system import Descendable, Measured
from .._core.validate import kind_of
from .._problems import Lasso, LeastSquares, Logistic, Problems
from .engine import SolverEngine
from .network import StepSizeNet, check_net, check_problems
from .planner import PLANS, a_posteriori
from .smoothness import smoothness_of
from .words import WORDS

KINDS: dict[str, type[Problems]] = {kind.kind: kind for kind in (LeastSquares, Lasso, Logistic)}
FORMAT = "surefoot-step-sizes/1"
"""Of config.json in the directory of a training."""
RESCALE = "rescale the problems"
ROUNDING = 64 * torch.finfo(torch.float64).eps
"""Relative error granted to a computed objective."""


class BatchLoss(Loss):
    """The total objective of a batch; gaps are measured from the sum of the optimal values."""

    def __init__(self, problems: Problems) -> None:
        with checkable("loss is", RESCALE):  # before the search for the reference minimisers
            for name, array in problems.data().items():
                within(f"array {name!r}", array.double().cpu().numpy(), LARGEST)
            rigorous.require_betas("beta", smoothness_of(problems, None).cpu().numpy())
        self.problems = problems
        self.kind = problems.kind
        self.optimal_value = float(problems.optimal_value.sum())

    def arrays(self) -> dict[str, Tensor]:
        return self.problems.arrays()


class Learned(StepRule):
    """The steps of the network; recorded as 1 an iteration."""

    name = shared.RULE
    certified_by = frozenset({f"step-sizes/{name}" for name in ("monotone", "rate", "prox-monotone", "prox-rate")})

    def step(self, engine: Any) -> float:
        return 1.0


RULES: dict[str, type[StepRule]] = {Learned.name: Learned}


class StepSizesSystem(Descendable[StepSizeNet, BatchLoss]):
    """Theorems and engine of learned step sizes."""

    name = "step-sizes"
    network = StepSizeNet
    network_name = "sf.nn.StepSizeNet"
    words = WORDS
    plans = PLANS
    command = "surefoot._step_sizes.command"
    tour = "surefoot._step_sizes.command_tour"
    default_theorem = step_sizes_monotone.THEOREM.id
    engines = (SolverEngine.name,)
    rules = RULES
    formats: ClassVar[Mapping[str, str]] = {
        FORMAT: "holds the state of a training, to resume from, and no run; `surefoot train step-sizes --out DIR` writes it into "
        "DIR/training: pass DIR, whose run is that on fresh problems"
    }

    def problem(self, net: StepSizeNet, loss: object) -> BatchLoss:
        """A batch of ``sf.learned`` problems as a loss."""
        if isinstance(loss, BatchLoss):
            return loss
        if not isinstance(loss, Problems):
            raise TypeError(f"loss is {kind_of(loss)}; pass sf.learned.LeastSquares, Lasso or Logistic")
        return BatchLoss(loss)

    def stands_for(self, theorem: Theorem, loss: BatchLoss) -> Theorem:
        """``monotone`` stands for its proximal form where there is a penalty."""
        if theorem.id == self.default_theorem and loss.kind != LeastSquares.kind:
            return step_sizes_prox_monotone.THEOREM
        if not theorem.provable:
            raise ValueError(
                f"{theorem.id} is about training the network and proves nothing (docs/theorems/step-sizes.md, section 8); "
                "surefoot reproduce step-sizes/table1 evaluates its conditions"
            )
        return theorem

    def measured(self, net: StepSizeNet, loss: BatchLoss, theorem: Theorem) -> Measured:
        """Of iterations from 0 with the network's range."""
        weights = {name: tensor.cpu().numpy() for name, tensor in self.reduced(net, loss).items()}
        with checkable("loss is", RESCALE):
            problem = rigorous.load_problem(loss.kind, {name: tensor.numpy() for name, tensor in loss.arrays().items()})
            rigorous.read_weights(weights, problem, "beta")
            enclosures = rigorous.base_quantities(problem, weights, {})
        sizes = rigorous.sizes(problem, weights)
        published = publish(enclosures, shared.DIRECTIONS)
        published |= {name: enclosures[name][0] for name in rigorous.EXACT}
        # of the wrong kind of problems a theorem says so before it asks for anything else
        fits = sizes["proximal"] == ("prox" in theorem.id)
        missing = [name for name in theorem.base if name not in published and fits]
        if missing:
            name = f"{', '.join(missing)} has a finite bound for these problems"
            return Measured({}, sizes, missing=Condition(name, 0.0, ">", 0.0, False, None))
        return Measured(published, sizes)

    def suggestion(
        self,
        net: StepSizeNet,
        loss: BatchLoss,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """Another range or theorem."""
        return _suggestion(theorem.id, bool(measured.sizes["proximal"]), net)

    def advice(self, net: StepSizeNet, loss: BatchLoss, certificate: Certificate) -> str:
        """Which of range and problems makes the rate small, and what lowers the count."""
        return _slow(certificate.theorem, certificate.quantities)

    def rule(self, steps: StepRule | str | float | None, certificate: Certificate) -> StepRule:
        """The network's own steps, and no other."""
        if steps is None or isinstance(steps, Learned) or steps == Learned.name:
            return Learned()
        raise ValueError(f"steps is {steps!r}; a step-size network takes its own steps: leave it out")

    def engine(self, net: StepSizeNet, loss: BatchLoss, name: str) -> SolverEngine:
        """The one engine: the solver."""
        weights = self.reduced(net, loss)
        return SolverEngine(net, loss.problems, weights["beta"], weights["x"])

    def reduced(self, net: StepSizeNet, loss: BatchLoss) -> dict[str, Tensor]:
        """x = 0 (N, d), the smoothness bounds beta (N,), and the range (2,) of the network.

        Raises:
            TypeError, ValueError: a network that is not float64 or not finite, or problems of another dtype or device.
        """
        check_net(net)
        check_problems(net, loss.problems, "loss")
        if net.weights[0].dtype != torch.float64:
            raise TypeError("net is float32; certificates are about float64: net.double(), and problems in float64")
        x = loss.problems.start()
        interval = torch.tensor(net.range, dtype=torch.float64, device=x.device)
        return {"x": x, "beta": smoothness_of(loss.problems, None).clone(), "range": interval}

    def write(self, net: StepSizeNet, loss: BatchLoss, weights: Mapping[str, Tensor]) -> None:
        """Nothing: the solution is ``run.final["x"]``."""

    def resolution(self, net: StepSizeNet, loss: BatchLoss) -> float:
        """Of the rounding of the objectives at 0 and at the optimum, and of the minimiser that gaps are measured by."""
        problems = loss.problems
        largest = ROUNDING * torch.maximum(problems._value(problems.start()).double(), problems.optimal_value)
        return float(torch.maximum(largest, problems.gap_resolution).sum())

    def rebuild(
        self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[StepSizeNet, BatchLoss]:
        """The problems of a run directory, and a network with the range of its steps (its weights are not stored)."""
        parts = {name: value for name, value in problem.items() if name not in ("M", "optimum")}
        low, high = weights["range"].tolist()
        net = StepSizeNet.orthogonal((2, 2), (low, high) if low < high else (low, math.nextafter(high, 3.0)))
        return net, BatchLoss(cast(Any, KINDS[kind])(problem["M"], **parts))

    def audit(self, trace: list[dict[str, float]], certificate: Certificate, resolution: float) -> Audit:
        """Check the theorem's inequalities along a trace: the range of P, the decrease, and the bound."""
        steps = [(a, b) for a, b in pairwise(trace) if "step" in a]
        checks: list[Check] = [never_increases(trace, resolution, "objective")]
        if certificate.holds:
            q = certificate.quantities
            checks += [
                ("P >= lo", ((int(a["iteration"]), q["range_low"], a["lowest"]) for a, _ in steps)),
                ("P <= hi", ((int(a["iteration"]), a["highest"], q["range_high"]) for a, _ in steps)),
            ]
            if certificate.theorem == step_sizes_rate.THEOREM.id:
                checks.append(
                    Led("a posteriori: the product of the observed factors", _a_posteriori(trace, steps, q, resolution))
                )
        return audited(certificate, trace, checks, resolution)


def _a_posteriori(
    trace: list[dict[str, float]],
    steps: list[tuple[dict[str, float], dict[str, float]]],
    q: Mapping[str, float],
    resolution: float,
) -> Lines:
    factors = a_posteriori(q, [a["lowest"] for a, _ in steps], [a["highest"] for a, _ in steps])
    for (_, b), factor in zip(steps, factors[1:], strict=True):
        yield int(b["iteration"]), b["gap"], factor * trace[0]["gap"] + noise(b["gap"], resolution)


def _slow(theorem: str, q: Mapping[str, float]) -> str:
    """Why the rate is small."""
    room = 2.0 - q["range_high"] * q["smoothness_ratio"]
    if theorem == step_sizes_rate.THEOREM.id:
        part, problems = q["range_low"] * q["convexity_ratio"], q["smoothness_ratio"] / q["convexity_ratio"]
        remedy = "scale or whiten the columns of the matrices"
    else:
        convexity = q["loss_convexity_ratio"] + q["penalty_convexity_ratio"]
        part, problems = q["range_low"] * convexity, q["smoothness_ratio"] / convexity if convexity > 0.0 else math.inf
        remedy = "use l2 > 0 where the loss has it, or matrices of full column rank with less collinear columns"
    if room < part:
        return f"the range leaves 2 - hi s = {room:.3g} to the largest step that is allowed: use a smaller upper end"
    if q["range_low"] < 0.1:
        return f"the network may take steps as small as {q['range_low']:.3g}/beta: use a larger lower end of the range, such as 1"
    if math.isinf(problems):
        return f"no part of the objective is strongly convex, so that the bound is c/t: {remedy}"
    return f"the worst condition number of the problems is {problems:.3g}: {remedy}"


def _suggestion(theorem: str, proximal: bool, net: StepSizeNet) -> str:
    """What would make the theorem hold."""
    if proximal != ("prox" in theorem):
        other = "step-sizes/prox-monotone or /prox-rate" if proximal else "step-sizes/monotone or /rate"
        return f"this theorem is about another kind of problems: use {other}"
    if net.high > 2.0:
        reach = f"the network's steps reach {net.high:g}/beta, beyond 2/beta, where nothing is guaranteed"
        return f"{reach}: build it with a range up to 2"
    if theorem == step_sizes_rate.THEOREM.id:
        return "a rate needs a range inside (0, 2), such as (1, 1.95), and matrices of full rank; else use step-sizes/monotone"
    if theorem == step_sizes_prox_rate.THEOREM.id:
        return "a rate needs a range inside (0, 2), such as (0.5, 1.5); else use step-sizes/prox-monotone"
    return "the steps reach 2/smoothness: use a range with a smaller upper end, such as (0, 1.95)"
