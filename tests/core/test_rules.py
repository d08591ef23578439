"""Every step rule on every system that descends: it runs, or an error before the first step says what it needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from deconvolution_pictures import kernel
from draws import normal
from good_runs import nearly_fitted

import surefoot as sf
from surefoot._core.engine import Iterate
from surefoot._core.registry import SYSTEMS, descendable_of
from surefoot._core.steps import Constant, SafeguardedBB, StepRule
from surefoot._core.system import Descendable
from surefoot.deconvolution import LADMM, DeconvolutionProblem, PeriodicBlur


def _two_layer() -> tuple[Any, Any]:
    return sf.nn.TwoLayerLinear.gaussian(4, 2, 12), sf.SquaredLoss(normal(20, 4, seed=0), normal(20, 2, seed=1))


def _linear_resnet() -> tuple[Any, Any]:
    net = sf.nn.LinearResNet.modified_identity(2, 2, 4, 3, 60.0)
    return net, sf.SquaredLoss(normal(8, 2, seed=0), normal(8, 2, seed=1))


def _implicit() -> tuple[Any, Any]:
    X = normal(5, 4, seed=0)
    X, y = X / X.norm(dim=1, keepdim=True), normal(5, seed=1).sign()
    return sf.nn.ImplicitReLU.certifiable(X, y, 20), sf.SquaredLoss(X, y)


def _step_sizes() -> tuple[Any, Any]:
    return sf.nn.StepSizeNet.orthogonal(seed=0), sf.learned.LeastSquares.random(2, 4, 5, seed=0)


def _deconvolution() -> tuple[Any, Any]:
    return LADMM(0.5), DeconvolutionProblem(normal(6, 5, seed=1), PeriodicBlur(kernel(3, 2, 0), (6, 5)), 0.05)


INSTANCES = {
    "two-layer": _two_layer,
    "linear-resnet": _linear_resnet,
    "implicit": _implicit,
    "feed-forward": nearly_fitted,
    "step-sizes": _step_sizes,
    "deconvolution": _deconvolution,
}
DESCENDABLE = {system.name: system for system in SYSTEMS if isinstance(system, Descendable)}
RULES = sorted(
    {rule for s in DESCENDABLE.values() for rule in s.rules.values()}, key=lambda rule: rule.__module__ + rule.name
)


def _made(rule: type[StepRule]) -> StepRule:
    return Constant(1e-3) if rule is Constant else rule()


def test_every_system_that_descends_has_an_instance() -> None:
    assert set(INSTANCES) == set(DESCENDABLE)


@pytest.mark.parametrize("name", INSTANCES)
def test_an_iterate_has_what_descent_asks_for(name: str) -> None:
    net, loss = INSTANCES[name]()
    system = descendable_of(net)
    iterate = system.engine(net, system.problem(net, loss), "auto").iterate
    assert isinstance(iterate, Iterate)
    assert iterate.measurements["gap"] == iterate.gap


@pytest.mark.parametrize("name", INSTANCES)
def test_every_rule_runs_or_says_what_it_needs(name: str) -> None:
    net, loss = INSTANCES[name]()
    own, certificate, refused = set(DESCENDABLE[name].rules.values()), sf.certify(net, loss), 0
    for kind in RULES:
        net, loss = INSTANCES[name]()
        rule = _made(kind)
        try:
            run = sf.descend(net, loss, rule, 2, certificate=certificate, progress=False)
        except (TypeError, ValueError) as error:
            refused += 1
            said = str(error)
            assert "steps" in said, (rule.name, said)
            if kind in own:  # of another theorem or loss
                assert "needs a certificate of" in said or "needs a training objective" in said, (rule.name, said)
        else:
            assert run.rule == rule.name and run.iterations <= 2
    assert 0 < refused < len(RULES)


def test_the_error_names_what_is_missing_and_what_to_use() -> None:
    net, loss = _linear_resnet()
    with pytest.raises(
        TypeError, match=r"steps='local' needs printed .* 'linear-resnet' has not; use one of 'certified-bb'"
    ):
        sf.descend(net, loss, sf.steps.Local(), progress=False)


class _Refusing(SafeguardedBB):
    """Admits nothing, and has no safe step."""

    name = "refusing"

    def safe(self, engine: Any) -> float:
        return 0.0

    def admits(self, engine: Any, eta: float, safe: float) -> bool:
        return False


def test_a_proposal_that_nothing_admits_is_not_shrunk_for_ever() -> None:
    rule = _Refusing()
    rule.start(None, None)
    iterate = SimpleNamespace(gradient_squared=1.0, safe_step=1.0)
    assert rule.step(SimpleNamespace(iterate=iterate, alignment=0.0)) == 0.0
