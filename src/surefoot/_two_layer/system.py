"""The two-layer system as the core sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from surefoot_check.statement import Theorem
from surefoot_check.two_layer import SYSTEM as CHECKED
from surefoot_check.two_layer.corrected import Corrected
from surefoot_check.two_layer.prescribed import Prescribed

from .._core.audit import Audit
from .._core.certificate import Certificate, CertificateStatus
from .._core.completion import MatrixCompletion
from .._core.conditioning import LARGE, conditioning
from .._core.losses import LinearMapLoss, Loss
from .._core.measuring import measured, stored
from .._core.problems import loss_of
from .._core.refusals import SCALE, checkable
from .._core.softmax import SoftmaxRegression
from .._core.system import Measured, Recordable, linear_map, map_resolution
from .._core.validate import network_weight
from . import prescribed_plan
from .as_printed import THEOREM as AS_PRINTED
from .audit import audit
from .engines import ENGINES, Engine, engine, iterate_at
from .entries import EntriesIterate
from .iterate import squared_extremes
from .network import TwoLayerLinear
from .planner import PLANS
from .steps import RULES
from .words import WORDS

OVERFLOW = 1e100
"""Gap from which products of a few such numbers overflow."""
ORTHONORMAL = 1e-9
"""Relative distance of ZZᵀ from a multiple of the identity up to which it counts as one that was rounded."""
REACH = 1e150
"""Limit of numbers whose squares are measured."""


def reduced_weights(net: TwoLayerLinear, loss: LinearMapLoss) -> tuple[Tensor, Tensor]:
    """(BᵀW1, W2), detached: the weights of the reduced problem (Theorem 7 of the proofs).

    Raises:
        TypeError: weights that are not float64.
        ValueError: shapes or devices that do not fit the loss, or non-finite weights.
    """
    W1, W2 = net.W1.detach().contiguous(), net.W2.detach().contiguous()
    for name, W in (("W1", W1), ("W2", W2)):
        network_weight(f"net.{name}", W)
    loss.require_net(len(W1), len(W2), W1.device, ("n", "m"))
    return loss.restrict(W1), W2


def _orthonormal(W1: Tensor, W2: Tensor) -> bool:
    """Whether the rows of [W1; W2] are orthonormal times one number, up to rounding."""
    Z = torch.cat([W1, W2])
    if Z.shape[0] > Z.shape[1]:
        return False
    G = Z @ Z.T
    scale = float(G.diagonal().mean())
    G.diagonal().sub_(scale)
    return 0.0 < scale < math.inf and float(G.abs().max()) <= ORTHONORMAL * scale


def _require_reach(published: Mapping[str, float]) -> None:
    """Raise ``OverflowError`` where what a step measures would overflow: squares of up to K^(3/2) L s+ ≥ ‖𝒳C‖."""
    gap, s_plus = published.get("initial_gap", math.inf), published.get("sigma_max_squared", math.inf)
    if not gap < OVERFLOW:
        raise OverflowError(f"the initial gap is {gap:.3g}; at most {OVERFLOW:.0e} can be descended from in float64")
    reach = published["smoothness"] ** 1.5 * gap * s_plus
    if not reach < REACH:
        raise OverflowError(
            f"smoothness^1.5 times the initial gap {gap:.3g} times |W1|^2 + |W2|^2 = {s_plus:.3g} is {reach:.3g}; "
            f"at most {REACH:.0e} can be descended from in float64"
        )


def _suggestion(
    quantities: Mapping[str, float], loss: LinearMapLoss, width: int, failed: Sequence[str], moving: bool
) -> str:
    """What would make the theorem hold."""
    n, m = loss.reduced.shape
    if any("mu > 0" in name for name in failed):
        if isinstance(loss, SoftmaxRegression):
            return "the loss is not strongly convex: use l2 > 0, for example l2=1e-3"
        return "the data has no positive strong convexity that can be certified: standardise or whiten the inputs"
    if any("quadratic" in name for name in failed):
        return "use theorem='two-layer/drift', which needs neither a quadratic loss nor a unique minimiser"
    if any("alpha1" in name for name in failed):
        if width < min(n, m):
            trained = (
                ", or train it as torch.nn.Sequential with weight decay and certify it by feed-forward/minimum"
                if width == 1
                else ""
            )
            return (
                f"width {width} is below min(n, m) = {min(n, m)}: not certified, as this theorem needs h >= min(n, m) "
                f"(training may converge where the minimiser has a rank that low); use width >= {n + m}{trained}"
            )
        if width < n + m:
            return f"alpha1 > 0 almost surely for random weights of width >= n + m = {n + m}; this network has {width}"
        drawn = "the weights are balanced and far from the optimum: draw W1 and W2 independently (Gaussian)"
        # near a minimiser of full rank the margin alone is enough; weights of 0 never get there
        if quantities.get("optimum_sigma_min", 0.0) > 0.0 and moving:
            return f"{drawn}, or train first and certify again at a later iterate (certify_every)"
        return drawn
    return "no admissible first step was found in floating point; use theorem='two-layer/drift'"


def _spread(net: TwoLayerLinear, loss: LinearMapLoss, q: Mapping[str, float]) -> str:
    """What besides the data makes the count large: alpha2/alpha1, which is the weights' share of the condition number."""
    if not q.get("alpha2", 0.0) > LARGE * q.get("alpha1", 0.0):  # without a unique minimiser there is no alpha2
        return ""
    text = f"the weights pass the gradient on unevenly, alpha2/alpha1 = {q['alpha2'] / q['alpha1']:.3g}"
    n, m = loss.reduced.shape
    if net.width < 2 * (n + m):
        return f"{text}: use a width of at least 2 (n + m) = {2 * (n + m)}"
    imbalance = max(q["lambda_plus"], q["lambda_minus"])
    if q["beta2"] > imbalance:
        return (
            f"{text}, as the map to learn, of norm up to beta2 = {q['beta2']:.3g}, is large beside their imbalance "
            f"{imbalance:.3g}: scale the targets down or the weights up"
        )
    return f"{text}, as their imbalance is: draw W1 and W2 independently with one scale"


