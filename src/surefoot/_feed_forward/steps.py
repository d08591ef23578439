"""Step-size rules of feed-forward networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from surefoot_check.feed_forward import exact_fit, local, minimum

from .._core.audit import noise
from .._core.certificate import Certificate
from .._core.engine import Weights
from .._core.steps import SHARED_RULES, SafeguardedBB, StepRule
from .directions import PseudoInverse, parted
from .engine import Engine, Fit, Iterate, Stationary, inner
from .planner import STATES


class Floor(StepRule):
    """The floor step of the certificate: 1/b² with b ≥ ‖J‖ where the run stays, 2/(M + m0) for a minimum. Armijo's rule while no
    certificate holds.

    In exact arithmetic its gap is under the bound. Where rounding alone puts it above, the run ends.
    """

    name = "floor"
    needs = frozenset({"safe_step", "trial"})
    certified_by = frozenset(STATES)

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        followed = certificate is not None and certificate.holds and self.certifies(certificate)
        self._certificate = certificate if followed else None
        self._taken = 0

    def step(self, engine: Engine) -> float:
        self._taken += 1
        return self.safe(engine) if self._certificate is None else self.floor(engine, self._certificate)

    def safe(self, engine: Engine) -> float:
        """A step that needs no test in exact arithmetic."""
        return engine.iterate.safe_step if self._certificate is None else self._certificate.quantities["eta"]

    def floor(self, engine: Engine, certificate: Certificate) -> float:
        """The floor step, or 0 where rounding puts it above the bound."""
        eta, goal = certificate.quantities["eta"], certificate.bound(self._taken)
        gap = engine.iterate.trial(eta)
        return 0.0 if goal < gap <= goal + noise(gap, engine.resolution) else eta

    def state(self) -> dict[str, float]:
        return {"taken": float(self._taken)}

    def restore(self, state: dict[str, float]) -> None:
        self._taken = int(state["taken"])


def admitted(certificate: Certificate, iterate: Iterate, eta: float, taken: int) -> bool:
    """Whether the state after a step η, one of so many, passes the test of the certificate."""
    q, theorem = certificate.quantities, STATES[certificate.theorem]
    distance = iterate.distance_after(eta)
    if not distance <= q["ball"]:  # before the network is evaluated
        return False
    gap = iterate.trial(eta)
    return gap <= certificate.bound(taken) and bool(theorem.potential(q, gap, distance) <= q[theorem.start])


class CertifiedBB(SafeguardedBB, Floor):
    """Barzilai-Borwein steps under the certificate; the default.

    A proposal is taken if it ends in the ball, with V at most what it is at the start and with a gap that the certificate
    guarantees for that iteration; it is shrunk by 0.7 otherwise, and at last replaced by the floor step.
    """

    name = "certified-bb"
    needs = SafeguardedBB.needs | Floor.needs | {"distance_after"}

    def step(self, engine: Engine) -> float:
        eta, certificate = super().step(engine), self._certificate
        if certificate is None or eta != certificate.quantities["eta"]:
            return eta
        return self.floor(engine, certificate)

    def safe(self, engine: Engine) -> float:
        return Floor.safe(self, engine)

    def admits(self, engine: Engine, eta: float, safe: float) -> bool:
        return self._certificate is not None and admitted(self._certificate, engine.iterate, eta, self._taken)


class Turned(Floor):
    """Full steps against another direction than the gradient, halved until they are good enough; the step is the part taken.

    Under a certificate that holds, a step is good enough that passes its test, and the last resort is the floor step. Without
    one there is none: where no step helps, the run ends.
    """

    needs = Floor.needs | {"turn", "distance_after"}
    SHORTEST = 2.0**-30

    def step(self, engine: Engine) -> float:
        self._taken += 1
        engine.turn(self.direction(engine))
        eta = 1.0
        while eta >= self.SHORTEST:
            if self._helps(engine.iterate, eta):
                return eta
            eta *= 0.5
        engine.turn(None)
        return 0.0 if self._certificate is None else self.floor(engine, self._certificate)

    def _helps(self, iterate: Any, eta: float) -> bool:
        if self._certificate is not None:
            return admitted(self._certificate, iterate, eta, self._taken)
        return self.improves(iterate, eta)

    @abstractmethod
    def direction(self, engine: Engine) -> Weights:
        """What steps are taken against."""

    @abstractmethod
    def improves(self, iterate: Any, eta: float) -> bool:
        """Whether a step is good enough where nothing is certified."""


class GaussNewton(Turned):
    """Steps J⁺r, of least norm, to the fit of the linear model; halved until the residual falls. A finish of a few steps.

    Where J has no full row rank, J⁺r is the least-squares step.
    """

    name = "gauss-newton"
    certified_by = frozenset({local.THEOREM.id})

    def require(self, engine: Any, system: str, rules: Iterable[str]) -> None:
        super().require(engine, system, rules)
        if not isinstance(engine.iterate, Fit):
            raise TypeError(
                f"steps={self.name!r} needs a loss with an exact fit, sf.SquaredLoss(X, Y); of this training objective "
                f"use steps={Newton.name!r}"
            )
        n, p = engine.iterate.loss.merged[1].numel(), parameters(engine)
        if n > p:
            raise ValueError(
                f"steps={self.name!r} needs at most as many outputs (rows times outputs of a row) as trained numbers, here {n} "
                f"and {p}: there is no exact fit; minimise sf.TorchLoss(nn.MSELoss(), X, Y, weight_decay) by "
                f"steps={Newton.name!r}"
            )

    def direction(self, engine: Any) -> Weights:
        return engine.iterate.gauss_newton

    def improves(self, iterate: Any, eta: float) -> bool:
        return iterate.trial(eta) < iterate.gap


class SimplifiedNewton(GaussNewton):
    """Steps J_0⁺r with the Jacobian of the weights where the run began: the iteration of ``feed-forward/exact-fit``, whose
    certificate makes every step a full one."""

    name = "simplified-newton"
    certified_by = frozenset({exact_fit.THEOREM.id})

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        super().start(loss, certificate)
        self._inverse: PseudoInverse | None = None

    def step(self, engine: Engine) -> float:
        if self._certificate is None:
            return super().step(engine)
        engine.turn(self.direction(engine))
        return 1.0

    def direction(self, engine: Any) -> Weights:
        if self._inverse is None:
            self._inverse = PseudoInverse.at(engine.iterate.loss, engine.start)
        return parted(self._inverse(engine.iterate.residual), engine.iterate.at)


class Newton(Turned):
    """Steps |H|⁻¹∇L, which leave saddles; halved until the objective falls (Armijo), or the gradient where rounding is all that
    moves the objective. A finish of a few steps."""

    name = "newton"
    certified_by = frozenset({minimum.THEOREM.id})
    LARGEST = 5000
    ARMIJO = 1e-4
    STILL = 0.5

    def require(self, engine: Any, system: str, rules: Iterable[str]) -> None:
        super().require(engine, system, rules)
        if not isinstance(engine.iterate, Stationary):
            raise TypeError(
                f"steps={self.name!r} needs a training objective: pass sf.TorchLoss(criterion, X, targets, weight_decay); to an "
                f"exact fit of sf.SquaredLoss(X, Y) goes steps={GaussNewton.name!r}"
            )
        if parameters(engine) > self.LARGEST:
            raise ValueError(
                f"net has {parameters(engine)} trained numbers; Newton's method takes at most {self.LARGEST}"
            )

    def direction(self, engine: Any) -> Weights:
        return engine.iterate.newton

    def improves(self, iterate: Any, eta: float) -> bool:
        here, there, fall = iterate.value, iterate.after(eta), inner(iterate.direction, iterate.gradient)
        still = there.value <= here + 1e-12 * abs(here)
        if still and there.gradient_squared <= self.STILL * self.STILL * iterate.gradient_squared:
            return True
        return there.value <= here - self.ARMIJO * eta * fall and there.value < here * (1.0 - 1e-14)


def parameters(engine: Engine) -> int:
    """How many numbers are trained."""
    return sum(weight.numel() for weight in engine.iterate.at.values())


RULES: dict[str, type[StepRule]] = {
    **{rule.name: rule for rule in (CertifiedBB, Floor, GaussNewton, SimplifiedNewton, Newton)},
    **SHARED_RULES,
}
