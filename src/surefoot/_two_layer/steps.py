"""Step-size rules of two-layer linear networks."""

from __future__ import annotations

import math

import numpy as np

from surefoot_check.two_layer import prescribed

from .._core.certificate import Certificate
from .._core.losses import LinearMapLoss
from .._core.steps import Backtracking, BarzilaiBorwein, Constant, Polyak, StepRule, restore_proposal, state_of
from . import planner
from .engines import Engine
from .floor import Budget, Floor, floor, keeps_budget
from .iterate import Measurable, Quartic

DRIFT = frozenset({"two-layer/drift", "two-layer/contraction", "two-layer/sharp"})
PAPER = frozenset({"two-layer/corrected"})


class Local(StepRule):
    """The root of η K_t(η) = 1 with the paper's local smoothness, uncapped (Theorem 3.1). Without the cap nothing is guaranteed.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> run = sf.descend(sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0), loss, steps=sf.steps.Local())
        >>> run.status.value, run.certified  # the paper's step, without its cap
        ('converged', False)
    """

    name = "local"
    needs = frozenset({"printed"})

    def step(self, engine: Engine) -> float:
        return planner.cubic_root(*engine.iterate.printed)


class PaperRho(StepRule):
    """min((1+η0^d)^(t/2) η0, 1/K_t): equation (19) of the paper with h = ρ, needs its (corrected) certificate.

    ``sf.descend`` raises ``ValueError`` without one of ``two-layer/corrected``, or as printed, with a positive first step.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss, theorem = sf.SquaredLoss(X, X.sum(1)), "two-layer/corrected"
        >>> net = sf.nn.TwoLayerLinear.certifiable(loss, width=16, theorem=theorem)
        >>> run = sf.descend(net, loss, steps=sf.steps.PaperRho(), certificate=sf.certify(net, loss, theorem=theorem))
        >>> run.certified, run.step_sizes[-1] > run.step_sizes[0]  # the steps may grow
        (True, True)
    """

    name = "paper-rho"
    needs = frozenset({"printed"})
    certified_by = PAPER

    def start(self, loss: LinearMapLoss, certificate: Certificate | None) -> None:
        if (
            certificate is None
            or not certificate.quantities.get("initial_step", 0.0) > 0.0
            or "c" not in certificate.quantities
        ):
            raise ValueError(
                f"steps={self.name!r} needs a certificate of 'two-layer/corrected' (or as printed) with a positive "
                "first step; call certify(net, loss, theorem='two-layer/corrected') and see its suggestion"
            )
        self._q = certificate.quantities
        self._t = 0

    def step(self, engine: Engine) -> float:
        t = self._t
        self._t += 1
        return min(planner.step_cap(self._q, t), self._limit(engine.iterate, t))

    def _limit(self, iterate: Measurable, t: int) -> float:
        return planner.cubic_root(*iterate.printed)

    def state(self) -> dict[str, float]:
        return {"t": float(self._t)}

    def restore(self, state: dict[str, float]) -> None:
        self._t = int(state["t"])


class PaperRhoBar(PaperRho):
    """min((1+η0^d)^(t/2) η0, 1/K̄_t): equation (19) with h = ρ̄; the printed second case repeats 1/K_t (erratum).

    It needs the certificate that ``PaperRho`` needs.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss, theorem = sf.SquaredLoss(X, X.sum(1)), "two-layer/corrected"
        >>> net = sf.nn.TwoLayerLinear.certifiable(loss, width=16, theorem=theorem)
        >>> run = sf.descend(net, loss, steps=sf.steps.PaperRhoBar(), certificate=sf.certify(net, loss, theorem=theorem))
        >>> run.certified, run.audit().holds
        (True, True)
    """

    name = "paper-rho-bar"
    needs = frozenset()

    def _limit(self, iterate: Measurable, t: int) -> float:
        return 1.0 / planner.smoothness_ahead(self._q, t)


class PrescribedSteps(StepRule):
    """The steps of a certificate of ``two-layer/prescribed``, in their order; then those that it repeats for ever, or 0."""

    name = "prescribed"
    certified_by = frozenset({prescribed.THEOREM.id})

    def start(self, loss: LinearMapLoss, certificate: Certificate | None) -> None:
        if certificate is None or not self.certifies(certificate) or not certificate.schedule:
            raise ValueError(
                f"steps={self.name!r} needs a certificate of {prescribed.THEOREM.id!r} that holds, whose steps it takes; call "
                f"certify(net, loss, theorem={prescribed.THEOREM.id!r}) and see its suggestion"
            )
        self._first, self._cycle = prescribed.steps_of(certificate.quantities)
        self._t = 0

    def step(self, engine: Engine) -> float:
        t = self._t
        self._t += 1
        return prescribed.step_at(self._first, self._cycle, t)

    def state(self) -> dict[str, float]:
        return {"t": float(self._t)}

    def restore(self, state: dict[str, float]) -> None:
        self._t = int(state["t"])