class TwoLayerSystem(Recordable[TwoLayerLinear, LinearMapLoss]):
    """Theorems, engines and rules of two-layer linear networks."""

    name = "two-layer"
    network = TwoLayerLinear
    network_name = "sf.nn.TwoLayerLinear"
    words = WORDS
    plans = PLANS
    command = "surefoot._two_layer.command"
    tour = "surefoot._two_layer.command_tour"
    default_theorem = "two-layer/drift"
    engines = tuple(ENGINES)
    rules = RULES

    def of_linear_layers(self, layers: Sequence[Tensor]) -> TwoLayerLinear | None:
        """Of two: W1 is the transpose of the first."""
        return TwoLayerLinear.sharing(layers[0].T, layers[1]) if len(layers) == 2 else None

    def problem(self, net: TwoLayerLinear, loss: Loss) -> LinearMapLoss:
        """See ``_core.system.linear_map``."""
        return linear_map(loss)

    def certify_usual(self, net: TwoLayerLinear, loss: LinearMapLoss) -> tuple[Certificate, str]:
        """Prescribed steps from scaled orthonormal rows, where they are guaranteed to reach their target on a squared loss; else
        the drift theorem."""
        if loss.kind == "squared" and _orthonormal(*reduced_weights(net, loss)):
            certificate = self.certify(net, loss, Prescribed.id)
            if certificate.iterations_to(prescribed_plan.TARGET) < math.inf:
                why = "[W1; W2] has orthonormal rows times one number: steps can be prescribed, and need the fewest iterations"
                return certificate, why
        return super().certify_usual(net, loss)

    def measured(self, net: TwoLayerLinear, loss: LinearMapLoss, theorem: Theorem) -> Measured:
        """See ``_core.measuring.measured``; what would overflow along a run is refused too."""
        with checkable("the network or the data is", SCALE):
            if isinstance(theorem, Prescribed):
                read = stored(CHECKED, loss, self.reduced(net, loss))
                return prescribed_plan.measured(*read, self.resolution(net, loss))
        measurements = measured(CHECKED, loss, self.reduced(net, loss))
        with checkable("the network or the data is", SCALE):
            _require_reach(measurements.published)
        return measurements

    def suggestion(
        self,
        net: TwoLayerLinear,
        loss: LinearMapLoss,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """Other data, width or weights, or a theorem that asks for less."""
        if isinstance(theorem, Prescribed):
            return prescribed_plan.suggestion(loss, failed)
        if isinstance(theorem, Corrected) and not loss.reduced.unique_optimum:
            return "the loss has more than one minimiser, and this theorem needs one: use theorem='two-layer/drift'"
        moving = bool(net.W1.any()) or bool(net.W2.any())
        return _suggestion(quantities, loss, net.width, failed, moving)

    def judged(self, certificate: Certificate) -> Certificate:
        """As printed, the paper's theorem is refuted for n ≠ m."""
        if certificate.theorem != AS_PRINTED.id:
            return certificate
        if certificate.problem["n"] != certificate.problem["m"]:
            suggestion = "the printed alpha1 is false for n != m; use theorem='two-layer/corrected' or the default"
            return replace(certificate, status=CertificateStatus.REFUTED, suggestion=suggestion)
        coincides = "for n = m this coincides with 'two-layer/corrected', which the checker accepts"
        return replace(certificate, suggestion=coincides) if certificate.holds else certificate

    def advice(self, net: TwoLayerLinear, loss: LinearMapLoss, certificate: Certificate) -> str:
        """The condition number of the data, the imbalance of the weights beside the map to learn, and what lowers the count."""
        return "; ".join(part for part in (conditioning(loss), _spread(net, loss, certificate.quantities)) if part)

    def engine(self, net: TwoLayerLinear, loss: LinearMapLoss, name: str) -> Engine:
        """``auto``: Gram space unless the width is below n + m, where the weights themselves are smaller."""
        W1, W2 = reduced_weights(net, loss)
        if name == "auto":
            name = "weights" if net.width < sum(loss.reduced.shape) else "gram"
        return engine(loss.reduced, W1, W2, name)

    def reduced(self, net: TwoLayerLinear, loss: LinearMapLoss) -> dict[str, Tensor]:
        """The weights that a certificate speaks of, as copies: the network's own will move."""
        W1, W2 = reduced_weights(net, loss)
        return {"W1": W1.clone(), "W2": W2.clone()}

    def at(self, net: TwoLayerLinear, weights: Mapping[str, Tensor]) -> TwoLayerLinear:
        """A new reduced network at these weights."""
        return TwoLayerLinear(weights["W1"], weights["W2"])

    def write(self, net: TwoLayerLinear, loss: LinearMapLoss, weights: Mapping[str, Tensor]) -> None:
        """Put reduced weights back; what lies outside the data's row space stays as it was (it never moves)."""
        net.W1.data.copy_(loss.extend(weights["W1"], net.W1.detach()))
        net.W2.data.copy_(weights["W2"])

    def measure(self, net: TwoLayerLinear, loss: LinearMapLoss) -> dict[str, float]:
        """The measurements of the current weights.

        Raises:
            ValueError: weights so large that the gap overflows.
        """
        iterate = iterate_at(loss.reduced, *reduced_weights(net, loss))
        if not iterate.gap < OVERFLOW:
            raise ValueError(
                f"the gap is {iterate.gap:.3g}, too large to go on in float64: the run diverged; take smaller steps"
            )
        return iterate.measurements

    def resolution(self, net: TwoLayerLinear, loss: LinearMapLoss) -> float:
        """Of the product of norms ‖W1‖‖W2‖."""
        W1, W2 = reduced_weights(net, loss)
        return map_resolution(loss, (squared_extremes(W1)[1] * squared_extremes(W2)[1]) ** 0.5)

    def recorded(self, net: TwoLayerLinear, loss: LinearMapLoss) -> dict[str, Tensor]:
        """The network's own weights, also the part that the reduction leaves out: gradient descent leaves it as it is."""
        return {"W1": net.W1.detach().clone(), "W2": net.W2.detach().clone()}

    def gradient(self, net: TwoLayerLinear, loss: LinearMapLoss) -> dict[str, Tensor]:
        """The gradient in the network's own weights."""
        W1, W2 = net.W1.detach(), net.W2.detach()
        if isinstance(loss, MatrixCompletion):
            iterate = EntriesIterate(loss, W1, W2)
            return {"W1": iterate.G1, "W2": iterate.G2}
        g = loss.gradient(W1 @ W2.T)
        return {"W1": g @ W2, "W2": g.T @ W1}

    def rebuild(
        self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[TwoLayerLinear, LinearMapLoss]:
        """The reduced network and loss of a run directory."""
        return TwoLayerLinear(weights["W1"], weights["W2"]), linear_map(loss_of(kind, problem))

    def audit(self, trace: list[dict[str, float]], certificate: Certificate, resolution: float) -> Audit:
        """See ``audit.audit``."""
        return audit(trace, certificate, resolution)
