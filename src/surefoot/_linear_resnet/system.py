"""The linear ResNet system as the core sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from surefoot_check.linear_resnet import enclosures as rigorous
from surefoot_check.linear_resnet import local, sgd_local
from surefoot_check.linear_resnet.constants import DIRECTIONS
from surefoot_check.problems import Fitted, Squared
from surefoot_check.statement import SLACK, Theorem

from .._core.admission import least_admitting
from .._core.audit import Audit
from .._core.certificate import Certificate, Condition, publish
from .._core.conditioning import LARGE, conditioning
from .._core.draws import Drawing
from .._core.losses import LinearMapLoss, Loss, SquaredLoss
from .._core.plans import OWN_STEP
from .._core.problems import loss_of
from .._core.refusals import SCALE, checkable
from .._core.samples import sample_loss
from .._core.sgd import audit as audit_of_batches
from .._core.small_losses import Array
from .._core.system import Measured, Recordable, Stochastic, linear_map, map_resolution
from .._core.validate import as_tensor, real
from .audit import audit
from .engine import SubspaceEngine
from .minibatch import PROJECT, FittedLoss, MinibatchEngine
from .minibatch import measured as measured_of_batches
from .minibatch import suggestion as suggestion_for_batches
from .network import LinearResNet
from .planner import PLANS, largest_on_the_ball
from .radius import least_radius
from .reduction import reduce
from .sgd import FORMAT as SGD_FORMAT
from .steps import RULES
from .words import WORDS

GAMMA = 1.0
"""γ of ``linear-resnet/local``: 1 gives the best rate; smaller values certify somewhat earlier."""
LEAST_GAMMA, MOST_GAMMA = 0.01, 1.99
"""The values of γ for a constant step of one's own."""

DEPTH = f"the depth is at most {rigorous.DEEPEST}, up to which certificates are measured and checked"


