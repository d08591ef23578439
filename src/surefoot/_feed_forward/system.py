"""The feed-forward system as the core sees it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot_check.arrays import FormatError
from surefoot_check.feed_forward import SYSTEM as CHECKED
from surefoot_check.feed_forward import enclosures as rigorous
from surefoot_check.feed_forward import exact_fit, local, minimum, network, sgd
from surefoot_check.feed_forward.quantities import measured
from surefoot_check.statement import Theorem

from .._core.audit import Audit, Rows
from .._core.certificate import Certificate
from .._core.draws import Drawing
from .._core.losses import Loss, SquaredLoss
from .._core.measuring import stored
from .._core.near_a_fit.audit import audit
from .._core.near_a_fit.suggestions import FINISH, near_already, nearer, past_the_kink, too_far
from .._core.refusals import SCALE, checkable
from .._core.samples import SampleLoss, sample_loss
from .._core.sgd import audit as audit_of_batches
from .._core.system import Measured, Stochastic, Watchable
from .._core.validate import holds_numbers, kind_of
from . import minibatch, planner
from .engine import Engine
from .features import features
from .loss import NetworkLoss
from .measuring import MeasuredAt, measured_at
from .minimum import require_smooth, rounding, suggestion_for_minimum
from .modules import Layer, build, exactly, extra, in_float32, layers_of, linear_product, put_back, table, weights_of
from .objective import NetworkObjective, TorchLoss
from .ranks import INSTEAD, WIDER, without_rank
from .steps import RULES
from .words import WORDS

Trained = NetworkLoss | NetworkObjective


class FeedForwardSystem(Stochastic[nn.Sequential, Trained], Watchable[nn.Sequential, Trained]):
    """Theorems, engine and rules of plain ``torch.nn.Sequential`` networks."""

    name = "feed-forward"
    network = nn.Sequential
    network_name = "torch.nn.Sequential"
    command = "surefoot._feed_forward.command"
    tour = "surefoot._feed_forward.command_tour"
    report = "surefoot._feed_forward.report"
    words = WORDS
    plans = planner.PLANS
    default_theorem = local.THEOREM.id
    rules = RULES
    fixed = frozenset()
    engines = (Engine.name, minibatch.MinibatchEngine.name)
    of_batches = sgd.THEOREM.id

    def linear_layers(self, net: nn.Sequential) -> Sequence[Tensor]:
        """Those of ``Linear`` modules without biases or activations, all in float64."""
        layers = layers_of(net)
        found = [] if in_float32(layers) else linear_product(layers)
        if found:
            exactly(layers)  # its errors name the modules
        return found

    def problem(self, net: nn.Sequential, loss: Loss) -> Trained:
        """The loss with how the layers of the network are made, and the batches that it draws, if it does.

        Raises:
            TypeError: another kind of loss, or a module that is not supported.
            ValueError: see ``modules.layers_of``, shapes or devices that do not fit, or an objective of a network with kinks.
        """
        found = self._problem(net, loss)
        if isinstance(loss, NetworkLoss) and isinstance(found, NetworkLoss):
            found.draws = loss.draws
        return found

    def drawn(self, net: nn.Sequential, X: Any, Y: Any, drawing: Drawing) -> NetworkLoss:
        """See ``_core.system.Stochastic``."""
        found = self._problem(net, X if Y is None else SampleLoss(X, Y))
        if isinstance(found, NetworkObjective):
            raise ValueError(
                f"{self.of_batches} speaks of mini-batches near an exact fit, and {self.usual(found)[1]}; pass "
                "sf.SquaredLoss(X, Y), which may be fitted"
            )
        found.draws = drawing(len(found.X))
        return found

    def _problem(self, net: nn.Sequential, loss: Loss) -> Trained:
        layers = layers_of(net)
        frozen = exactly(layers, trained=False) | extra(layers)
        if isinstance(loss, NetworkObjective):  # a problem of this system is one already
            loss = loss.loss
        if isinstance(loss, TorchLoss):
            _require_fit(layers, loss.X, layers[-1].outputs if loss.entropy else loss.targets.shape[1])
            loss.require_classes(layers[-1].outputs)
            if not loss.entropy and loss.weight_decay == 0.0:
                fit = NetworkLoss(loss.X, loss.targets, *table(layers), frozen, loss.multiple)
                if fit.merged[1].numel() <= sum(weight.numel() for weight in weights_of(layers).values()):
                    return fit
            require_smooth(layers)
            return NetworkObjective(loss, *table(layers), frozen)
        _require_loss(loss)
        samples = sample_loss(
            loss, ", or with a penalty of the weights sf.TorchLoss(nn.MSELoss(), X, Y, weight_decay=...)"
        )
        _require_fit(layers, samples.X, samples.Y.shape[1])
        multiple = loss.multiple if isinstance(loss, NetworkLoss) else Fraction(1)
        return NetworkLoss(samples.X, samples.Y, *table(layers), frozen, multiple)

    def usual(self, loss: Trained) -> tuple[Theorem, str]:
        """``minimum`` for a training objective, ``local`` for a loss that can be fitted exactly."""
        if not isinstance(loss, NetworkObjective):
            if loss.draws is not None:
                return sgd.THEOREM, ""
            mean = "squared errors without weight decay can be fitted exactly where no fewer numbers are trained than fitted"
            return local.THEOREM, "" if loss.multiple == 1 else mean
        if loss.loss.entropy:
            why = "a cross-entropy has no exact fit"
        elif loss.loss.weight_decay > 0.0:
            why = "with a weight decay no exact fit is a minimum"
        else:
            why = "with more outputs than trained numbers there is no exact fit"
        return minimum.THEOREM, why

    def watched(self, loss: Trained) -> Theorem:
        """The usual one."""
        return self.usual(loss)[0]

    def features(self, net: nn.Sequential, loss: Trained) -> list[Tensor]:
        """See ``features.features``."""
        return features(net, loss.X)

    def objective(self, net: nn.Sequential, loss: Trained) -> Tensor:
        """The squared loss less its least value, or the training objective."""
        found = {name: weight.double() for name, weight in weights_of(layers_of(net)).items()}
        return loss.value({name: weight.flatten(1) if weight.ndim > 2 else weight for name, weight in found.items()})

    def stands_for(self, theorem: Theorem, loss: Trained) -> Theorem:
        """Itself, where the loss is one that it speaks of."""
        usual, why = self.usual(loss)
        self.speaks_of(theorem, usual is sgd.THEOREM)
        if usual is minimum.THEOREM and theorem is not usual:
            raise ValueError(
                f"{theorem.id} speaks of an exact fit, and {why}; leave theorem out for {usual.id}, or pass "
                "sf.SquaredLoss(X, Y), which may be fitted"
            )
        if theorem is minimum.THEOREM and theorem is not usual:
            raise ValueError(
                f"{theorem.id} speaks of a training objective without exact fits, and {why or 'a squared loss may have one'}; "
                f"leave theorem out for {usual.id}, or pass for example sf.TorchLoss(nn.MSELoss(), X, Y, weight_decay=1e-3)"
            )
        return theorem

    def reduced(self, net: nn.Sequential, loss: Trained) -> dict[str, Tensor]:
        """Those that are trained of W1 (outputs, inputs), b1 (outputs,) and so on, as copies in float64, exactly.

        Raises:
            TypeError: weights that are neither float64 nor float32.
            ValueError: non-finite weights.
        """
        return exactly(layers_of(net))

    def measured(self, net: nn.Sequential, loss: Trained, theorem: Theorem) -> Measured:
        """Of the Jacobian or the Hessian at the current weights, and its change on the least ball that will do."""
        with checkable("the network or the data is", SCALE):
            if isinstance(loss, NetworkLoss) and loss.draws is not None:
                return minibatch.measured(rigorous.Measured(*self._stored(net, loss)), loss.draws)
            return measured_at(measured(*self._stored(net, loss)), theorem)

    def _stored(self, net: nn.Sequential, loss: Trained) -> tuple[network.Network, dict[str, np.ndarray]]:
        """Problem and weights as the checker has them."""
        return self.stored_at(loss, self.reduced(net, loss))

    def stored_at(self, loss: Trained, at: Mapping[str, Tensor]) -> tuple[network.Network, dict[str, np.ndarray]]:
        """The same at other weights."""
        return stored(CHECKED, loss, at)

    def suggestion(
        self,
        net: nn.Sequential,
        loss: Trained,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """Other data, another network, or how far the training has to go on; of float32 weights what ``.double()`` changes."""
        layers = layers_of(net)
        narrow = bool(failed) and in_float32(layers)
        if narrow and len(linear_product(layers)) == 2:
            return (
                "call .double() on the network: in float64 two linear layers without biases are a two-layer network, with "
                "theorems of its own"
            )
        said = self._suggestion(net, loss, theorem, measured, failed, quantities)
        return f"{said}; call .double() on the network first, as runs need float64 weights" if narrow else said

    def _suggestion(
        self,
        net: nn.Sequential,
        loss: Trained,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """The same, whatever the dtype of the weights."""
        if isinstance(loss, NetworkObjective):
            return suggestion_for_minimum(loss, failed, quantities)
        if any("outputs than parameters" in name for name in failed):
            return (
                f"{WIDER}: with more outputs (rows times those of the network) than parameters, the Jacobian cannot have full "
                f"row rank; {INSTEAD}"
            )
        assert isinstance(measured, MeasuredAt) and isinstance(measured.at, rigorous.Measured)
        if any("full row rank" in name for name in failed):
            return _nearest_kink(net, measured.at, 0.0) or without_rank(loss, int(measured.sizes["p"]))
        kinked = any("kink" in name for name in failed) and not too_far(failed)
        if theorem is sgd.THEOREM and failed and not kinked:
            return minibatch.suggestion(failed, quantities, FINISH)
        if not failed:
            return ""
        said = _nearest_kink(net, measured.at, quantities["ball"]) if kinked else nearer(theorem, quantities)
        return said + near_already(exact_fit.THEOREM, theorem, partial(measured_at, measured.at))

    def advice(self, net: nn.Sequential, loss: Trained, certificate: Certificate) -> str:
        """The spectrum of the Jacobian or the Hessian, and what lowers the count."""
        q = certificate.quantities
        if certificate.theorem == sgd.THEOREM.id:
            return (
                f"the singular values of the Jacobian reach from {q['sigma_min_J']:.3g} to {q['norm_J_ball']:.3g}; nearer to the "
                "fit, and with larger batches, fewer steps are guaranteed"
            )
        if isinstance(loss, NetworkObjective):
            return (
                f"the eigenvalues of the Hessian reach from {q['lambda_min_H']:.3g} to {q['norm_H']:.3g}; more weight decay or "
                "standardised inputs bring them nearer together, and sf.newton(net, loss) needs no such count"
            )
        if certificate.theorem == exact_fit.THEOREM.id:
            return (
                "the Newton step is nearly as long as it may be; after a step or two of "
                'sf.descend(net, loss, steps="gauss-newton") it is not'
            )
        return (
            f"the singular values of the Jacobian reach from {q['sigma_min_J']:.3g} to {q['norm_J']:.3g}, of which "
            f"{q['sigma_star']:.3g} are kept; a wider network, standardised inputs or fewer rows bring them nearer "
            f"together, and {exact_fit.THEOREM.id} guarantees a fit by Newton steps, whose count does not depend on them"
        )

    def rebuild(
        self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[nn.Sequential, Trained]:
        """The network and loss of a run directory.

        Raises:
            ValueError: arrays that do not fit together.
        """
        try:
            kept = {name for name in problem if network.NAMED.fullmatch(name)} | set(network.OPTIONAL)
            frozen = {name: tensor for name, tensor in problem.items() if name in kept}
            loss = _loss(kind, problem, frozen)
            net = build(loss.layers, loss.settings, weights, frozen)
            self._stored(net, loss)
        except (KeyError, FormatError) as error:
            raise ValueError(f"the run has no network that fits its problem ({error}); restore its files") from error
        return net, loss

    def engine(self, net: nn.Sequential, loss: Trained, name: str) -> Engine | minibatch.MinibatchEngine:
        """The one engine of a loss: all weights, by the full gradient or by that of batches.

        Raises:
            TypeError: a network in float32, into which the iterates of a run would not fit.
        """
        if any(parameter.dtype is not torch.float64 for parameter in net.parameters()):
            raise TypeError(
                "net has weights in float32; it is certified as its exact copy in float64, and a run is of that copy: "
                "pass copy.deepcopy(net).double()"
            )
        start = self.reduced(net, loss)
        if isinstance(loss, NetworkLoss) and loss.draws is not None:
            return minibatch.MinibatchEngine(loss, start)
        return Engine(loss, start, partial(self._resolution_at, loss, start))

    def write(self, net: nn.Sequential, loss: Trained, weights: Mapping[str, Tensor]) -> None:
        """Put the weights back."""
        put_back(layers_of(net), weights)

    def resolution(self, net: nn.Sequential, loss: Trained) -> float:
        """Of the rounding of the residual, or of the gradient."""
        return self._resolution_at(loss, self.reduced(net, loss))

    def _resolution_at(self, loss: Trained, at: Mapping[str, Tensor]) -> float:
        problem, weights = self.stored_at(loss, at)
        if isinstance(loss, NetworkObjective):
            assert isinstance(problem, network.Objective)
            error = rounding(problem, weights, loss, at)
        else:
            error = rigorous.Measured(problem, weights).residual.error
        return 0.5 * error * error if math.isfinite(error) else 0.0

    def audit(self, trace: Rows, certificate: Certificate, resolution: float) -> Audit:
        """See ``_core.near_a_fit.audit``, of mini-batches ``_core.sgd.audit``."""
        if certificate.theorem == self.of_batches:
            return audit_of_batches(trace, certificate, resolution)
        return audit(trace, certificate, resolution)


def _require_loss(loss: object) -> None:
    """Raise ``TypeError`` that says how to wrap one of torch, or what else to pass, where the loss is none of this library."""
    if isinstance(loss, nn.MSELoss | nn.CrossEntropyLoss):
        raise TypeError(
            f"loss is {kind_of(loss)}, which has no data; wrap it: sf.TorchLoss(loss, X, targets, weight_decay) asks for a "
            "minimum, and sf.SquaredLoss(X, Y) for an exact fit"
        )
    if not isinstance(loss, SampleLoss | SquaredLoss):
        raise TypeError(
            f"loss is {kind_of(loss)}; pass sf.SquaredLoss(X, Y) for an exact fit, or sf.TorchLoss(criterion, X, targets, "
            "weight_decay) with nn.MSELoss() or nn.CrossEntropyLoss() for a minimum"
        )


def _require_fit(layers: list[Layer], X: Tensor, outputs: int) -> None:
    """Raise ``ValueError`` where the layers do not fit together, or to data of so many outputs."""
    sizes = layers[0].inputs, layers[-1].outputs
    if sizes != (X.shape[1], outputs):
        raise ValueError(
            f"net maps {sizes[0]} inputs to {sizes[1]} outputs, the loss has {X.shape[1]} inputs and {outputs} outputs; "
            "build the network with as many"
        )
    for before, layer in itertools.pairwise(layers):
        if before.outputs != layer.inputs:
            raise ValueError(
                f"net[{layer.name}] takes {layer.inputs} inputs, and the layer before gives "
                f"{before.outputs}; they must agree"
            )
    weight = next(iter(weights_of(layers).values()))
    holds_numbers("net", weight)
    device = weight.device
    if device != X.device:
        raise ValueError(f"net is on {device} and the loss on {X.device}; move one of them")


def _loss(kind: str, problem: Mapping[str, Tensor], frozen: Mapping[str, Tensor]) -> Trained:
    """That of a run directory."""
    layers, settings = problem["layers"], problem["settings"]
    if kind in (network.Network.kind, network.MultipleOfSquares.kind):
        multiple = Fraction(*problem["multiple"].reshape(-1).tolist()) if "multiple" in problem else Fraction(1)
        return NetworkLoss(problem["X"], problem["Y"], layers, settings, frozen, multiple)
    decay, mean, *smoothing = problem["objective"].reshape(-1).tolist()
    how = "mean" if mean else "sum"
    if "labels" in problem:
        weights = problem["classes"].reshape(-1) if "classes" in problem else None
        criterion = nn.CrossEntropyLoss(weights, reduction=how, label_smoothing=sum(smoothing))
        found = TorchLoss(criterion, problem["X"], problem["labels"].reshape(-1), decay)
    else:
        found = TorchLoss(nn.MSELoss(reduction=how), problem["X"], problem["Y"], decay)
    return NetworkObjective(found, layers, settings, frozen)


def _nearest_kink(net: nn.Sequential, at: rigorous.Measured, ball: float) -> str:
    """Which pre-activation is nearest to a kink, beside its change on the ball; on one of radius 0, which lies on a kink."""
    margins = at.kink_margins(ball)
    kinked = [(number, layer) for number, layer in enumerate(margins, 1) if layer is not None]
    number, nearest = min(kinked, key=lambda layer: float(layer[1].min()), default=(0, np.full(1, math.inf)))
    value = float(nearest.min())
    if ball == 0.0 and value > 0.0:
        return ""
    row, unit = np.unravel_index(int(nearest.argmin()), nearest.shape)
    layer = layers_of(net)[number - 1]
    pooled = layer.geometry is not None and not layer.parameters
    maximum = f" (of {type(layer.linear).__name__}: where its largest entry changes)" if pooled else ""
    where = f"layer {number}, row {row} of X, unit {unit}{maximum}"
    if value == 0.0:
        return f"{where} lies on a kink (or nearer than rounding): train on, or use a smooth activation such as GELU"
    return past_the_kink(where, value)
