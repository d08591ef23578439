"""What a step-size rule is, and the rules that ask nothing of a system; each system brings its own beside them."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from .brief import shown
from .certificate import Certificate
from .plans import PLANS
from .validate import positive, unknown


class StepRule(ABC):
    """Chooses the step size at each iterate.

    ``certified_by`` names the theorems under whose certificate every step of the rule carries the guarantee.

    Example:
        >>> class HalfPolyak(sf.extending.StepRule):
        ...     name, needs = "half-polyak", frozenset({"gradient_squared"})
        ...     def step(self, engine):
        ...         return engine.iterate.gap / engine.iterate.gradient_squared / 2
        >>> loss = sf.SquaredLoss(np.eye(2), np.ones((2, 1)))
        >>> net = sf.nn.TwoLayerLinear.gaussian(2, 1, width=4, seed=0)
        >>> sf.descend(net, loss, steps=HalfPolyak(), tolerance=1e-6).status.value
        'converged'
    """

    name: ClassVar[str]
    certified_by: ClassVar[frozenset[str]] = frozenset()
    needs: frozenset[str] = frozenset()
    """What ``step`` reads of the engine or its iterate, beyond the gap and the measurements: not every system has it."""

    def __repr__(self) -> str:
        own = {name: value for name, value in vars(self).items() if name[0] != "_" and name != "needs"}
        return f"{type(self).__name__}({', '.join(f'{name}={shown(value)}' for name, value in own.items())})"

    def require(self, engine: Any, system: str, rules: Iterable[str]) -> None:
        """Raise ``TypeError`` unless the engine or its iterate has what the rule needs; ``rules`` are those of the system."""
        has = {*vars(engine), *dir(type(engine)), *vars(engine.iterate), *dir(type(engine.iterate))}  # computes nothing
        missing = sorted(self.needs - has)
        if missing:
            raise TypeError(
                f"steps={self.name!r} needs {' and '.join(missing)} of an iterate, which system {system!r} has not; "
                f"use one of {', '.join(map(repr, rules))}"
            )

    def certifies(self, certificate: Certificate) -> bool:
        """Whether its steps satisfy the step conditions of this certificate's theorem."""
        return certificate.theorem in self.certified_by

    def start(self, loss: Any, certificate: Certificate | None) -> None:  # noqa: B027 - most rules remember nothing
        """Called once before the first step; forgets any earlier run."""

    def adopt(self, loss: Any, certificate: Certificate) -> None:
        """Follow a new certificate from the current iterate on, keeping what the rule has learned of the trajectory."""
        self.start(loss, certificate)

    @abstractmethod
    def step(self, engine: Any) -> float:
        """The step size at the engine's current iterate. Called once an iteration, in order."""

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps; ``restore`` continues from it exactly."""
        return {}

    def restore(self, state: dict[str, float]) -> None:  # noqa: B027 - see start
        """Continue from a checkpoint."""


def state_of(proposal: StepRule | None) -> dict[str, float]:
    """What a rule that safeguards another one keeps of that, under names of its own."""
    return {} if proposal is None else {f"proposal.{name}": value for name, value in proposal.state().items()}


def restore_proposal(proposal: StepRule | None, state: dict[str, float]) -> None:
    """Continue from what ``state_of`` has put into the state of the other rule."""
    if proposal is not None:
        own = {k.removeprefix("proposal."): v for k, v in state.items() if k.startswith("proposal.")}
        proposal.restore(own)


class Constant(StepRule):
    """The same step every time; guaranteed where it is that of a certificate whose theorem speaks of a constant step.

    Args:
        eta: the step, positive and finite.

    Raises:
        TypeError, ValueError: no such number.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> net = sf.nn.TwoLayerLinear.certifiable(loss, width=16)
        >>> eta = sf.certify(net, loss).step_size
        >>> sf.descend(net, loss, steps=sf.steps.Constant(eta)).certified  # ``steps=eta`` says the same
        True
    """

    name = "constant"

    def __init__(self, eta: float) -> None:
        self.eta = self._step = positive("eta", eta)

    def certifies(self, certificate: Certificate) -> bool:
        plan = PLANS.get(certificate.theorem)
        asked = plan is not None and plan.largest is not None
        if not certificate.schedule:  # along the run it is evaluated again for this very step
            return asked
        speaks = asked or certificate.rule == self.name
        return speaks and all(segment.step == self.eta for segment in certificate.schedule)

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        self._step = self.eta
        self._follows = certificate is not None and self.certifies(certificate)

    def adopt(self, loss: Any, certificate: Certificate) -> None:
        # a number of the caller's own stays: another certificate would not make the run a certified one
        if self._follows and certificate.step_size:
            self._step = certificate.step_size

    def step(self, engine: Any) -> float:
        return self._step


class BarzilaiBorwein(StepRule):
    """⟨s,s⟩/⟨s,y⟩ of the last step and the change of gradient (Barzilai and Borwein, 1988); a safe step first, and where the
    curvature is not positive. The gap need not fall at every step, and nothing is guaranteed: ``Certified`` adds that.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> start = lambda: sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0)
        >>> fast = sf.descend(start(), loss, steps=sf.steps.BarzilaiBorwein())
        >>> fast.iterations < sf.descend(start(), loss, steps=sf.steps.Contraction()).iterations, fast.certified
        (True, False)
    """

    name = "barzilai-borwein"
    needs = frozenset({"gradient_squared", "alignment", "safe_step"})

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        self._step = self._squared = 0.0

    def step(self, engine: Any) -> float:
        squared = engine.iterate.gradient_squared
        curvature = self._squared - engine.alignment
        usable = self._step > 0.0 and curvature > 0.0
        eta = self._step * self._squared / curvature if usable else engine.iterate.safe_step
        self.taken(eta, squared)
        return eta

    def taken(self, eta: float, squared: float) -> None:
        """Remember the step that was taken (a safeguard may have changed it) and ‖∇L‖² where it started."""
        self._step, self._squared = eta, squared

    def state(self) -> dict[str, float]:
        return {"step": self._step, "squared": self._squared}

    def restore(self, state: dict[str, float]) -> None:
        self._step, self._squared = state["step"], state["squared"]


class SafeguardedBB(StepRule):
    """Barzilai-Borwein steps that are shrunk until a test admits them, and at last replaced by a safe step. Goes before the rule
    of safe steps among the bases of a class."""

    needs = BarzilaiBorwein.needs | {"trial"}
    SHRINK = 0.7

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        self._proposal = BarzilaiBorwein()
        self._proposal.start(loss, certificate)
        self.adopt(loss, certificate)

    def adopt(self, loss: Any, certificate: Certificate | None) -> None:
        super().start(loss, certificate)
        self._taken = 0

    @abstractmethod
    def safe(self, engine: Any) -> float:
        """A step that needs no test."""

    @abstractmethod
    def admits(self, engine: Any, eta: float, safe: float) -> bool:
        """Whether a step above the safe one may be taken; it is the ``_taken``-th since the certificate."""

    def step(self, engine: Any) -> float:
        self._taken += 1
        safe, eta = self.safe(engine), self._proposal.step(engine)
        while max(safe, sys.float_info.min) < eta < math.inf:  # what is below cannot be shrunk for ever
            if self.admits(engine, eta, safe):
                break
            eta *= self.SHRINK
        else:
            eta = safe
        self._proposal.taken(eta, engine.iterate.gradient_squared)
        return eta

    def state(self) -> dict[str, float]:
        return {"taken": float(self._taken), **state_of(self._proposal)}

    def restore(self, state: dict[str, float]) -> None:
        self._taken = int(state["taken"])
        restore_proposal(self._proposal, state)


class Polyak(StepRule):
    """gap / ‖∇L‖² (Polyak, 1969), the gap over the least loss, which is known here. It is not halved, and nothing is guaranteed.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> run = sf.descend(sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0), loss, steps=sf.steps.Polyak())
        >>> run.status.value, run.certified  # no constant had to be known: the least loss is
        ('converged', False)
    """

    name = "polyak"
    needs = frozenset({"gradient_squared"})

    def step(self, engine: Any) -> float:
        iterate = engine.iterate
        return iterate.gap / iterate.gradient_squared if iterate.gradient_squared > 0.0 else 0.0


class Backtracking(StepRule):
    """Armijo: from ``initial`` (or the last step over ``shrink`` with ``warm_start``) shrink until the gap falls by
    decrease·η‖∇L‖². The paper's Algorithm 1 leaves the factor η out and never ends (erratum); its τ is 0.1.

    Args:
        initial: the step that is tried first, positive.
        shrink: the factor by which it shrinks, between 0 and 1.
        decrease: the part of the predicted decrease that is enough, between 0 and 1.
        warm_start: whether an iteration begins with the last step over ``shrink``.

    Raises:
        ValueError: a number out of range.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> net = sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0)
        >>> run = sf.descend(net, loss, steps=sf.steps.Backtracking(shrink=0.5, warm_start=True), tolerance=1e-6)
        >>> run.status.value, run.certified  # no step had to be chosen, and none is guaranteed
        ('converged', False)
    """

    name = "backtracking"
    needs = frozenset({"gradient_squared", "trial"})

    def __init__(
        self, initial: float = 1.0, shrink: float = 0.1, decrease: float = 0.5, warm_start: bool = False
    ) -> None:
        if not initial > 0.0 or not 0.0 < shrink < 1.0 or not 0.0 < decrease < 1.0:
            raise ValueError(
                f"initial is {initial!r}, shrink {shrink!r} and decrease {decrease!r}; backtracking needs initial > 0 and the "
                "other two strictly between 0 and 1"
            )
        self.initial, self.shrink, self.decrease, self.warm_start = initial, shrink, decrease, warm_start

    def start(self, loss: Any, certificate: Certificate | None) -> None:
        self._last = self.initial

    def step(self, engine: Any) -> float:
        iterate = engine.iterate
        eta = self._last / self.shrink if self.warm_start else self.initial
        while eta > 0.0 and not iterate.trial(eta) <= iterate.gap - self.decrease * eta * iterate.gradient_squared:
            eta *= self.shrink
        self._last = eta or self.initial
        return eta

    def state(self) -> dict[str, float]:
        return {"last": self._last}

    def restore(self, state: dict[str, float]) -> None:
        self._last = state["last"]


SHARED_RULES: Mapping[str, type[StepRule]] = {
    rule.name: rule for rule in (BarzilaiBorwein, Polyak, Backtracking, Constant)
}
"""The rules that are no system's own, by name; each says what it needs of an iterate."""


