"""The feed-forward system as the core sees it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from surefoot_check.arrays import FormatError
from surefoot_check.feed_forward import SYSTEM as CHECKED
from surefoot_check.feed_forward import enclosures as rigorous
from surefoot_check.feed_forward import local, network
from surefoot_check.statement import Theorem

from .._core.audit import Audit, Rows
from .._core.certificate import SCALE, Certificate, checkable, publish
from .._core.losses import Loss
from .._core.measuring import stored
from .._core.samples import sample_loss
from .._core.system import Descendable, Measured
from . import planner
from .audit import audit
from .engine import Engine
from .loss import NetworkLoss
from .modules import build, exactly, layers_of, table, weights_of
from .steps import RULES
from .words import WORDS


class FeedForwardSystem(Descendable[nn.Sequential, NetworkLoss]):
    """Theorems, engine and rules of plain ``torch.nn.Sequential`` networks."""

    name = "feed-forward"
    network = nn.Sequential
    network_name = "torch.nn.Sequential"
    command = "surefoot._feed_forward.command"
    words = WORDS
    plans = planner.PLANS
    default_theorem = local.THEOREM.id
    rules = RULES
    engines = (Engine.name,)

    def problem(self, net: nn.Sequential, loss: Loss) -> NetworkLoss:
        """The squared loss with how the layers of the network are made.

        Raises:
            TypeError: another kind of loss, or a module that is not supported.
            ValueError: see ``modules.layers_of``, or shapes or devices that do not fit.
        """
        layers, samples = layers_of(net), sample_loss(loss)
        (_, d), k = samples.X.shape, samples.Y.shape[1]
        inputs, outputs = layers[0].linear.in_features, layers[-1].linear.out_features
        if (inputs, outputs) != (d, k):
            raise ValueError(
                f"net maps {inputs} inputs to {outputs} outputs, the loss has {d} inputs and {k} outputs; "
                "build the network with as many"
            )
        for before, layer in itertools.pairwise(layers):
            if before.linear.out_features != layer.linear.in_features:
                raise ValueError(
                    f"net[{layer.name}] takes {layer.linear.in_features} inputs, and the layer before gives "
                    f"{before.linear.out_features}; they must agree"
                )
        if layers[0].linear.weight.device != samples.X.device:
            raise ValueError(
                f"net is on {layers[0].linear.weight.device} and the loss on {samples.X.device}; move one of them"
            )
        frozen = {name: exactly(name, weight) for name, weight in weights_of(layers, trained=False).items()}
        return NetworkLoss(samples.X, samples.Y, *table(layers), frozen)

    def reduced(self, net: nn.Sequential, loss: NetworkLoss) -> dict[str, Tensor]:
        """Those that are trained of W1 (outputs, inputs), b1 (outputs,) and so on, as copies in float64, exactly.

        Raises:
            TypeError: weights that are neither float64 nor float32.
            ValueError: non-finite weights.
        """
        return {name: exactly(name, weight) for name, weight in weights_of(layers_of(net)).items()}

    def measured(self, net: nn.Sequential, loss: NetworkLoss, theorem: Theorem) -> Measured:
        """Of the Jacobian at the current weights, and its change on the least ball that will do."""
        with checkable("the network or the data is", SCALE):
            problem, weights = self._stored(net, loss)
            at = rigorous.Measured(problem, weights)
            found = at.base_quantities({})
            choices: dict[str, float] = {}
            sigma = found.get("sigma_min_J", (0.0, 0.0))[0]
            if sigma > 0.0 and "initial_gap" in found:
                r0 = math.sqrt(2.0 * found["initial_gap"][1])
                choices = {"ball": planner.choose_ball(planner.lipschitz(at), sigma, r0)}
                found = at.base_quantities(choices)
            return Measured(publish(found, local.DIRECTIONS), network.sizes(problem, weights), [choices])

    def _stored(self, net: nn.Sequential, loss: NetworkLoss) -> tuple[network.Network, dict[str, np.ndarray]]:
        """Problem and weights as the checker has them."""
        return stored(CHECKED, loss, self.reduced(net, loss))

    def suggestion(
        self,
        net: nn.Sequential,
        loss: NetworkLoss,
        theorem: Theorem,
        measured: Measured,
        failed: Sequence[str],
        quantities: Mapping[str, float],
    ) -> str:
        """Other data, another network, or how far the training has to go on."""
        if any("outputs than parameters" in name for name in failed):
            return "use a wider network or fewer rows: with more outputs than parameters, no exact fit is isolated from failure"
        if any("full row rank" in name for name in failed):
            return self._nearest_kink(net, loss, 0.0) or _without_rank(loss)
        if any("kink" in name for name in failed):
            return self._nearest_kink(net, loss, quantities["ball"])
        if failed:
            r0 = quantities["r0"]
            needed = quantities["sigma_min_J"] ** 2 / (2.0 * quantities["lipschitz_J"])
            return (
                f"train on, with any optimiser, until the norm of the residual is about {min(needed, r0):.3g} "
                f"(now {r0:.3g}), and certify again"
            )
        return ""

    def _nearest_kink(self, net: nn.Sequential, loss: NetworkLoss, ball: float) -> str:
        """Which pre-activation is nearest to a kink, beside its change on the ball; on one of radius 0, which lies on a kink."""
        margins = rigorous.Measured(*self._stored(net, loss)).kink_margins(ball)
        least = [(float(found.min()), number, found) for number, found in enumerate(margins, 1) if found is not None]
        value, number, found = min(least, key=lambda it: it[:2], default=(math.inf, 0, np.empty(0)))
        if ball == 0.0 and value > 0.0:
            return ""
        row, unit = np.unravel_index(int(found.argmin()), found.shape)
        where = f"layer {number}, row {row} of X, unit {unit}"
        if value == 0.0:
            return (
                f"{where} lies on a kink (or nearer than rounding): train on, or use a smooth activation such as GELU"
            )
        return (
            f"train on: nearest to a kink is {where}, whose distance to it is {value:.3g} of what may be passed in the ball; "
            "a residual smaller by that factor will do"
        )

    def advice(self, net: nn.Sequential, loss: NetworkLoss, certificate: Certificate) -> str:
        """The spectrum of the Jacobian, and what lowers the count."""
        q = certificate.quantities
        return (
            f"the singular values of the Jacobian reach from {q['sigma_min_J']:.3g} to {q['norm_J']:.3g}, of which "
            f"{q['sigma_star']:.3g} are kept; a wider network, standardised inputs or fewer rows bring them nearer together"
        )

    def rebuild(
        self, kind: str, problem: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[nn.Sequential, NetworkLoss]:
        """The network and loss of a run directory.

        Raises:
            ValueError: arrays that do not fit together.
        """
        try:
            frozen = {name: tensor for name, tensor in problem.items() if name not in network.Network.dimensions}
            loss = NetworkLoss(problem["X"], problem["Y"], problem["layers"], problem["settings"], frozen)
            net = build(loss.layers, loss.settings, weights, frozen)
            self._stored(net, loss)
        except (KeyError, FormatError) as error:
            raise ValueError(f"the run has no network that fits its problem ({error}); restore its files") from error
        return net, loss

    def engine(self, net: nn.Sequential, loss: NetworkLoss, name: str) -> Engine:
        """The one engine: all weights.

        Raises:
            TypeError: a network in float32, into which the iterates of a run would not fit.
        """
        if any(parameter.dtype is not torch.float64 for parameter in net.parameters()):
            raise TypeError(
                "net has weights in float32; it is certified as its exact copy in float64, and a run is of that copy: "
                "pass copy.deepcopy(net).double()"
            )
        return Engine(loss, self.reduced(net, loss))

    def write(self, net: nn.Sequential, loss: NetworkLoss, weights: Mapping[str, Tensor]) -> None:
        """Put the weights back."""
        with torch.no_grad():
            for name, weight in weights_of(layers_of(net)).items():
                weight.copy_(weights[name])

    def resolution(self, net: nn.Sequential, loss: NetworkLoss) -> float:
        """Of the rounding of the residual."""
        error = rigorous.Measured(*self._stored(net, loss)).residual.error
        return 0.5 * error * error if math.isfinite(error) else 0.0

    def audit(self, trace: Rows, certificate: Certificate, resolution: float) -> Audit:
        """See ``audit.audit``."""
        return audit(trace, certificate, resolution)


def _without_rank(loss: NetworkLoss) -> str:
    """Why the Jacobian has no full row rank."""
    _, inverse, counts = torch.unique(loss.X, dim=0, return_inverse=True, return_counts=True)
    if int(counts.max()) > 1:
        first, second = (int(i) for i in (inverse == counts.argmax()).nonzero()[:2, 0])
        return (
            f"rows {first} and {second} of X are equal, so that their outputs are too: keep one row of each, with the mean "
            "of their targets"
        )
    return (
        "the Jacobian has no full row rank that can be certified: units may be dead or saturated, or rows nearly equal; "
        "use a wider network, smaller weights or fewer rows"
    )
