"""Learned inverses as the core sees them: ``sf.certify(net, interval=(l, u))``.

Nothing is descended here: an iteration of a certificate is a layer, and its gap the worst ‖AA⁺ - AX_k‖ over the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from surefoot_check.inverse import constants as shared
from surefoot_check.inverse import enclosures as rigorous
from surefoot_check.inverse import interval as inverse_interval
from surefoot_check.statement import Theorem

from .._core.certificate import Condition, publish
from .._core.refusals import checkable
from .._core.system import Certifiable, Measured
from .._core.validate import network_weight
from .._learning.directory import LOSSES_ONLY
from .interval import Spectrum
from .network import LearnedInverse
from .planner import PLANS
from .stored import FORMAT
from .words import WORDS

INITIAL_SLACK = 2.0**-50
"""Relative slack of the published initial gap."""
EXACT = ("lower", "upper")
"""Base quantities that are stored, not measured: published as they are."""


class InverseSystem(Certifiable[LearnedInverse, Spectrum]):
    """Theorems of learned inverses."""

    name = "inverse"
    network = LearnedInverse
    plans = PLANS
    default_theorem = inverse_interval.THEOREM.id
    network_name = "sf.nn.LearnedInverse"
    words = WORDS
    no_trajectory = LOSSES_ONLY
    formats: ClassVar[Mapping[str, str]] = {
        FORMAT: "holds a certificate and no run to report; `surefoot check` proves it"
    }
    command = "surefoot._inverse.command"
    tour = "surefoot._inverse.command_tour"
    given = ("interval",)

    def problem(self, net: LearnedInverse, loss: Any, interval: Any = None) -> Spectrum:
        """An interval (l, u), the net's own by default, as a loss.

        Raises:
            TypeError, ValueError: no interval, or two.
        """
        if loss is not None and interval is not None:
            raise ValueError("pass a loss or an interval, not both")
        chosen = interval if interval is not None else loss if loss is not None else net.interval
        if chosen is None:
            raise ValueError("this net has no interval of its own; pass interval=(l, u), bounds of sigma^2/c0")
        return chosen if isinstance(chosen, Spectrum) else Spectrum(chosen)

    def stands_for(self, theorem: Theorem, loss: Spectrum) -> Theorem:
        """Refuses the theorem on training."""
        if not theorem.provable:
            raise ValueError(
                f"{theorem.id} is about training and gives no certificate (docs/theorems/inverse.md, Theorem 5); "
                "net.floor(matrices) says what it means for yours"
            )
        return theorem

    def measured(self, net: LearnedInverse, loss: Spectrum, theorem: Theorem) -> Measured:
        """Of the net's coefficients on an interval of σ²/c0.

        Raises:
            TypeError: coefficients that are not float64.
            ValueError: non-finite or huge coefficients.
        """
        network_weight("net.coefficients", net.coefficients.detach())
        with checkable("the coefficients are", "use coefficients of order 1"):
            problem = rigorous.load_problem(loss.kind, {k: tensor.numpy() for k, tensor in loss.arrays().items()})
            coefficients = {name: tensor.cpu().numpy() for name, tensor in self.reduced(net, loss).items()}
            coefficients = rigorous.read_weights(coefficients, problem, "initial.safetensors")
            enclosures = rigorous.base_quantities(problem, coefficients, {})
        published = publish(enclosures, shared.DIRECTIONS) | {name: enclosures[name][0] for name in EXACT}
        # no checker needs more room for it: 1 - l, which a slack of 1e-9 would lift to 1 for small l
        published["initial_gap"] = enclosures["initial_gap"][1] * (1.0 + INITIAL_SLACK)
        bounded = math.isfinite(published[shared.RESIDUALS[net.layers - 1]])
        unbounded = Condition("the residual of every layer has a finite bound", 0.0, ">", 0.0, False, None)
        return Measured(published, rigorous.sizes(problem, coefficients), missing=None if bounded else unbounded)

    def suggestion(
        self,
        net: LearnedInverse,
        loss: Spectrum,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """Other coefficients or another theorem."""
        return _suggestion(net, loss, measured.published)

    def reduced(self, net: LearnedInverse, loss: Any) -> dict[str, Tensor]:
        """C (K, L)."""
        return {"C": net.coefficients.detach().clone()}

    def rebuild(
        self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[LearnedInverse, Spectrum]:
        """The net (with the default rule for c0, which no claim depends on) and the interval of a stored certificate."""
        loss = Spectrum(problem["interval"].tolist())
        return LearnedInverse(weights["C"], interval=(loss.lower, loss.upper)), loss


def _suggestion(net: LearnedInverse, loss: Spectrum, published: Mapping[str, float]) -> str:
    """What would make the theorem hold."""
    if bool((net.coefficients.detach() == 1.0).all()) and loss.upper >= 2.0:
        return "with coefficients 1 the interval must end below 2: scale by a larger c0"
    last = published[shared.RESIDUALS[net.layers - 1]]
    chebyshev = f"LearnedInverse.chebyshev({net.layers}, {net.terms}, ({loss.lower:g}, {loss.upper:g}))"
    if last >= 1.0:
        return (
            f"these coefficients leave a residual of 1 or more somewhere on the interval; {chebyshev} has the smallest worst "
            "residual there"
        )
    return "use inverse/interval, which holds for any coefficients"