class LinearResNetSystem(Recordable[LinearResNet, LinearMapLoss], Stochastic[LinearResNet, LinearMapLoss]):
    """Theorems, engine and rules of deep linear ResNets."""

    name = "linear-resnet"
    network = LinearResNet
    network_name = "sf.nn.LinearResNet"
    words = WORDS
    formats: ClassVar[Mapping[str, str]] = {
        SGD_FORMAT: "has a run of sf.sgd, which no report or check reads; go on with it by "
        "sf.sgd.descend(..., directory=..., resume=True), or read its trace.jsonl, one JSON object a line"
    }
    plans = PLANS
    command = "surefoot._linear_resnet.command"
    tour = "surefoot._linear_resnet.command_tour"
    default_theorem = local.THEOREM.id
    of_batches = sgd_local.THEOREM.id
    engines = (SubspaceEngine.name, MinibatchEngine.name)
    rules = RULES
    fixed = frozenset({"A", "B"})

    def problem(self, net: LinearResNet, loss: Loss) -> LinearMapLoss:
        """See ``_core.system.linear_map``."""
        return linear_map(loss)

    def drawn(self, net: LinearResNet, X: Any, Y: Any, drawing: Drawing) -> FittedLoss:
        """See ``_core.system.Stochastic``."""
        if Y is None:
            rows = sample_loss(X)
            X, Y = rows.X, rows.Y
        X, Y = samples(X, Y)
        return FittedLoss(X, Y, drawing(len(X)))

    def usual(self, loss: LinearMapLoss) -> tuple[Theorem, str]:
        """That of mini-batches where those are drawn."""
        return self.theorem(self.of_batches if isinstance(loss, FittedLoss) else None), ""

    def stands_for(self, theorem: Theorem, loss: LinearMapLoss) -> Theorem:
        """Itself, where batches are drawn and it speaks of them, or neither."""
        self.speaks_of(theorem, isinstance(loss, FittedLoss))
        return theorem

    def measured(self, net: LinearResNet, loss: LinearMapLoss, theorem: Theorem) -> Measured:
        """Of the reduced network; a network that is too deep is not measured."""
        return self._measured(net, loss, theorem, None)

    def measured_for_step(self, net: LinearResNet, loss: LinearMapLoss, theorem: Theorem, step: float) -> Measured:
        """The same on the ball for that step."""
        return self._measured(net, loss, theorem, step)

    def _measured(self, net: LinearResNet, loss: LinearMapLoss, theorem: Theorem, step: float | None) -> Measured:
        with checkable("the network or the data is", SCALE):
            problem, arrays = _stored(loss, self.reduced(net, loss))
            sizes = rigorous.sizes(problem, arrays)
            if net.depth > rigorous.DEEPEST:
                gap = rigorous.gap_upper(problem, arrays)
                deep = Condition(DEPTH, float(net.depth), "<=", float(rigorous.DEEPEST), False, None)
                return Measured({"initial_gap": gap} if math.isfinite(gap) else {}, sizes, missing=deep)
            rigorous.read_weights(arrays, problem, "net")
            if isinstance(problem, Fitted):
                assert isinstance(loss, FittedLoss)
                return measured_of_batches(loss, problem, arrays, sizes)
            published, choices = _base_quantities(theorem, problem, arrays, float(loss.optimal_value), step)
            return Measured(published, sizes, [choices])

    def suggestion(
        self,
        net: LinearResNet,
        loss: LinearMapLoss,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """Another width, identity or theorem."""
        if isinstance(loss, FittedLoss) and loss.draws is not None:
            if loss.unfitted is not None:
                return PROJECT
            if not any("full row rank" in name for name in failed):
                return suggestion_for_batches(loss.draws.size, loss.draws.samples)
        return _suggestion(theorem.id, measured.sizes, failed)

    def advice(self, net: LinearResNet, loss: LinearMapLoss, certificate: Certificate) -> str:
        """The condition number of the data, the curvature that the layers add, and what lowers the count."""
        return "; ".join(part for part in (conditioning(loss), _layers(loss, certificate.quantities)) if part)

    def engine(self, net: LinearResNet, loss: LinearMapLoss, name: str) -> SubspaceEngine | MinibatchEngine:
        """The one engine of a loss: the reduced network, in its subspace where the weights are zero."""
        if isinstance(loss, FittedLoss):
            reduced = reduce(net, loss)
            return MinibatchEngine(loss, reduced.A, reduced.B, reduced.W)
        return _engine(net, loss, subspace=True)

    def reduced(self, net: LinearResNet, loss: LinearMapLoss) -> dict[str, Tensor]:
        """The weights that a certificate speaks of: A (q, r), B (k, q), W (L, q, q), as copies."""
        reduced = reduce(net, loss)
        return {name: getattr(reduced, name).detach().clone().contiguous() for name in ("A", "B", "W")}

    def at(self, net: LinearResNet, weights: Mapping[str, Tensor]) -> LinearResNet:
        """A new reduced network at these weights."""
        return LinearResNet(weights["A"], weights["B"], weights["W"])

    def write(self, net: LinearResNet, loss: LinearMapLoss, weights: Mapping[str, Tensor]) -> None:
        """Put reduced weights back: W_l = Q Ŵ_l Qᵀ where the network still has the zero weights that were reduced."""
        Q = reduce(net, loss).basis
        with torch.no_grad():
            net.W.copy_(weights["W"] if Q is None else Q @ weights["W"] @ Q.T)

    def measure(self, net: LinearResNet, loss: LinearMapLoss) -> dict[str, float]:
        """The measurements of the current weights."""
        return _engine(net, loss, subspace=False).iterate.measurements

    def resolution(self, net: LinearResNet, loss: LinearMapLoss) -> float:
        """Of ‖B‖‖A‖ Π(1 + ‖W_l‖), times sqrt(L) for the roundings of L products."""
        reduced = reduce(net, loss)
        layers = float((1.0 + torch.linalg.matrix_norm(reduced.W, 2)).log().sum().exp())
        ends = float(torch.linalg.matrix_norm(reduced.A, 2) * torch.linalg.matrix_norm(reduced.B, 2))
        return map_resolution(loss, ends * layers * len(reduced.W) ** 0.5)

    def recorded(self, net: LinearResNet, loss: LinearMapLoss) -> dict[str, Tensor]:
        """The trained weights at full width, as the subspace is that of zero weights only, and the fixed ends."""
        weights = {"W": net.W, "A": net.A, "B": net.B}
        return {name: tensor.detach().clone() for name, tensor in weights.items()}

    def gradient(self, net: LinearResNet, loss: LinearMapLoss) -> dict[str, Tensor]:
        """The gradient in the trained weights."""
        return {"W": torch.from_numpy(_engine(net, loss, subspace=False).iterate.gradient).to(net.W.device)}

    def rebuild(
        self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[LinearResNet, LinearMapLoss]:
        """The reduced network and loss of a run directory."""
        if kind == FittedLoss.kind:
            return LinearResNet(weights["A"], weights["B"], weights["W"]), FittedLoss.stored(**problem)
        return LinearResNet(weights["A"], weights["B"], weights["W"]), linear_map(loss_of(kind, problem))

    def audit(self, trace: list[dict[str, float]], certificate: Certificate, resolution: float) -> Audit:
        """See ``audit.audit``, of mini-batches ``_core.sgd.audit``."""
        if certificate.theorem == self.of_batches:
            return audit_of_batches(trace, certificate, resolution)
        return audit(trace, certificate, resolution)


def _engine(net: LinearResNet, loss: LinearMapLoss, subspace: bool) -> SubspaceEngine:
    reduced = reduce(net, loss, subspace)
    assert isinstance(loss, SquaredLoss)  # reduce refuses any other
    return SubspaceEngine(loss.reduced, reduced.A, reduced.B, reduced.W)


def samples(X: Any, Y: Any) -> tuple[Tensor, Tensor]:
    """Rows (N, d) and their targets (N, k), or (N,) of one output, as float64."""
    Y = as_tensor("Y", Y)
    return real("X", X, 2), real("Y", Y[:, None] if Y.ndim == 1 else Y, 2)


def _stored(loss: LinearMapLoss, weights: Mapping[str, Tensor]) -> tuple[Squared | Fitted, dict[str, Array]]:
    """Problem and weights as a run directory has them, which is what a certificate speaks of."""
    problem = rigorous.load_problem(loss.kind, {k: v.cpu().numpy() for k, v in loss.reduced.arrays().items()})
    return problem, {name: tensor.cpu().numpy() for name, tensor in weights.items()}


def _base_quantities(
    statement: Theorem, problem: Squared | Fitted, arrays: dict[str, Array], optimal_value: float, step: float | None
) -> tuple[dict[str, float], dict[str, float]]:
    """The measured quantities of the theorem as published, and the choices that depend on more than those or on a step."""
    assert isinstance(problem, Squared)
    published = publish(rigorous.base_quantities(problem, arrays, {}), DIRECTIONS)
    gap = published.get("initial_gap", math.inf)
    choices = {"initial_loss": gap + optimal_value}
    if statement.id == local.THEOREM.id:
        measured = rigorous.measure(arrays, problem.design)

        def on_ball(gamma: float) -> dict[str, float]:
            # μ is published smaller by a slack; the ball has to suffice for it, whatever the rounding
            radius = least_radius(measured, gap * (1.0 + 4.0 * SLACK), gamma) or 0.0
            return {
                **publish(rigorous.quantities_on_ball(measured, radius), DIRECTIONS),
                "gamma": gamma,
                "radius": radius,
            }

        chosen = on_ball(GAMMA if step is None else _gamma(on_ball, published, step))
        choices = {name: chosen.pop(name) for name in statement.choices}
        published |= chosen
    if step is not None:
        choices[OWN_STEP] = step
    missing = [name for name in statement.base if name not in published]
    if missing:
        raise ValueError(f"{statement.id} cannot be evaluated in float64 ({', '.join(missing)} overflow): {SCALE}")
    return published, choices


def _gamma(on_ball: Callable[[float], dict[str, float]], published: Mapping[str, float], step: float) -> float:
    """The least γ whose ball admits a constant step, which makes that ball the smallest and the rate the best."""

    def admits(gamma: float) -> float:
        q = {**published, **on_ball(gamma)}
        holds = all(name in q for name in local.THEOREM.base) and all(c.certain for c in local.THEOREM.conditions(q))
        return largest_on_the_ball(q) if holds else 0.0

    return least_admitting(admits, step, LEAST_GAMMA, GAMMA, MOST_GAMMA)


def _layers(loss: LinearMapLoss, q: Mapping[str, float]) -> str:
    """What besides the data makes the count large."""
    kappa = loss.smoothness / loss.strong_convexity
    if not ("pl_constant" in q and q["smoothness"] > LARGE * kappa * q["pl_constant"]):
        return ""
    return (
        f"the network's curvature K0/mu = {q['smoothness'] / q['pl_constant']:.3g} is far above that of the data, {kappa:.3g}: "
        "use the modified identity with a larger alpha, or scale the targets down"
    )


def _suggestion(theorem: str, sizes: Mapping[str, int | bool], failed: Sequence[str]) -> str:
    """What would make the theorem hold."""
    if list(failed) == [DEPTH]:
        return f"use at most {rigorous.DEEPEST} layers, or train without a guarantee"
    if sizes["m"] < max(sizes["d"], sizes["k"]):
        least = sizes["d"] + sizes["k"]
        return (
            f"width {sizes['m']} is below max(inputs, outputs): use a width of at least {least}, such as the modified identity "
            "with a sufficient alpha"
        )
    if theorem != local.THEOREM.id and not any("full rank" in name for name in failed):
        return "use the theorem linear-resnet/local, which asks for less, at any iterate"
    if any("full rank" in name or "loses rank" in name for name in failed):
        return (
            "A or B, or a layer, has no full rank: draw them anew, or use the modified identity with a sufficient alpha"
        )
    return (
        "the gap is too large for these weights: train and certify again along the run, use a larger width, or the modified "
        "identity with a sufficient alpha, which is certified from the start"
    )
