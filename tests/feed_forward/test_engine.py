"""What a step costs: each set of weights is evaluated once, forward and backward, however often a rule asks for it."""

from __future__ import annotations

import pytest
import torch
from good_runs import nearly_fitted

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._feed_forward.engine import Fit, followed
from surefoot._feed_forward.loss import NetworkLoss


@pytest.mark.parametrize("rule", ["floor", "certified-bb"])
def test_each_iterate_is_evaluated_once(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, loss = nearly_fitted()
    certificate = sf.certify(net, loss)
    assert certificate.holds
    seen: list[torch.Tensor] = []
    value = NetworkLoss.value

    def counted(self: NetworkLoss, trained: dict[str, torch.Tensor]) -> torch.Tensor:
        seen.append(torch.cat([weight.detach().reshape(-1) for weight in trained.values()]))
        return value(self, trained)

    monkeypatch.setattr(NetworkLoss, "value", counted)
    run = sf.descend(net, loss, rule, 12, 0.0, certificate=certificate, progress=False)
    assert len(run.gaps) == 13
    assert len(seen) >= 13 and len(torch.unique(torch.stack(seen), dim=0)) == len(seen)
    assert rule != "floor" or len(seen) == 13


def test_a_turned_iterate_has_a_gradient_of_its_own() -> None:
    net, loss = nearly_fitted()
    system = system_of(net)
    problem = system.problem(net, loss)
    here = Fit(problem, system.reduced(net, problem), system.reduced(net, problem))
    turned = here.turned(here.newton_step(here.inverse))
    for name, of_other in turned.gradient.items():
        assert torch.equal(here.gradient[name], of_other)
    there = turned.after(0.5)
    assert turned.after(0.5) is there and turned.after(0.25) is not there
    leaves, value = followed(problem, there.at)
    assert float(value.detach()) == there.gap < here.gap and set(leaves) == set(there.gradient)