class ExactLineSearch(StepRule):
    """First positive critical point of the loss along the step (of its quartic majoriser for a loss that is not quadratic).

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> run = sf.descend(sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0), loss, steps=sf.steps.ExactLineSearch())
        >>> run.status.value, all(after < before for before, after in zip(run.gaps, run.gaps[1:], strict=False))
        ('converged', True)
    """

    name = "exact-line-search"
    needs = frozenset({"quartic"})

    def step(self, engine: Engine) -> float:
        return first_critical_point(engine.iterate.quartic)


class Xu2023(StepRule):
    """The adaptive step of Xu et al. (2023) as this paper's equation (50) gives it: the minimiser of its rate, clipped to (48).

    The root of -2μs- + 2(Kμs+² + 2μσγ)η + 6μKs+σγη² + 4μKσ²γ²η³ = 0, σ = ‖W‖, γ = ‖g‖_F. The paper does not fix the
    original's constants; this is one reading of it.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> start = lambda: sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0)
        >>> theirs = sf.descend(start(), loss, steps=sf.steps.Xu2023())
        >>> theirs.status.value, sf.descend(start(), loss, steps=sf.steps.CertifiedBB()).iterations < theirs.iterations
        ('converged', True)
    """

    name = "xu2023"
    needs = frozenset({"sigma_min_squared", "sigma_max_squared", "map_norm", "gradient_frobenius"})

    def start(self, loss: LinearMapLoss, certificate: Certificate | None) -> None:
        self._K = loss.smoothness

    def step(self, engine: Engine) -> float:
        it, K = engine.iterate, self._K
        low, high, product = it.sigma_min_squared, it.sigma_max_squared, it.map_norm * it.gradient_frobenius
        if low <= 0.0:
            return 0.0
        # divided by 2 μ s-; the strong convexity cancels
        eta = planner.cubic_root(
            (K * high * high + 2.0 * product) / low, 3.0 * K * high * product / low, 2.0 * K * product * product / low
        )
        # (48): s- - ηp - (Kη/2)(s+ + ηp)² ≥ 0
        limit = planner.cubic_root(
            (product + 0.5 * K * high * high) / low, K * high * product / low, 0.5 * K * product * product / low
        )
        return min(eta, limit)


class SharpStep(StepRule):
    """1/K': the root of η K'(η) = 1 (Theorem I)."""

    name = "sharp-proposal"
    needs = frozenset({"sharp"})

    def step(self, engine: Engine) -> float:
        return planner.cubic_root(*engine.iterate.sharp)