def armijo_from_polyak(iterate: Any) -> float:
    """A step that lowers the gap by η‖∇‖²/2 at least: Polyak's, doubled, and halved until it does (Armijo)."""
    if iterate.gradient_squared == 0.0:
        return 0.0
    eta = 2.0 * iterate.gap / iterate.gradient_squared
    while eta > 0.0 and not iterate.trial(eta) <= iterate.gap - 0.5 * eta * iterate.gradient_squared:
        eta *= 0.5
    return eta


def constant_of(steps: StepRule | str | float | None) -> float | None:
    """The number, of ``descend``'s argument, that is the constant step; ``None`` for any other rule.

    Raises:
        ValueError: a number that is not positive and finite.
    """
    if isinstance(steps, Constant):
        return steps.eta
    return None if isinstance(steps, StepRule | str | None) else positive("steps", steps)


def make(
    steps: StepRule | str | float,
    certificate: Certificate | None,
    rules: Mapping[str, type[StepRule]],
) -> StepRule:
    """A rule from an object, a name among ``rules``, or a number: a constant step, which by name is that of the certificate."""
    if isinstance(steps, StepRule):
        return steps
    if isinstance(steps, bool):
        raise TypeError("steps is a bool; pass a rule, its name, or a positive number")
    if isinstance(steps, float | int):
        return Constant(float(steps))
    if steps == Constant.name:
        if certificate is not None and certificate.rule == steps and certificate.step_size:
            return Constant(certificate.step_size)
        raise ValueError("steps='constant' needs its step; pass the number itself, for example steps=0.01")
    if steps not in rules:
        raise unknown("step rule", steps, rules)
    return rules[steps]()
