"""A small instance of every system with the data and the weights scaled at will, and what became of its certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from deconvolution_pictures import kernel
from draws import normal

import surefoot as sf
from surefoot._core.plans import PLANS
from surefoot.deconvolution import LADMM, TVADMM, DeconvolutionProblem, PeriodicBlur, TotalVariationProblem
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

Instance = tuple[Any, Any]
"""A network and its loss; ``None`` for a learned inverse, which has its interval."""


def two_layer(loss: Any, first: float, second: float) -> Instance:
    """A network of width n + m + 1, its layers scaled."""
    n, m = loss.shape
    W1, W2 = normal(n, n + m + 1, seed=3), normal(m, n + m + 1, seed=4)
    return sf.nn.TwoLayerLinear(first * W1, second * W2), loss


def squared(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of X, Y, W1 and W2."""
    return two_layer(sf.SquaredLoss(a * normal(8, 3, seed=1), b * normal(8, 2, seed=2)), c, d)


def sensing(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of A, y, W1 and W2; fewer measurements than entries."""
    return two_layer(sf.MatrixSensing(a * normal(4, 3, 2, seed=1), b * normal(4, seed=2)), c, d)


def completion(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of the values of two rows, one of them observed twice, of W1 and of W2."""
    values = torch.tensor([a, a, b, b, b], dtype=torch.float64) * normal(5, seed=2)
    return two_layer(sf.MatrixCompletion([0, 0, 2, 2, 2], [0, 1, 0, 1, 1], values, (3, 2)), c, d)


def softmax(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of X, the penalty, W1 and W2."""
    return two_layer(sf.SoftmaxRegression(a * normal(8, 3, seed=1), torch.arange(8) % 2, 0.1 * b), c, d)


def zero_resnet(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of X, Y, A and B, with residual weights 0."""
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 2, 60.0)
    loss = sf.SquaredLoss(a * normal(8, 2, seed=0), b * normal(8, 2, seed=1))
    return sf.nn.LinearResNet(c * net.A, d * net.B, net.W.detach()), loss


def resnet(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of the data, B and each of two layers."""
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 2, 60.0)
    W = 1e-2 * normal(2, 4, 4, seed=5) * torch.tensor([c, d], dtype=torch.float64)[:, None, None]
    X = a * normal(8, 2, seed=0)
    return sf.nn.LinearResNet(net.A, b * net.B, W), sf.SquaredLoss(X, X)


@cache
def certifiable() -> tuple[sf.nn.ImplicitReLU, torch.Tensor, torch.Tensor]:
    """An implicit network that is certified on inputs of norm 1 and targets of ±1."""
    X, y = normal(5, 4, seed=0), normal(5, seed=1).sign()
    X = X / X.norm(dim=1, keepdim=True)
    return sf.nn.ImplicitReLU.certifiable(X, y, 20, seed=0), X, y


def implicit(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of X, y and W; of b and, downwards, of A, whose norm is that of a contraction."""
    net, X, y = certifiable()
    A, out = net.A.detach() * min(d, 1.0), net.b.detach() * d
    return sf.nn.ImplicitReLU(c * net.W.detach(), A, out, net.gamma), sf.SquaredLoss(a * X, b * y)


def steps(problems: Any) -> Instance:
    """Learned step sizes on problems with a coarse minimiser, which is witness enough: the search for a good one takes long where
    the penalty vanishes beside the data."""
    if 1e-40 < float(problems.M.abs().max()) < 1e40:
        problems.optimum(1e12)
    return sf.nn.StepSizeNet.orthogonal((2, 2), (1.0, 1.9)), problems


def least_squares(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of M and Y."""
    return steps(sf.learned.LeastSquares(a * normal(2, 5, 3, seed=1), b * normal(2, 5, seed=2)))


def lasso(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of M, Y and the penalty."""
    return steps(sf.learned.Lasso(a * normal(2, 5, 3, seed=1), b * normal(2, 5, seed=2), 0.1 * c))


def logistic(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of M and of both penalties."""
    return steps(sf.learned.Logistic(a * normal(2, 5, 3, seed=1), normal(2, 5, seed=2).sign(), 0.1 * b, 0.1 * c))


def inverse(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of the ends of the interval, of the second layer and of all coefficients."""
    C = torch.ones(3, 3, dtype=torch.float64)
    C[1] *= c
    return sf.nn.LearnedInverse(d * C, interval=(0.2 * a, 1.5 * b)), None


def deconvolution(a: float, b: float, c: float, d: float) -> Instance:
    """Scales of the picture, the kernel, the penalty and β."""
    picture = torch.rand(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return LADMM(0.5 * d), DeconvolutionProblem(a * picture, PeriodicBlur(b * kernel(3, 2), (6, 5)), 0.05 * c)


def total_variation(a: float, b: float, c: float, d: float) -> Instance:
    """The same."""
    picture = torch.rand(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return TVADMM(0.5 * d), TotalVariationProblem(a * picture, PeriodicBlur(b * kernel(3, 2), (6, 5)), 0.05 * c)


Build = Callable[[float, float, float, float], Instance]
BUILDERS: dict[str, tuple[str, Build]] = {
    "squared": ("two-layer", squared),
    "sensing": ("two-layer", sensing),
    "softmax": ("two-layer", softmax),
    "zero-resnet": ("linear-resnet", zero_resnet),
    "resnet": ("linear-resnet", resnet),
    "implicit": ("implicit", implicit),
    "least-squares": ("step-sizes", least_squares),
    "lasso": ("step-sizes", lasso),
    "logistic": ("step-sizes", logistic),
    "inverse": ("inverse", inverse),
    "deconvolution": ("deconvolution/ladmm", deconvolution),
    "total-variation": ("deconvolution/tv", total_variation),
}
"""System and instance by name."""
PAIRS = [(name, theorem) for name, (system, _) in BUILDERS.items() for theorem in PLANS if theorem.startswith(system)]
"""Every instance with every theorem of its system."""


ADVICE = ("scale", "divide", "use ", "pass ", "it must be", "remove", "proves nothing", "gives no certificate")
"""What a message says to do, or that there is nothing to do."""


def faults(certificate: sf.Certificate) -> Iterator[str]:
    """What is wrong with the published numbers of a certificate that holds."""
    numbers = {**certificate.quantities, "optimal value": certificate.optimal_value}
    yield from (f"{name} is {value}" for name, value in numbers.items() if not math.isfinite(value))
    if certificate.step_size is None or certificate.rate is None:
        yield "there is no schedule"
        return
    steps = PLANS[certificate.theorem].theorem.positive_steps and certificate.initial_gap > 0.0
    if not (certificate.step_size > 0.0 if steps else certificate.step_size >= 0.0):
        yield f"the first step is {certificate.step_size}"
    if not 0.0 <= certificate.rate <= 1.0:
        yield f"the rate is {certificate.rate}"
    bounds = [certificate.bound(t) for t in (0, 1, 2, 3, 5, 1000, 10**9, 10**18)]
    if not all(0.0 <= bound < math.inf for bound in bounds) or (certificate.initial_gap > 0.0) != (bounds[-1] > 0.0):
        yield f"bounds are {bounds}"
    # layers may do harm; and schedules go on at a level above what would underflow
    if certificate.system != "inverse" and any(b > max(a * (1.0 + 1e-9), 1e-290) for a, b in pairwise(bounds)):
        yield f"bounds rise: {bounds}"
    counts = [certificate.iterations_to(relative) for relative in (0.1, 1e-6, 1e-12)]
    if not all(a <= b for a, b in pairwise([0.0, *counts])):
        yield f"counts are {counts}"
    if sf.Certificate.from_json(certificate.to_json()) != certificate:
        yield "the file is another certificate"


def outcome(instance: Callable[[], Instance], theorem: str, directory: Path) -> str:
    """``refused`` with a message that says what to do, ``fails`` with a condition that does, ``refuted``, or ``accept`` by the
    checker, of a run of two iterations; anything else is a fault.

    A picture's two iterations would be judged by their rounding where the intensities vanish beside the penalty: of that system
    the start alone is stored.
    """
    try:
        net, loss = instance()
        certificate = sf.certify(net, theorem=theorem) if loss is None else sf.certify(net, loss, theorem)
    except ValueError as error:
        return "refused" if any(word in str(error) for word in ADVICE) else f"refused without advice: {error}"
    if not certificate.holds:
        failed = any(not condition.holds for condition in certificate.conditions)
        refuted = certificate.status is sf.CertificateStatus.REFUTED
        return certificate.status.value if failed or refuted else "fails without a condition"
    text = "; ".join(faults(certificate))
    if text or not PLANS[theorem].theorem.provable:
        return text or "holds, unproved"
    if loss is None:
        net.save_certificate(directory, theorem=theorem)
    else:
        count = 0 if certificate.system == "deconvolution" else 2
        sf.descend(net, loss, None, count, 0.0, certificate=certificate, directory=directory, progress=False)
    report = check(directory)
    if report.outcome is Outcome.ACCEPT:
        return "accept"
    return "; ".join(str(line) for line in report.lines if line.outcome is not Outcome.ACCEPT)
