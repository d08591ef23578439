"""The implicit ReLU system as the core sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from surefoot_check.implicit import SYSTEM as CHECKED
from surefoot_check.implicit import enclosures as rigorous
from surefoot_check.implicit import local
from surefoot_check.implicit import measured as implicit_measured
from surefoot_check.implicit import spectral as implicit_spectral
from surefoot_check.statement import Theorem

from .._core.audit import Audit
from .._core.certificate import Certificate, Condition
from .._core.losses import Loss
from .._core.measuring import stored
from .._core.near_a_fit.suggestions import FINISH
from .._core.plans import OWN_STEP
from .._core.problems import loss_of
from .._core.refusals import SCALE, checkable
from .._core.samples import SampleLoss, sample_loss
from .._core.system import Measured, Recordable, Watchable
from .._core.team import team
from .._core.validate import network_weight
from .._data.parallel_rows import parallel_rows
from .audit import audit
from .choices import TARGET, measure, step_choices
from .engine import Iterate, WeightEngine
from .near import NEAR_A_FIT, MeasuredAt, measured_near, suggestion_near
from .network import ImplicitReLU, NotWellPosed
from .norms import spectral_norm_upper
from .planner import PLANS
from .ranks import SharedEngine
from .row_rank import deficient, nearest_rows
from .share import Weights
from .solvers import SolverMemory
from .steps import RULES
from .words import WORDS


class ImplicitSystem(Recordable[ImplicitReLU, SampleLoss], Watchable[ImplicitReLU, SampleLoss]):
    """Theorems, engine and rules of infinite-depth ReLU networks."""

    name = "implicit"
    network = ImplicitReLU
    network_name = "sf.nn.ImplicitReLU"
    words = WORDS
    command = "surefoot._implicit.command"
    tour = "surefoot._implicit.command_tour"
    aim = TARGET
    report = "surefoot._implicit.report"
    plans = PLANS
    default_theorem = implicit_spectral.THEOREM.id
    engines = (WeightEngine.name,)
    rules = RULES
    fixed = frozenset({"gamma"})

    def problem(self, net: ImplicitReLU, loss: Loss) -> SampleLoss:
        """See ``_core.samples.sample_loss``."""
        return sample_loss(loss)

    def measured(self, net: ImplicitReLU, loss: SampleLoss, theorem: Theorem) -> Measured:
        """Of the features at the current weights, with the steps to try."""
        with checkable("the network or the data is", SCALE):
            problem, weights = stored(CHECKED, loss, self.reduced(net, loss))
            if theorem.id in NEAR_A_FIT:
                return _posed(net, measured_near(problem, weights, theorem), theorem)
            sizes = rigorous.sizes(problem, weights)
            base = measure(problem, weights, theorem)
        missing = [name for name in theorem.base if name not in base]
        if missing:
            return Measured({}, sizes, missing=_without_bound(net, missing))
        nodes = {name: value for name, value in base.items() if name not in theorem.base}
        return Measured(base, sizes, [{**nodes, **choices} for choices in step_choices(theorem.id, base)])

    def measured_for_step(self, net: ImplicitReLU, loss: SampleLoss, theorem: Theorem, step: float) -> Measured:
        """The same with that step in place of those to try."""
        if theorem.id in NEAR_A_FIT:
            return super().measured_for_step(net, loss, theorem, step)
        measured = self.measured(net, loss, theorem)
        kept = {name: value for name, value in measured.choices[0].items() if name != "eta"}
        return replace(measured, choices=[{**kept, OWN_STEP: step}])

    def suggestion(
        self,
        net: ImplicitReLU,
        loss: SampleLoss,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """Other data, width, γ, scale or theorem, where a hypothesis fails."""
        return _suggestion(net, loss, theorem, measured, failed, quantities) if failed else ""

    def advice(self, net: ImplicitReLU, loss: SampleLoss, certificate: Certificate) -> str:
        """The spectrum of the features, the rows that are nearly parallel, and what lowers the count."""
        return _slow(loss, certificate.quantities)

    def engine(self, net: ImplicitReLU, loss: SampleLoss, name: str) -> WeightEngine | SharedEngine:
        """The one engine: all weights. Where there are several ranks they share its rows, if these are on the CPU.

        Raises:
            NotWellPosed: γ‖A‖ ≥ 1.
        """
        weights, ranks = Weights.of(self.reduced(net, loss)), team()
        if not net.gamma * net.norm_A() < 1.0:
            raise NotWellPosed(net.gamma, net.norm_A())
        resolution = partial(_resolution, loss, weights, net.gamma)
        if ranks is None or loss.X.device.type != "cpu":
            return WeightEngine(loss, weights, net.gamma, resolution)
        return SharedEngine(loss, weights, net.gamma, ranks, resolution)

    def reduced(self, net: ImplicitReLU, loss: SampleLoss) -> dict[str, Tensor]:
        """W (d, m), A (m, m), b (m, p) and γ (), as copies.

        Raises:
            TypeError: weights that are not float64.
            ValueError: shapes or devices that do not fit the loss, or non-finite weights.
        """
        for name in ("W", "A", "b"):
            network_weight(f"net.{name}", getattr(net, name))
        (_, d), p = loss.X.shape, loss.Y.shape[1]
        if net.inputs != d or net.outputs != p:
            raise ValueError(
                f"net maps {net.inputs} inputs to {net.outputs} outputs, the loss has {d} inputs and {p} outputs; "
                f"build the network with inputs={d}, outputs={p}"
            )
        if net.A.device != loss.X.device:
            raise ValueError(f"net is on {net.A.device} and the loss on {loss.X.device}; move one of them")
        gamma = torch.tensor(net.gamma, dtype=torch.float64, device=net.A.device)
        b = net.b.detach().reshape(net.width, -1)
        return {"W": net.W.detach().clone(), "A": net.A.detach().clone(), "b": b.clone(), "gamma": gamma}

    def at(self, net: ImplicitReLU, weights: Mapping[str, Tensor]) -> ImplicitReLU:
        """A new network at these weights."""
        return _network(weights)

    def write(self, net: ImplicitReLU, loss: SampleLoss, weights: Mapping[str, Tensor]) -> None:
        """Put the weights back."""
        with torch.no_grad():
            net.W.copy_(weights["W"])
            net.A.copy_(weights["A"])
            net.b.copy_(weights["b"].reshape(net.b.shape))

    def measure(self, net: ImplicitReLU, loss: SampleLoss) -> dict[str, float]:
        """The measurements of the current weights."""
        return self._iterate(net, loss).measurements

    def resolution(self, net: ImplicitReLU, loss: SampleLoss) -> float:
        """Of the rounding of the residual, now and once the outputs have the size of the targets."""
        return _resolution(loss, Weights.of(self.reduced(net, loss)), net.gamma)

    def watched(self, loss: SampleLoss) -> Theorem:
        """``implicit/local``: the others speak of features that stay put."""
        return local.THEOREM

    def features(self, net: ImplicitReLU, loss: SampleLoss) -> list[Tensor]:
        """The equilibrium (N, m)."""
        return [net.equilibrium(loss.X).Z]

    def restrain(self, net: ImplicitReLU) -> None:
        """See ``ImplicitReLU.contract_``."""
        net.contract_()

    def objective(self, net: ImplicitReLU, loss: SampleLoss) -> Tensor:
        """½‖f(X) - Y‖²."""
        return 0.5 * (net(loss.X).reshape(loss.Y.shape) - loss.Y).square().sum()

    def value(self, net: ImplicitReLU, loss: SampleLoss) -> float:
        """The same; infinite where γ‖A‖ is not below 1."""
        return super().value(net, loss) if net.gamma * net.norm_A() < 1.0 else math.inf

    def recorded(self, net: ImplicitReLU, loss: SampleLoss) -> dict[str, Tensor]:
        """The trained weights, and γ."""
        return self.reduced(net, loss)

    def measure_step(
        self, net: ImplicitReLU, loss: SampleLoss, before: Mapping[str, Tensor], step: float
    ) -> dict[str, float]:
        """How far features and hidden weights moved, and how far the output step may be from the exact one."""
        norm = spectral_norm_upper(before["A"])
        last = Iterate(loss, Weights.of(before), net.gamma, norm, SolverMemory())
        return last.measured_step(step, last.after(Weights.of(self.reduced(net, loss)), net.norm_A()))

    def measure_since(self, net: ImplicitReLU, loss: SampleLoss, first: Mapping[str, Tensor]) -> dict[str, float]:
        """How far the weights moved."""
        return {"distance": Weights.of(self.reduced(net, loss)).distance(Weights.of(first))}

    def gradient(self, net: ImplicitReLU, loss: SampleLoss) -> dict[str, Tensor]:
        """The gradient in the trained weights, relu'(0) = 0."""
        gradient = self._iterate(net, loss).gradient
        return {"W": gradient.W, "A": gradient.A, "b": gradient.b}

    def _iterate(self, net: ImplicitReLU, loss: SampleLoss) -> Iterate:
        weights = Weights.of(self.reduced(net, loss))
        return Iterate(loss, weights, net.gamma, net.norm_A(), SolverMemory())

    def rebuild(
        self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[ImplicitReLU, SampleLoss]:
        """The network and loss of a run directory."""
        return _network(weights), sample_loss(loss_of(kind, problem))

    def audit(self, trace: list[dict[str, float]], certificate: Certificate, resolution: float) -> Audit:
        """See ``audit.audit``."""
        return audit(trace, certificate, resolution)


def _network(weights: Mapping[str, Tensor]) -> ImplicitReLU:
    return ImplicitReLU(weights["W"], weights["A"], weights["b"], float(weights["gamma"]))


def _resolution(loss: SampleLoss, weights: Weights, gamma: float) -> float:
    iterate = Iterate(loss, weights, gamma, spectral_norm_upper(weights.A), SolverMemory())
    size = float(torch.linalg.vector_norm(iterate.Z))
    relative = iterate.equilibrium.error / size if size > 0.0 else 0.0
    error = iterate.residual_error + relative * float(torch.linalg.vector_norm(loss.Y))
    return 0.5 * error * error if math.isfinite(error) else 0.0


def _without_bound(net: ImplicitReLU, missing: list[str]) -> Condition:
    """Why quantities have no bound: the equilibrium does not certainly exist, or has no full row rank."""
    contraction = net.gamma * spectral_norm_upper(net.A.detach())
    if not contraction < 1.0:
        return Condition("the equilibrium exists: gamma |A| < 1", contraction, "<", 1.0, False, None)
    return Condition(f"{', '.join(missing)} can be bounded: sigma_min(Z) > 0", 0.0, ">", 0.0, False, None)


def _slow(loss: SampleLoss, q: Mapping[str, float]) -> str:
    """Why the count is large."""
    if "node_min" not in q:
        return "use the theorem implicit/spectral, which follows the spectrum of the features and needs far fewer iterations"
    text = f"the spectrum of Z Zᵀ reaches from {q['node_min']:.3g} to {q['node_max']:.3g}"
    first, second, cosine = nearest_rows(loss.X)
    return (
        f"{text}; the nearest to parallel are rows {first} and {second} of X (cosine {cosine:.6g}): "
        "whiten the inputs, or take fewer rows"
    )


def _posed(net: ImplicitReLU, measured: MeasuredAt, theorem: Theorem) -> Measured:
    """The same, where the theorem can be evaluated; else with the condition that says why not."""
    missing = [name for name in theorem.base if name not in measured.published]
    if not missing or measured.published.get("sigma_min_J") == 0.0:
        return measured
    return replace(measured, missing=_without_bound(net, missing))


def _suggestion(
    net: ImplicitReLU,
    loss: SampleLoss,
    theorem: Theorem,
    measured: Measured,
    failed: Sequence[str],
    quantities: Mapping[str, float],
) -> str:
    """What would make the theorem hold."""
    N = len(loss.X)
    norm = spectral_norm_upper(net.A.detach())
    if not net.gamma * norm < 1.0:
        return f"gamma |A| is not below 1: use a smaller gamma, such as {0.5 / norm:.2g}"
    parallel = parallel_rows(loss.X)
    if parallel.text:
        return parallel.text
    if isinstance(measured, MeasuredAt):
        return suggestion_near(theorem, measured, failed, quantities)
    of_features = theorem in (implicit_measured.THEOREM, implicit_spectral.THEOREM)
    if of_features and bool(net.b.any()):
        return (
            "the weights are trained, and this theorem asks for features that stay put: of trained ones ask "
            f"sf.certify(net, loss, {local.THEOREM.id!r}), which needs a small residual; {FINISH}"
        )
    if net.width < N:
        return f"width {net.width} is below the {N} samples: the features cannot have full row rank; use a width of 2 N or more"
    if any("row rank" in name or "sigma_min(Z)" in name for name in failed):
        Z = net.equilibrium(loss.X).Z
        return deficient(loss.X, Z, float(torch.linalg.matrix_norm(Z, -2)) ** 2)
    if of_features:
        return (
            "the weights are too small for their features to stay put: sf.nn.ImplicitReLU.certifiable(X, y, width) chooses their "
            "scale, gamma and the step; or train them, and ask of trained weights sf.certify(net, loss, "
            f"{local.THEOREM.id!r})"
        )
    return "use the theorem implicit/spectral, whose conditions are weaker by many orders of magnitude"
