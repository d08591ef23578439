"""The solvers as the core sees them: ``sf.certify(solver, problem)`` and ``sf.descend(solver, problem)``.

The gap of a run is V_t, the squared change from iterate to iterate in the norm of the method; its optimal value is 0. What the
objective lacks to its optimum is in the trace as ``duality_gap``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from surefoot_check.deconvolution import enclosures as rigorous
from surefoot_check.deconvolution import ladmm, total_variation
from surefoot_check.statement import Theorem

from .._core.audit import Audit, Check, audited, noise
from .._core.certificate import Certificate, publish
from .._core.losses import Loss
from .._core.refusals import checkable
from .._core.steps import StepRule, make
from .._core.system import Descendable, Measured
from .._core.validate import kind_of, positive
from .._learning.directory import LOSSES_ONLY
from .engine import SolverEngine, rounding_of
from .masked import MaskedBlur
from .methods import METHODS, method_of
from .operators import Blur, PeriodicBlur, SpatiallyVaryingBlur, ValidBlur, fft_error
from .planner import PLANS
from .problem import ObservedPicture
from .solver import AnySolver, DeconvolutionSolver, Iterate
from .words import WORDS


class PictureLoss(Loss):
    """A problem as the core's descent sees it; gaps are changes, which end at 0."""

    optimal_value = 0.0

    def __init__(self, problem: ObservedPicture) -> None:
        self.problem, self.kind = problem, problem.kind
        self.method = next(method for method in METHODS if isinstance(problem, method.problem))

    def arrays(self) -> dict[str, Tensor]:
        """Picture, kernel (and weights, and the scales of M), mask, penalty, boundary, and what the prior needs."""
        problem, blur = self.problem, self.problem.blur
        arrays = {
            "observed": problem.observed,
            "kernel": blur.kernel,
            "penalty": torch.tensor([problem.penalty], dtype=torch.float64),
            "periodic": torch.tensor([int(blur.domain == blur.range)]),
            **self.method.arrays(problem),
        }
        if isinstance(blur, MaskedBlur):
            arrays["mask"] = blur.mask.to(torch.uint8)
            blur = blur.blur
        if isinstance(blur, SpatiallyVaryingBlur):
            arrays |= {"weights": blur.weights, "scales": blur.scales}
        return arrays


class IterationRule(StepRule):
    """The method's own iteration; recorded as a step of 1."""

    def step(self, engine: Any) -> float:
        return 1.0


class LinearisedRule(IterationRule):
    """That of the linearised ADMM."""

    name = ladmm.RULE
    certified_by = frozenset({ladmm.THEOREM.id})


class VariationRule(IterationRule):
    """That of the ADMM for total variation."""

    name = total_variation.RULE
    certified_by = frozenset({total_variation.THEOREM.id})


