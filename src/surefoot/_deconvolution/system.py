"""The linearised ADMM as the core sees it: ``sf.certify(ladmm, problem)`` and ``sf.descend(ladmm, problem)``.

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
from surefoot_check.deconvolution import ladmm
from surefoot_check.deconvolution.ladmm import RULE
from surefoot_check.rigor.bounds import up
from surefoot_check.statement import Theorem

from .._core.audit import Audit, Check, audited, noise
from .._core.certificate import Certificate, publish
from .._core.losses import Loss
from .._core.refusals import checkable
from .._core.steps import StepRule
from .._core.system import Descendable, Measured
from .._core.validate import kind_of, positive
from .._learning.directory import LOSSES_ONLY
from .admm import LADMM, State
from .engine import SolverEngine, rounding_of
from .masked import MaskedBlur
from .operators import Blur, PeriodicBlur, SpatiallyVaryingBlur, ValidBlur, fft_error
from .planner import PLANS
from .problem import DeconvolutionProblem
from .words import WORDS


class SparseLoss(Loss):
    """A problem as the core's descent sees it; gaps are changes, which end at 0."""

    kind = DeconvolutionProblem.kind
    optimal_value = 0.0

    def __init__(self, problem: DeconvolutionProblem) -> None:
        self.problem = problem

    def arrays(self) -> dict[str, Tensor]:
        """Picture, kernel (and weights, and the scales of M), mask, penalty, boundary, and the wavelet: name, filters, levels."""
        problem, blur = self.problem, self.problem.blur
        arrays = {
            "observed": problem.observed,
            "kernel": blur.kernel,
            "penalty": torch.tensor([problem.penalty], dtype=torch.float64),
            "periodic": torch.tensor([int(blur.domain == blur.range)]),
            "levels": torch.tensor([problem.wavelet.levels]),
            "wavelet": torch.tensor(list(problem.wavelet.name.encode()), dtype=torch.uint8),
            "filters": problem.wavelet.filters,
        }
        if isinstance(blur, MaskedBlur):
            arrays["mask"] = blur.mask.to(torch.uint8)
            blur = blur.blur
        if isinstance(blur, SpatiallyVaryingBlur):
            arrays |= {"weights": blur.weights, "scales": blur.scales}
        return arrays


class IterationRule(StepRule):
    """The method's own iteration; recorded as a step of 1."""

    name = RULE
    certified_by = frozenset({ladmm.THEOREM.id})

    def step(self, engine: Any) -> float:
        return 1.0


