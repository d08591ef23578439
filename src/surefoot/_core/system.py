"""What a system says of itself: abstract classes by what it can do. What it cannot do it does not have."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar, final

import torch
from torch import Tensor, nn

from surefoot_check.statement import Theorem

from .audit import Audit, Rows
from .brief import brief
from .certificate import Certificate, Condition, digests
from .draws import Drawing
from .engine import Engine, WeightsEngine
from .evaluation import conclude, evaluate
from .losses import LinearMapLoss, Loss
from .plans import LIMIT, OWN_STEP, Plan
from .schedule import iterations_to
from .steps import SHARED_RULES, Constant, StepRule, make
from .validate import kind_of, unknown
from .words import Words

CANNOT = {
    "certify": "has no theorems, so there is nothing to certify",
    "descend": "descends no iterates; sf.certify certifies its networks",
    "trace": "records no loops of one's own; sf.descend(net, loss) records its iterations",
    "certify_every": "certifies no iterates along a run; leave certify_every out",
}
"""What is said where a system's words have nothing better."""

Net = TypeVar("Net")
P = TypeVar("P", bound=Loss)


@dataclass(frozen=True)
class Measured:
    """What a theorem is evaluated at.

    Attributes:
        published: the measured quantities as published; the theorem takes those that are its base.
        sizes: of network and problem, as the certificate states them.
        choices: choices to try, beyond those that the theorem makes.
        missing: where something has no bound, the condition that says so; nothing is evaluated then.

    Example:
        >>> positive = sf.extending.Condition("mu > 0", 0.0, ">", 0.0, False, None)
        >>> found = sf.extending.Measured({"smoothness": 4.0}, {"n": 3}, missing=positive)
        >>> print(found.missing)  # the certificate fails with it, instead of an error
        FAILS: mu > 0  [0 > 0]
    """

    published: Mapping[str, float]
    sizes: Mapping[str, int | bool]
    choices: Sequence[Mapping[str, float]] = ({},)
    missing: Condition | None = None

    __repr__ = brief


class System(ABC):
    """One kind of network: its name, its words, and where the program finds its command.

    Attributes:
        name: also the part of its theorems' ids before the slash, and what the command line calls it.
        network_name: the class of its networks, as users write it.
        words: what reports and screens say of it.
        command: the module of its commands ``certify`` and ``train``; only the program imports it.
        report: the module of its own part of reports, with ``part(facts)``; only reports import it.
        tour: the module of its part of the tour that ``surefoot demo`` takes, with ``STOPS``; only the program imports it.
        checker: the module with which its runs are checked, where the checker has to be told: ``surefoot-check --system``.
        no_trajectory: of what the program trains without a trajectory that a theorem speaks of: what its directory has instead.
            Empty where there is one.
        formats: other formats of config.json that it writes, each with what its directory has and what to do with it.

    Example:
        >>> class Mine(sf.extending.System):  # without theorems so far
        ...     name, network_name = "mine", "MyNet"
        ...     words = sf.extending.Words(instead={"certify": "of MyNet nothing is proved yet"})
        >>> Mine().refusal("certify")
        'of MyNet nothing is proved yet'
        >>> Mine().refusal("trace")
        "system 'mine' records no loops of one's own; sf.descend(net, loss) records its iterations"
    """

    name: ClassVar[str]
    network_name: ClassVar[str]
    words: ClassVar[Words]
    command: ClassVar[str | None] = None
    report: ClassVar[str | None] = None
    tour: ClassVar[str | None] = None
    checker: ClassVar[str | None] = None
    no_trajectory: ClassVar[str] = ""
    formats: ClassVar[Mapping[str, str]] = {}

    @final
    def checked(self, directory: str) -> str:
        """What follows ``surefoot check`` or ``surefoot-check`` for a run of it."""
        return directory if self.checker is None else f"{directory} --system {self.checker}"

    @final
    def refusal(self, what: str) -> str:
        """Why it cannot do that ("certify", "descend", "trace" or "certify_every"), and what to do instead."""
        return self.words.instead.get(what, f"system {self.name!r} {CANNOT[what]}")