class DeconvolutionSystem(Descendable[AnySolver, PictureLoss]):
    """Theorems and engine of the solvers."""

    name = "deconvolution"
    network = DeconvolutionSolver
    network_name = "sf.deconvolution.LADMM or TVADMM"
    words = WORDS
    no_trajectory = LOSSES_ONLY
    plans = PLANS
    command = "surefoot._deconvolution.command"
    tour = "surefoot._deconvolution.command_tour"
    report = "surefoot._deconvolution.report"
    default_theorem = ladmm.THEOREM.id
    rules: ClassVar = {rule.name: rule for rule in (LinearisedRule, VariationRule)}
    engines = tuple(rules)

    def __init__(self, checkable: bool = True) -> None:
        self._checkable = checkable

    def problem(self, net: AnySolver, loss: Any) -> PictureLoss:
        """A problem of the solver's kind as a loss."""
        if isinstance(loss, PictureLoss):
            return loss
        kind = method_of(net).problem
        if not isinstance(loss, kind):
            raise TypeError(f"loss is {kind_of(loss)}; pass a sf.deconvolution.{kind.__name__}")
        return PictureLoss(loss)

    def usual(self, loss: PictureLoss) -> tuple[Theorem, str]:
        """That of the problem's solver."""
        return loss.method.theorem, ""

    def stands_for(self, theorem: Theorem, loss: PictureLoss) -> Theorem:
        """Itself, where it speaks of such problems."""
        own = loss.method.theorem
        if theorem is not own:
            raise ValueError(f"{theorem.id} does not speak of a {type(loss.problem).__name__}; use {own.id}")
        return theorem

    def measured(self, net: AnySolver, loss: PictureLoss, theorem: Theorem) -> Measured:
        """Of a solver from its own start.

        Raises:
            TypeError: a problem that is not float64.
            ValueError: numbers whose squares or ratios leave the range of float64, or more pixels and taps than the checker
                takes on.
        """
        problem, method = loss.problem, loss.method
        if problem.observed.dtype != torch.float64:
            raise TypeError(
                "the problem is float32; certificates are about float64: pass the picture and the kernel as .double()"
            )
        # they can be set after the constructor has checked them
        chosen = {name: positive(name, getattr(net, name)) for name in method.checked.parameters}
        start = net.start(problem)
        enclosures = _enclosed(net, loss, start) if self._checkable else _measured(net, loss, start)
        published = publish(enclosures, method.directions) | chosen | {"penalty": problem.penalty}
        (h, w), images = problem.blur.domain, problem.observed[..., 0, 0].numel()
        sizes = {"images": images, "H": h, "W": w, **method.flags(net)}
        if not all(math.isfinite(value) for value in (*published.values(), method.theorem.distance(published))):
            raise ValueError(
                "the bound leaves the range of float64: pass intensities of about 0..1, and a noise and parameters of usual size"
            )
        return Measured(published, sizes)

    def suggestion(
        self,
        net: AnySolver,
        loss: PictureLoss,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """Other parameters."""
        return loss.method.suggestion(net)

    def advice(self, net: AnySolver, loss: PictureLoss, certificate: Certificate) -> str:
        """D/t is a worst case; what lowers D, and what to stop at."""
        return (
            f"D/t with D = {certificate.claim.constant:.3g} is a bound for the worst case; a larger penalty lowers D; stop where "
            "the change, which is measured, is small enough"
        )

    def rule(self, steps: StepRule | str | float | None, certificate: Certificate) -> StepRule:
        """The method's own iteration, and no other."""
        if steps is None or isinstance(steps, IterationRule) or steps in self.rules:
            return make(steps or certificate.rule, certificate, self.rules)
        raise ValueError(f"steps is {steps!r}; the solver has its own parameters: leave it out")

    def engine(self, net: AnySolver, loss: PictureLoss, name: str) -> SolverEngine:
        """The one engine."""
        return SolverEngine(net, loss.problem, loss.method.theorem.rule)

    def reduced(self, net: AnySolver, loss: PictureLoss) -> dict[str, Tensor]:
        """The start z, x, multiplier, and the parameters."""
        return net.stored(net.start(loss.problem))

    def write(self, net: AnySolver, loss: PictureLoss, weights: Mapping[str, Tensor]) -> None:
        """Nothing: the solution is ``run.final``."""

    def resolution(self, net: AnySolver, loss: PictureLoss) -> float:
        """The V that the rounding of an iterate can cause."""
        return rounding_of(net, loss.problem, net.start(loss.problem))

    def rebuild(
        self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[AnySolver, PictureLoss]:
        """Solver and problem from the arrays of a run directory."""
        method = next(method for method in METHODS if method.problem.kind == kind)
        solver, rebuilt = method.rebuild(_blur(problem), problem, weights["parameters"].tolist())
        return solver, PictureLoss(rebuilt)

    def audit(self, trace: list[dict[str, float]], certificate: Certificate, resolution: float) -> Audit:
        """Check along a trace that V never increases and stays under the bound, and that the objective has a lower bound."""
        if certificate.holds:
            # that of the start is less than that of a solution much larger than the picture: a small penalty, or hardly a blur
            resolution = max([resolution, *(row["rounding"] for row in trace if "rounding" in row)])
        rows = ((int(a["iteration"]), b["gap"], a["gap"] + noise(a["gap"], resolution)) for a, b in pairwise(trace))
        checks: list[Check] = [("the change V never increases", rows)] if certificate.holds else []
        return audited(certificate, trace, checks, resolution)


def certificate(net: AnySolver, problem: ObservedPicture, *, checkable: bool = True) -> Certificate:
    """The certificate of a solver on a problem; see ``DeconvolutionSolver.certify``.

    ``checkable``: with the enclosures of the independent checker, which takes seconds for a large kernel. Otherwise quantities
    are measured in floats with a bound of their rounding: the checker's may be wider, and leave it undecided.
    """
    loss = PictureLoss(problem)
    return DeconvolutionSystem(checkable).certify(net, loss, loss.method.theorem.id)


def _enclosed(net: AnySolver, loss: PictureLoss, start: Iterate) -> dict[str, tuple[float, float]]:
    """The base quantities, as the checker encloses them."""
    problem, weights = (
        {name: tensor.cpu().numpy() for name, tensor in arrays.items()} for arrays in (loss.arrays(), net.stored(start))
    )
    usual = "pass a smaller picture, intensities of about 0..1, and parameters of usual size"
    with checkable("the problem is", usual):
        stored = rigorous.load_problem(loss.kind, problem)
        weights = rigorous.read_weights(weights, stored, "start")
        return rigorous.base_quantities(stored, weights, stored.stored_parameters(weights))


def _measured(net: AnySolver, loss: PictureLoss, start: Iterate) -> dict[str, tuple[float, float]]:
    """Those that are measured, in floats; their rounding is far below the slack of publication."""
    problem, method = loss.problem, loss.method
    constants = method.constants(net, problem)
    black = 0.5 * float(problem.observed.square().sum())
    objective = min(black, float(net.gap(problem, start).primal.sum()))
    following = net.step(problem, start)
    first = float(net.change(problem, start, following))
    if not problem.blur.exact_majorizer:
        largest = float(problem.blur.majorizer.max())
        constants["majorizer_excess"] += largest
        # ‖Δz‖² in M less that in BᵀB cancels: all of V where β is tiny
        error = 8.0 * fft_error(torch.float64, problem.blur.domain)
        first += error * largest * float((following.z - start.z).square().sum())
    rounding = rounding_of(net, problem, start)
    norms = (float(array.norm()) for array in (start.z, start.x, start.multiplier))
    base = {
        "initial_gap": max(first, 0.0) + noise(max(first, 0.0), rounding),
        "blur_norm": problem.blur.norm_bound,
        "objective_bound": objective,
        **constants,
        **dict(zip(method.checked.sizes_of_start, norms, strict=True)),
    }
    return {name: (value, value) for name, value in base.items()}


def _blur(problem: Mapping[str, Tensor]) -> Blur:
    kernel, observed = problem["kernel"], tuple(problem["observed"].shape[-2:])
    periodic = bool(problem["periodic"])
    if "weights" in problem:
        blur: Blur = SpatiallyVaryingBlur(kernel, problem["weights"], "periodic" if periodic else "valid")
    else:
        blur = PeriodicBlur(kernel, observed) if periodic else ValidBlur.observing(kernel, observed)
    return MaskedBlur(blur, problem["mask"] != 0) if "mask" in problem else blur
