"""Learned inverses as the core sees them: ``sf.certify(net, interval=(l, u))``.

Nothing is descended here: an iteration of a certificate is a layer, and its gap the worst ‖AA⁺ - AX_k‖ over the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor

from surefoot_check.inverse import constants as shared
from surefoot_check.inverse import enclosures as rigorous
from surefoot_check.inverse import interval as inverse_interval

from .._core.audit import Audit
from .._core.certificate import Certificate, Condition, checkable, conclude, digests, evaluate, find, publish
from .._core.io import run_directory
from .._core.run import write_start
from .._core.steps import StepRule
from .._core.validate import folder, network_weight
from .interval import Spectrum
from .network import LearnedInverse

FORMAT = "surefoot-inverse/1"
"""What config.json of a directory with a certificate of an inverse says."""
INITIAL_SLACK = 2.0**-50
"""Relative slack of the published initial gap."""
EXACT = ("lower", "upper")
"""Base quantities that are stored, not measured: published as they are."""


class InverseSystem:
    """Theorems of learned inverses."""

    name = "inverse"
    network = LearnedInverse
    default_theorem = inverse_interval.THEOREM.id
    rules: dict[str, type[StepRule]]

    def __init__(self) -> None:
        self.rules = {}

    def problem(self, loss: Any) -> Spectrum | None:
        """An interval (l, u) as a loss; ``None`` stands for the net's own.

        Raises:
            TypeError, ValueError: no interval.
        """
        return loss if loss is None or isinstance(loss, Spectrum) else Spectrum(loss)

    def certify(self, net: LearnedInverse, loss: Spectrum | None, theorem: str) -> Certificate:
        """Evaluate ``theorem`` for the net's coefficients on an interval of σ²/c0.

        Raises:
            TypeError: coefficients that are not float64.
            ValueError: non-finite or huge coefficients, no interval, or a theorem that gives no certificate.
        """
        network_weight("coefficients", net.coefficients.detach())
        if loss is None:
            if net.interval is None:
                raise ValueError("this net has no interval of its own; pass interval=(l, u), bounds of sigma^2/c0")
            loss = Spectrum(net.interval)
        statement = find(theorem, self.name)
        if not statement.provable:
            raise ValueError(
                f"{statement.id} is about training and gives no certificate (docs/theorems/inverse.md, Theorem 5); "
                "net.floor(matrices) says what it means for yours"
            )
        arrays, weights = loss.arrays(), self.reduced(net, loss)
        with checkable("the coefficients are", "use coefficients of order 1"):
            problem = rigorous.load_problem(loss.kind, {name: tensor.numpy() for name, tensor in arrays.items()})
            coefficients = {name: tensor.cpu().numpy() for name, tensor in weights.items()}
            coefficients = rigorous.read_weights(coefficients, problem, "initial.safetensors")
            enclosures = rigorous.base_quantities(problem, coefficients)
        published = publish(enclosures, shared.DIRECTIONS) | {name: enclosures[name][0] for name in EXACT}
        # no checker needs more room for it: 1 - l, which a slack of 1e-9 would lift to 1 for small l
        published["initial_gap"] = enclosures["initial_gap"][1] * (1.0 + INITIAL_SLACK)
        sizes = rigorous.sizes(problem, coefficients)
        base = {name: published[name] for name in statement.base if name in published}
        quantities: Mapping[str, float] = base
        inequalities, schedule = [], []
        conditions = [Condition("the residual of every layer has a finite bound", 0.0, ">", 0.0, False, None)]
        if math.isfinite(published[shared.RESIDUALS[net.layers - 1]]):
            quantities, inequalities, schedule = evaluate(statement, {**base, **sizes})
            conditions = [Condition.of(inequality) for inequality in inequalities]
        return conclude(
            statement,
            quantities,
            conditions,
            schedule,
            problem={"kind": loss.kind, **sizes},
            arrays=digests(arrays, weights),
            optimal_value=0.0,
            suggestion=_suggestion(net, loss, published),
        )

    def reduced(self, net: LearnedInverse, loss: Any) -> dict[str, Tensor]:
        """C (K, L)."""
        return {"C": net.coefficients.detach().clone()}

    def at(self, net: Any, weights: Mapping[str, Tensor]) -> LearnedInverse:
        """A net with other coefficients."""
        return LearnedInverse(weights["C"], net.c0, interval=net.interval, backward=net.backward)

    def write(self, net: Any, loss: Any, weights: Mapping[str, Tensor]) -> None:
        """Put coefficients into the net."""
        net.coefficients.data.copy_(weights["C"])

    def rebuild(self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Any:
        """The net (with the default rule for c0, which no claim depends on) and the interval of a stored certificate."""
        loss = Spectrum(problem["interval"].tolist())
        return LearnedInverse(weights["C"], interval=(loss.lower, loss.upper)), loss

    def advice(self, net: LearnedInverse, loss: Any, certificate: Certificate) -> str:
        """None: layers are few."""
        return ""

    def rule(self, steps: Any, certificate: Certificate | None) -> StepRule:
        """Refused."""
        _refuse()

    def engine(self, net: Any, loss: Any, name: str) -> Any:
        """Refused."""
        _refuse()

    def measure(self, net: Any, loss: Any) -> dict[str, float]:
        """Refused."""
        _refuse()

    def resolution(self, net: Any, loss: Any) -> float:
        """Refused."""
        _refuse()

    def recorded(self, net: Any, loss: Any) -> dict[str, Tensor]:
        """Refused."""
        _refuse()

    def measure_step(self, net: Any, loss: Any, before: Mapping[str, Tensor], step: float) -> dict[str, float]:
        """Refused."""
        _refuse()

    def gradient(self, net: Any, loss: Any) -> dict[str, Tensor]:
        """Refused."""
        _refuse()

    def audit(self, trace: list[dict[str, float]], certificate: Certificate, resolution: float) -> Audit:
        """Refused."""
        _refuse()


def save_certificate(
    net: LearnedInverse, directory: str | Path, interval: tuple[float, float] | None, theorem: str | None
) -> Certificate:
    """See ``LearnedInverse.save_certificate``."""
    system = InverseSystem()
    loss = system.problem(interval if interval is not None else net.interval)
    certificate = system.certify(net, loss, find(theorem or system.default_theorem, system.name).id)
    if not certificate.holds or loss is None:
        failed = "; ".join(str(condition) for condition in certificate.conditions if not condition.holds)
        raise ValueError(f"there is nothing to certify: {failed}. {certificate.suggestion}")
    path = folder("directory", directory)
    with run_directory(path, resume=False):
        write_start(path, certificate, loss.arrays(), system.reduced(net, loss), {"format": FORMAT})
    return certificate


def _refuse() -> NoReturn:
    raise TypeError(
        "a learned inverse is not descended; net(A) inverts, net.fit(matrices) trains, sf.certify certifies"
    )


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