class Certifiable(System, Generic[Net, P]):
    """A system with theorems on networks ``Net`` and problems ``P``.

    Attributes:
        network: the class of its networks.
        plans: its theorems, in the order in which they are listed.
        default_theorem: what is certified where nothing is asked for.
        aim: relative gap whose guaranteed count decides between admissible choices.
        given: what ``sf.certify`` takes by name for it, beside or in place of a loss.

    Example:
        >>> sorted(sf.extending.Certifiable.__abstractmethods__)  # docs/extending.md has one
        ['measured', 'problem', 'rebuild', 'reduced']
    """

    network: type[Net]
    plans: ClassVar[Sequence[Plan]]
    default_theorem: ClassVar[str]
    aim: ClassVar[float] = 1e-6
    given: ClassVar[tuple[str, ...]] = ()

    def linear_layers(self, net: Net) -> Sequence[Tensor]:
        """Where a network of plain modules is a product of linear maps, the weights themselves (outputs, inputs) of each, all
        trained, in float64: another system may say more of it. Empty where it is not."""
        return ()

    def of_linear_layers(self, layers: Sequence[Tensor]) -> Net | None:
        """The network of this system that has these weights as its own, not copies; ``None`` where there is none."""
        return None

    @abstractmethod
    def problem(self, net: Net, loss: Any) -> P:
        """The loss as this system works with it; ``TypeError`` for a kind of loss that it cannot minimise."""

    @final
    def certify(self, net: Net, loss: P, theorem: str, step: float | None = None) -> Certificate:
        """Evaluate a theorem at the network's current weights; never raises because a hypothesis fails.

        Where several choices are admissible, it is that with the fewest guaranteed iterations to ``aim``. With a step it is the
        guarantee for that constant step; the theorem is one of ``of_constant_steps``.
        """
        statement = self.stands_for(self.theorem(theorem), loss)
        measured = (
            self.measured(net, loss, statement) if step is None else self.measured_for_step(net, loss, statement, step)
        )
        base = {name: measured.published[name] for name in statement.base if name in measured.published}
        if measured.missing is None:
            tried = [evaluate(statement, {**base, **choices, **measured.sizes}) for choices in measured.choices]
            best = min(tried, key=lambda it: iterations_to(it[2], self.aim) if it[2] else math.inf)
            quantities, conditions, schedule = best[0], [Condition.of(inequality) for inequality in best[1]], best[2]
        else:
            quantities, conditions, schedule = base, [measured.missing], []
        failed = [condition.name for condition in conditions if not condition.holds]
        if failed == [LIMIT]:
            suggestion = f"step={_below(conditions[-1].right)}, and every smaller one, is certified"
        else:
            suggestion = self.suggestion(net, loss, statement, measured, failed, quantities)
        certificate = conclude(
            statement,
            quantities,
            conditions,
            schedule,
            problem={"kind": loss.reduced.kind, **measured.sizes},
            arrays=digests(loss.reduced.arrays(), self.reduced(net, loss)),
            optimal_value=float(loss.optimal_value),
            suggestion=suggestion,
        )
        return self.judged(certificate if step is None else replace(certificate, rule=Constant.name))

    def of_constant_steps(self) -> Sequence[str]:
        """The ids of its theorems that may be asked about a constant step of one's own."""
        return [plan.theorem.id for plan in self.plans if plan.largest is not None]

    def theorems(self) -> Mapping[str, Theorem]:
        """Its theorems by id, in the order in which they are listed."""
        return {plan.theorem.id: plan.theorem for plan in self.plans}

    @final
    def theorem(self, name: str | None) -> Theorem:
        """The theorem of that id, or the default one; ``ValueError`` with the nearest id otherwise."""
        known, wanted = self.theorems(), name or self.default_theorem
        if wanted not in known:
            raise unknown("theorem", wanted, list(known))
        return known[wanted]

    def usual(self, loss: P) -> tuple[Theorem, str]:
        """The theorem where none is named, and why it is that one where it depends on the problem."""
        return self.theorem(None), ""

    def certify_usual(self, net: Net, loss: P) -> tuple[Certificate, str]:
        """The certificate where no theorem is named, and why it is of its theorem where that depends on network or problem."""
        theorem, why = self.usual(loss)
        return self.certify(net, loss, theorem.id), why

    def stands_for(self, theorem: Theorem, loss: P) -> Theorem:
        """The theorem that a name means for this problem; ``ValueError`` for one that gives no certificate."""
        return theorem

    @abstractmethod
    def measured(self, net: Net, loss: P, theorem: Theorem) -> Measured:
        """What the theorem is evaluated at."""

    def measured_for_step(self, net: Net, loss: P, theorem: Theorem, step: float) -> Measured:
        """The same for a constant step of one's own, which is among the choices."""
        measured = self.measured(net, loss, theorem)
        return replace(measured, choices=[{**choices, OWN_STEP: step} for choices in measured.choices])

    def suggestion(
        self,
        net: Net,
        loss: P,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """What would make the theorem hold, of whose hypotheses these ``failed``, or whose numbers are not usable. Empty where
        there is nothing to say."""
        return ""

    def judged(self, certificate: Certificate) -> Certificate:
        """The certificate with what is to be said of a theorem as printed."""
        return certificate

    def advice(self, net: Net, loss: P, certificate: Certificate) -> str:
        """Why a certificate that holds guarantees a count of no practical use, as measured, and what lowers it."""
        return ""

    @abstractmethod
    def reduced(self, net: Net, loss: P) -> dict[str, Tensor]:
        """Copies of the weights that the certificate speaks of."""

    @abstractmethod
    def rebuild(self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> tuple[Net, P]:
        """The (reduced) network and problem from the arrays of a run directory."""


class Descendable(Certifiable[Net, P]):
    """A system whose iterates ``sf.descend`` moves, and whose traces can be audited.

    Attributes:
        rules: its step rules by name; by default those that are no system's own.
        engines: names of its engines; by default that of the shared one.
        fixed: names of those of its (reduced) weights that are not trained; ``None`` where iterates are no weights of a network.

    Example:
        >>> certifiable = sf.extending.Certifiable.__abstractmethods__
        >>> sorted(sf.extending.Descendable.__abstractmethods__ - certifiable)  # beyond that
        ['audit', 'engine', 'resolution', 'write']
    """

    rules: ClassVar[Mapping[str, type[StepRule]]] = SHARED_RULES
    engines: ClassVar[tuple[str, ...]] = (WeightsEngine.name,)
    fixed: ClassVar[frozenset[str] | None] = None

    def rule(self, steps: StepRule | str | float | None, certificate: Certificate) -> StepRule:
        """The step rule for ``descend``'s argument; that of the certificate by default."""
        return make(certificate.rule if steps is None else steps, certificate, self.rules)

    @abstractmethod
    def engine(self, net: Net, loss: P, name: str) -> Engine:
        """An engine at the network's current weights; ``name`` is one of ``engines``, or "auto"."""

    @abstractmethod
    def write(self, net: Net, loss: P, weights: Mapping[str, Tensor]) -> None:
        """Put (reduced) weights back into the network."""

    @abstractmethod
    def resolution(self, net: Net, loss: P) -> float:
        """The gap that rounding alone can cause at the network's weights: smaller values are noise."""

    @abstractmethod
    def audit(self, trace: Rows, certificate: Certificate, resolution: float) -> Audit:
        """Check every inequality of the certificate's theorem along a trace."""


class Recordable(Descendable[Net, P]):
    """A system whose networks are trained: ``sf.Trace`` records loops of one's own, ``certify_every`` certifies iterates.

    Example:
        >>> descendable = sf.extending.Descendable.__abstractmethods__
        >>> sorted(sf.extending.Recordable.__abstractmethods__ - descendable)  # beyond that
        ['at', 'gradient', 'measure', 'recorded']
    """

    fixed = frozenset()

    @abstractmethod
    def at(self, net: Net, weights: Mapping[str, Tensor]) -> Net:
        """A new reduced network of the kind of ``net`` at these (reduced) weights."""

    @abstractmethod
    def measure(self, net: Net, loss: P) -> dict[str, float]:
        """What a trace records at the network's current weights."""

    @abstractmethod
    def recorded(self, net: Net, loss: P) -> dict[str, Tensor]:
        """Copies of the network's own weights, which a trace compares from row to row: the trained ones, none left out by a
        reduction, and those that must stay as they are."""

    def measure_step(self, net: Net, loss: P, before: Mapping[str, Tensor], step: float) -> dict[str, float]:
        """What a trace records of the step that led to the current weights from those ``recorded`` a row earlier, where the audit
        asks for it."""
        return {}

    def measure_since(self, net: Net, loss: P, first: Mapping[str, Tensor]) -> dict[str, float]:
        """What a trace records that compares the current weights with those ``recorded`` in its first row."""
        return {}

    @abstractmethod
    def gradient(self, net: Net, loss: P) -> dict[str, Tensor]:
        """The gradient of the loss in those recorded weights that are trained."""


class Stochastic(Descendable[Net, P]):
    """A system with a theorem on mini-batches.

    Attributes:
        of_batches: its id.
    """

    of_batches: ClassVar[str]

    @abstractmethod
    def drawn(self, net: Net, X: Any, Y: Any, drawing: Drawing) -> P:
        """The squared loss of rows X and targets Y, or the loss X where Y is ``None``, of whose rows batches are drawn.

        Raises:
            TypeError, ValueError: bad data, or a loss that is not of this kind.
        """

    def speaks_of(self, theorem: Theorem, draws: bool) -> None:
        """Raise ``ValueError`` for a theorem on mini-batches where none are drawn, or on the full gradient where they are."""
        of_batches = theorem.id == self.of_batches
        if of_batches != draws:
            of = (
                "mini-batches: use sf.sgd.certify(net, X, Y, batch_size)"
                if of_batches
                else f"the full gradient: leave the batches out, or use {self.of_batches}, which chooses the step itself"
            )
            raise ValueError(f"{theorem.id} is of {of}")


class Watchable(Descendable[Net, P]):
    """A system with theorems about states, however they were reached, which ``sf.watch`` evaluates along a training."""

    @abstractmethod
    def watched(self, loss: P) -> Theorem:
        """The theorem that is evaluated."""

    @abstractmethod
    def features(self, net: Net, loss: P) -> Sequence[Tensor]:
        """Those of each hidden layer on all rows of the loss, at the network's current weights."""

    def restrain(self, net: Net) -> None:
        """Bring the network back to where it is defined, after a step of an optimiser that knows nothing of that."""

    @abstractmethod
    def objective(self, net: Net, loss: P) -> Tensor:
        """What the training minimises less its least value, a scalar with derivatives in the network's own parameters."""

    def value(self, net: Net, loss: P) -> float:
        """The same as a number; infinite where a training has left what the network is defined on."""
        with torch.no_grad():
            return float(self.objective(net, loss))


def _below(limit: float) -> str:
    """A number of four digits just below a positive one."""
    return f"{limit * (1.0 - 5e-4):.4g}"


AnyCertifiable = Certifiable[Any, Any]
AnyDescendable = Descendable[Any, Any]
AnyRecordable = Recordable[Any, Any]
AnyWatchable = Watchable[Any, Any]

PRODUCT_ROUNDING = 16 * torch.finfo(torch.float64).eps
"""Relative error, in Frobenius norm, granted to a product of layers against the product of their spectral norms."""


def linear_map(loss: Loss) -> LinearMapLoss:
    """The loss, for a system whose networks are linear maps.

    Raises:
        TypeError: it is no ``LinearMapLoss``.

    Example:
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> sf.extending.linear_map(sf.SquaredLoss(X, X)).smoothness  # the K of theorems
        1.0
        >>> sf.extending.linear_map(sf.extending.SampleLoss(X, X))
        Traceback (most recent call last):
        TypeError: loss is a SampleLoss; ...
    """
    if isinstance(loss, nn.modules.loss._Loss):
        raise TypeError(
            f"loss is {kind_of(loss)}, which has no data; pass a loss of sf, for example sf.SquaredLoss(X, Y)"
        )
    if not isinstance(loss, LinearMapLoss):
        raise TypeError(f"loss is {kind_of(loss)}; pass a loss, for example sf.SquaredLoss(X, Y)")
    return loss


def map_resolution(loss: LinearMapLoss, scale: float) -> float:
    """The gap that rounding can cause near W*, and by a product of layers whose spectral norms have the product ``scale``.

    Args:
        loss: of the product.
        scale: at least 0; for a single layer its norm.

    Example:
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X)
        >>> sf.extending.map_resolution(loss, scale=1.0) < 1e-25  # smaller gaps are rounding
        True
    """
    error = PRODUCT_ROUNDING * scale
    return max(loss.gap_resolution, 0.5 * loss.smoothness * error * error)