class Certified(StepRule):
    """Any proposal, made certified by the drift theorem: accepted only if condition (T) holds and the new gap is at most what
    the floor step guarantees, or what the certificate guarantees for that iteration, whichever is larger; shrunk by 0.7
    otherwise, and at last replaced by the better floor step.

    Args:
        proposal: the rule that proposes; ``None`` takes the floor step itself.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> start = lambda: sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0)
        >>> sf.descend(start(), loss, steps=sf.steps.Polyak()).certified
        False
        >>> sf.descend(start(), loss, steps=sf.steps.Certified(sf.steps.Polyak())).certified
        True
    """

    name = "certified"
    certified_by = DRIFT
    SHRINK = 0.7

    def __init__(self, proposal: StepRule | None) -> None:
        self.proposal = proposal
        own = frozenset({"stationary", "trial", "drift_per_step", "gradient_squared"})
        self.needs = own if proposal is None else own | proposal.needs

    def start(self, loss: LinearMapLoss, certificate: Certificate | None) -> None:
        self.adopt(loss, certificate)
        if self.proposal is not None:
            self.proposal.start(loss, certificate)

    def adopt(self, loss: LinearMapLoss, certificate: Certificate | None) -> None:
        self._budget = Budget.of(certificate, loss.smoothness)
        self._spent = 0.0
        self._taken = 0

    def step(self, engine: Engine) -> float:
        iterate = engine.iterate
        if math.isinf(self._budget.spendable) and iterate.stationary:
            return 0.0  # nothing is guaranteed here, and a long step along rounding errors may raise the gap
        if self._budget.spendable < math.inf:
            iterate.least = self._budget.guaranteed
        self._taken += 1
        floors = floor(iterate.measurements, self._budget, self._spent)
        eta = self._accepted(engine, max(floors.sharp_step, floors.contraction_step))
        if eta is None:
            floors = self._exact_floors(iterate)
            eta = min((e for e in floors[:2] if e > 0.0), key=iterate.trial, default=0.0)
        self._spent += eta * eta * iterate.drift_per_step
        if isinstance(self.proposal, BarzilaiBorwein):
            self.proposal.taken(eta, iterate.gradient_squared)
        return eta

    def _exact_floors(self, iterate: Measurable) -> Floor:
        return floor(iterate.exact_measurements, self._budget, self._spent)

    def _accepted(self, engine: Engine, smallest: float) -> float | None:
        if self.proposal is None:
            return None
        iterate = engine.iterate
        eta = self.proposal.step(engine)
        goal = self._budget.guarantee(self._taken)
        while eta > 0.0 and math.isfinite(eta):
            gap = iterate.trial(eta)
            if gap > goal:  # behind the schedule, what the floor step guarantees counts
                goal = max(goal, self._exact_floors(iterate).goal)
            if gap <= goal and keeps_budget(eta, iterate.measurements, self._budget, self._spent, gap):
                return eta
            if eta <= smallest:
                return None
            eta *= self.SHRINK
        return None

    def state(self) -> dict[str, float]:
        return {"spent": self._spent, "taken": float(self._taken), **state_of(self.proposal)}

    def restore(self, state: dict[str, float]) -> None:
        self._spent, self._taken = state["spent"], int(state["taken"])
        restore_proposal(self.proposal, state)


class CertifiedBB(Certified):
    """Barzilai-Borwein steps under the drift certificate; the default.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> run = sf.descend(sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0), loss, steps=sf.steps.CertifiedBB())
        >>> run.certified, run.iterations <= run.guaranteed_iterations(1e-12)
        (True, True)
    """

    name = "certified-bb"

    def __init__(self) -> None:
        super().__init__(BarzilaiBorwein())


class Sharp(Certified):
    """1/K' under the drift certificate.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> run = sf.descend(sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0), loss, steps=sf.steps.Sharp())
        >>> run.certified, run.audit().holds
        (True, True)
    """

    name = "sharp"

    def __init__(self) -> None:
        super().__init__(SharpStep())


class Contraction(Certified):
    """The better of the theorem's own floor steps (Theorems I and III).

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> run = sf.descend(sf.nn.TwoLayerLinear.gaussian(3, 1, width=16, seed=0), loss, steps=sf.steps.Contraction())
        >>> run.certified, run.audit().holds
        (True, True)
    """

    name = "contraction"

    def __init__(self) -> None:
        super().__init__(None)


def first_critical_point(quartic: Quartic) -> float:
    """Smallest positive root of the quartic's derivative, polished by Newton; 0 where there is none."""
    derivative = np.array([4.0 * quartic.c4, 3.0 * quartic.c3, 2.0 * quartic.c2, quartic.c1])
    if not derivative[3] < 0.0:
        return 0.0
    # in x = η/scale the constant is -1 and the coefficients are of order 1, so that no accuracy is lost to powers of η
    scale = max(
        float(abs(c / derivative[3]) ** (1.0 / k))
        for k, c in ((3, derivative[0]), (2, derivative[1]), (1, derivative[2]))
    )
    if scale == 0.0:
        return 0.0
    c = derivative / -derivative[3] * np.array([scale**-3, scale**-2, 1.0 / scale, 1.0])
    roots = np.roots(c)
    real = roots[(np.abs(roots.imag) <= 1e-7 * np.abs(roots)) & (roots.real > 0.0)].real
    if len(real) == 0:
        return 0.0
    x = float(real.min())
    for _ in range(3):
        slope = (3.0 * c[0] * x + 2.0 * c[1]) * x + c[2]
        if slope <= 0.0:
            break
        x -= (((c[0] * x + c[1]) * x + c[2]) * x + c[3]) / slope
    return x / scale


RULES: dict[str, type[StepRule]] = {
    rule.name: rule
    for rule in (
        CertifiedBB,
        Contraction,
        Sharp,
        PaperRho,
        PaperRhoBar,
        PrescribedSteps,
        Local,
        ExactLineSearch,
        BarzilaiBorwein,
        Polyak,
        Backtracking,
        Xu2023,
        Constant,
    )
}