class DeconvolutionSystem(Descendable[LADMM, SparseLoss]):
    """Theorem and engine of the linearised ADMM."""

    name = "deconvolution"
    network = LADMM
    network_name = "sf.deconvolution.LADMM"
    words = WORDS
    no_trajectory = LOSSES_ONLY
    plans = PLANS
    command = "surefoot._deconvolution.command"
    default_theorem = ladmm.THEOREM.id
    engines = (RULE,)
    rules: ClassVar = {RULE: IterationRule}

    def __init__(self, checkable: bool = True) -> None:
        self._checkable = checkable

    def problem(self, net: LADMM, loss: Any) -> SparseLoss:
        """A ``DeconvolutionProblem`` as a loss."""
        if isinstance(loss, SparseLoss):
            return loss
        if not isinstance(loss, DeconvolutionProblem):
            raise TypeError(f"loss is {kind_of(loss)}; pass a sf.deconvolution.DeconvolutionProblem")
        return SparseLoss(loss)

    def measured(self, net: LADMM, loss: SparseLoss, theorem: Theorem) -> Measured:
        """Of a solver from its own start.

        Raises:
            TypeError: a problem that is not float64.
            ValueError: numbers whose squares or ratios leave the range of float64, or more pixels and taps than the checker
                takes on.
        """
        problem = loss.problem
        if problem.observed.dtype != torch.float64:
            raise TypeError(
                "the problem is float32; certificates are about float64: pass the picture and the kernel as .double()"
            )
        for name in ("alpha", "beta", "gamma"):
            positive(name, getattr(net, name))  # they can be set after the constructor has checked them
        start = net.start(problem)
        enclosures = _enclosed(net, loss, start) if self._checkable else _measured(net, problem, start)
        published = publish(enclosures, ladmm.DIRECTIONS)
        published |= dict(zip(rigorous.EXACT, (net.alpha, net.beta, net.gamma, problem.penalty), strict=True))
        if not all(math.isfinite(value) for value in (*published.values(), ladmm.distance(published))):
            raise ValueError(
                "the bound leaves the range of float64: pass intensities of about 0..1, and a noise and parameters of usual size"
            )
        sizes = {
            "images": problem.observed[..., 0, 0].numel(),
            "H": problem.blur.domain[0],
            "W": problem.blur.domain[1],
        }
        return Measured(published, {**sizes, "adaptive": net.adaptive, "inexact": net.inner is not None})

    def suggestion(
        self,
        net: LADMM,
        loss: SparseLoss,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """Other parameters."""
        return _suggestion(net)

    def advice(self, net: LADMM, loss: SparseLoss, certificate: Certificate) -> str:
        """D/t is a worst case; what lowers D, and what to stop at."""
        return (
            f"D/t with D = {certificate.claim.constant:.3g} is a bound for the worst case; a larger penalty lowers D; stop where "
            "the change, which is measured, is small enough"
        )

    def rule(self, steps: StepRule | str | float | None, certificate: Certificate) -> StepRule:
        """The method's own iteration, and no other."""
        if steps is None or isinstance(steps, IterationRule) or steps == RULE:
            return IterationRule()
        raise ValueError(f"steps is {steps!r}; the linearised ADMM has its own parameters: leave it out")

    def engine(self, net: LADMM, loss: SparseLoss, name: str) -> SolverEngine:
        """The one engine."""
        return SolverEngine(net, loss.problem, RULE)

    def reduced(self, net: LADMM, loss: SparseLoss) -> dict[str, Tensor]:
        """The start z, x, multiplier (..., H, W), and parameters (5,) = (α, β, γ, adaptive, inexact)."""
        return net.stored(net.start(loss.problem))

    def write(self, net: LADMM, loss: SparseLoss, weights: Mapping[str, Tensor]) -> None:
        """Nothing: the solution is ``run.final``."""

    def resolution(self, net: LADMM, loss: SparseLoss) -> float:
        """The V that the rounding of an iterate can cause."""
        return rounding_of(net, loss.problem, net.start(loss.problem))

    def rebuild(
        self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[LADMM, SparseLoss]:
        """Solver and problem from the arrays of a run directory."""
        alpha, beta, gamma, adaptive, _ = weights["parameters"].tolist()
        wavelet = bytes(problem["wavelet"].tolist()).decode()
        blur = _blur(problem)
        rebuilt = DeconvolutionProblem(problem["observed"], blur, float(problem["penalty"]), wavelet)
        if rebuilt.wavelet.levels != int(problem["levels"]):
            kind_of = type(rebuilt.wavelet)
            rebuilt.wavelet = kind_of(blur.domain, wavelet, int(problem["levels"]))
        return LADMM(beta, alpha, gamma, adaptive=bool(adaptive)), SparseLoss(rebuilt)

    def audit(self, trace: list[dict[str, float]], certificate: Certificate, resolution: float) -> Audit:
        """Check along a trace that V never increases and stays under the bound, and that the objective has a lower bound."""
        if certificate.holds:
            # that of the start is less than that of a solution much larger than the picture: a small penalty, or hardly a blur
            resolution = max([resolution, *(row["rounding"] for row in trace if "rounding" in row)])
        rows = ((int(a["iteration"]), b["gap"], a["gap"] + noise(a["gap"], resolution)) for a, b in pairwise(trace))
        checks: list[Check] = [("the change V never increases", rows)] if certificate.holds else []
        return audited(certificate, trace, checks, resolution)


def certificate(
    net: LADMM, problem: DeconvolutionProblem, theorem: str = ladmm.THEOREM.id, *, checkable: bool = True
) -> Certificate:
    """The certificate of a solver on a problem; see ``LADMM.certify``.

    ``checkable``: with the enclosures of the independent checker, which takes seconds for a large kernel. Otherwise quantities
    are measured in floats with a bound of their rounding: the checker's may be wider, and leave it undecided.
    """
    return DeconvolutionSystem(checkable).certify(net, SparseLoss(problem), theorem)


def _enclosed(net: LADMM, loss: SparseLoss, start: State) -> dict[str, tuple[float, float]]:
    """The base quantities, as the checker encloses them."""
    problem, weights = (
        {name: tensor.cpu().numpy() for name, tensor in arrays.items()} for arrays in (loss.arrays(), net.stored(start))
    )
    usual = "pass a smaller picture, intensities of about 0..1, and parameters of usual size"
    with checkable("the problem is", usual):
        stored = rigorous.load_problem(rigorous.KIND, problem)
        weights = rigorous.read_weights(weights, stored, "start")
        return rigorous.base_quantities(stored, weights, rigorous.stored_parameters(stored, weights))


def _measured(net: LADMM, problem: DeconvolutionProblem, start: State) -> dict[str, tuple[float, float]]:
    """Those that are measured, in floats; their rounding is far below the slack of publication."""
    zero = torch.zeros_like(start.x)
    objective = min(float(problem.duality_gap(x).primal.sum()) for x in (zero, start.x))
    # αβ just above 1 makes the norm a seminorm of no use; the conditions say so
    excess = max(0.0, up(up(1.0 / net.alpha) - net.beta))  # it cancels where alpha is the default
    following = net.step(problem, start)
    first = float(net.change(problem, start, following))
    if not problem.blur.exact_majorizer:
        largest = float(problem.blur.majorizer.max())
        excess += largest
        # ‖Δz‖² in M less that in BᵀB cancels: all of V where β is tiny
        error = 8.0 * fft_error(torch.float64, problem.blur.domain)
        first += error * largest * float((following.z - start.z).square().sum())
    rounding = rounding_of(net, problem, start)
    base = {
        "initial_gap": max(first, 0.0) + noise(max(first, 0.0), rounding),
        "transform_norm": problem.wavelet.norm_bound,
        "blur_norm": problem.blur.norm_bound,
        "majorizer_excess": excess,
        "objective_bound": objective,
        "start_latent": float(start.z.norm()),
        "start_coefficients": float(start.x.norm()),
        "start_multiplier": float(start.multiplier.norm()),
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


def _suggestion(net: LADMM) -> str:
    """What would make the theorem hold."""
    if net.adaptive:
        return "decaying parameters carry no guarantee: use adaptive=False"
    if net.inner is not None:
        return "an iterative inner solver is inexact: leave inner out, the majorized step is exact for every blur"
    return f"use alpha and gamma slightly below 1/beta = {1.0 / net.beta:.6g}, or leave both out"
