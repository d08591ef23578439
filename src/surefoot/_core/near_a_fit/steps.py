"""Step rules under theorems about states, and the finishes that go further than the gradient."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from surefoot_check.near_a_fit.exact_fit import ExactFit
from surefoot_check.near_a_fit.local import Local
from surefoot_check.near_a_fit.state import StateTheorem
from surefoot_check.statement import Theorem

from ..audit import noise
from ..certificate import Certificate
from ..plans import PLANS
from ..steps import SafeguardedBB, StepRule
from .planner import about_states
from .pseudo_inverse import PseudoInverse


class _OfKind:
    """The ids of the theorems of one kind, of all systems that are known when it is asked for."""

    def __init__(self, kind: type[Theorem]) -> None:
        self._kind = kind

    def __get__(self, rule: object, owner: type) -> frozenset[str]:
        return frozenset(name for name, plan in PLANS.items() if isinstance(plan.theorem, self._kind))


def _theorems(kind: type[Theorem]) -> Any:
    """A ``certified_by`` that names no system."""
    return _OfKind(kind)


class Floor(StepRule):
    """The floor step of the certificate: 1/b² with b ≥ ‖J‖ where the run stays, 2/(M + m0) for a minimum. Armijo's rule while no
    certificate holds.

    In exact arithmetic its gap is under the bound. Where rounding alone puts it above, the run ends.
    """

    name = "floor"
    needs = frozenset({"safe_step", "trial"})
    certified_by: ClassVar[frozenset[str]] = _theorems(StateTheorem)

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        followed = certificate is not None and certificate.holds and self.certifies(certificate)
        self._certificate = certificate if followed else None
        self._taken = 0

    def step(self, engine: Any) -> float:
        self._taken += 1
        return self.safe(engine) if self._certificate is None else self.floor(engine, self._certificate)

    def safe(self, engine: Any) -> float:
        """A step that needs no test in exact arithmetic."""
        return engine.iterate.safe_step if self._certificate is None else self._certificate.quantities["eta"]

    def floor(self, engine: Any, certificate: Certificate) -> float:
        """The floor step, or 0 where rounding puts it above the bound."""
        eta, goal = certificate.quantities["eta"], certificate.bound(self._taken)
        gap = engine.iterate.trial(eta)
        return 0.0 if goal < gap <= goal + noise(gap, engine.resolution) else eta

    def state(self) -> dict[str, float]:
        return {"taken": float(self._taken)}

    def restore(self, state: dict[str, float]) -> None:
        self._taken = int(state["taken"])


def admitted(certificate: Certificate, iterate: Any, eta: float, taken: int) -> bool:
    """Whether the state after a step η, one of so many, passes the test of the certificate."""
    q, theorem = certificate.quantities, about_states(certificate.theorem)
    assert theorem is not None
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

    def step(self, engine: Any) -> float:
        eta, certificate = super().step(engine), self._certificate
        if certificate is None or eta != certificate.quantities["eta"]:
            return eta
        return self.floor(engine, certificate)

    def safe(self, engine: Any) -> float:
        return Floor.safe(self, engine)

    def admits(self, engine: Any, eta: float, safe: float) -> bool:
        return self._certificate is not None and admitted(self._certificate, engine.iterate, eta, self._taken)


class Turned(Floor):
    """Full steps against another direction than the gradient, halved until they are good enough; the step is the part taken.

    Under a certificate that holds, a step is good enough that passes its test, and the last resort is the floor step. Without
    one there is none: where no step helps, the run ends.
    """

    needs = Floor.needs | {"turn", "distance_after"}
    SHORTEST = 2.0**-30

    def step(self, engine: Any) -> float:
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
    def direction(self, engine: Any) -> Any:
        """What steps are taken against, as ``engine.turn`` takes it."""

    @abstractmethod
    def improves(self, iterate: Any, eta: float) -> bool:
        """Whether a step is good enough where nothing is certified."""


class GaussNewton(Turned):
    """Steps J⁺r, of least norm, to the fit of the linear model; halved until the residual falls. A finish of a few steps.

    Where J has no full row rank, J⁺r is the least-squares step. Under a certificate of a theorem about a fit nearby every
    step must pass its test. ``sf.descend`` raises ``TypeError`` where the network or the loss has no such fit, and ``ValueError``
    for more outputs, of all rows, than trained numbers.

    Example:
        >>> X = torch.randn(5, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1).sin())
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
        >>> run = sf.descend(net, loss, steps=sf.steps.GaussNewton())
        >>> run.iterations < 20, sf.certify(net, loss).holds  # a few steps to where a certificate holds
        (True, True)
    """

    name = "gauss-newton"
    needs = Turned.needs | {"require_fit"}
    certified_by: ClassVar[frozenset[str]] = _theorems(Local)

    def require(self, engine: Any, system: str, rules: Iterable[str]) -> None:
        super().require(engine, system, rules)
        engine.require_fit(self.name)

    def direction(self, engine: Any) -> Any:
        return engine.iterate.newton_step(engine.iterate.inverse)

    def improves(self, iterate: Any, eta: float) -> bool:
        return iterate.trial(eta) < iterate.gap


class SimplifiedNewton(GaussNewton):
    """Steps J_0⁺r with the Jacobian of the weights where the certificate begins: the iteration of the theorems on the existence
    of a fit, under which every step is a full one.

    Example:
        >>> X = torch.randn(5, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1).sin())
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
        >>> _ = sf.descend(net, loss, steps=sf.steps.GaussNewton(), tolerance=1e-8)  # to where the theorem speaks
        >>> certificate = sf.certify(net, loss, "feed-forward/exact-fit")
        >>> sf.descend(net, loss, steps=sf.steps.SimplifiedNewton(), certificate=certificate).certified
        True
    """

    name = "simplified-newton"
    certified_by: ClassVar[frozenset[str]] = _theorems(ExactFit)

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        super().start(loss, certificate)
        self._inverse: PseudoInverse | None = None

    def step(self, engine: Any) -> float:
        if self._certificate is None:
            return super().step(engine)
        engine.turn(self.direction(engine))
        return 1.0

    def direction(self, engine: Any) -> Any:
        if self._inverse is None:
            self._inverse = engine.inverse_at_start()
        return engine.iterate.newton_step(self._inverse)
