"""Squared errors without weight decay: fitted exactly where that can be, by the theorems of the squared loss."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from draws import normal
from good_runs import near_a_minimum, nearly_fitted, sequential, with_equal_rows
from torch import Tensor, nn

import surefoot as sf
from surefoot_check import check
from surefoot_check.verdict import Outcome

ROOT = {"initial_gap": 2, "kink_margin": 0, "ball": 0, "eta": -2, "radius": 0, "newton_step": 0, "contraction": 0}
"""Powers of √c by which quantities of the loss c·½‖r‖² differ from those of ½‖r‖²; of others 1."""


def drawn(reduction: str) -> tuple[nn.Sequential, sf.SquaredLoss, sf.TorchLoss]:
    """A network with kinks, and both losses of the same rows."""
    net, squared = nearly_fitted()
    assert squared.samples is not None
    return net, squared, sf.TorchLoss(nn.MSELoss(reduction=reduction), *squared.samples)


@pytest.mark.parametrize("theorem", ["feed-forward/local", "feed-forward/exact-fit"])
@pytest.mark.parametrize(("reduction", "c"), [("mean", 2.0 / 8.0), ("sum", 2.0)])
def test_the_certificate_is_that_of_the_squared_loss_in_other_units(theorem: str, reduction: str, c: float) -> None:
    net, squared, loss = drawn(reduction)
    found, known = sf.certify(net, loss, theorem), sf.certify(net, squared, theorem)
    assert found.holds and found.quantities.keys() == known.quantities.keys()
    for name, value in known.quantities.items():
        assert found.quantities[name] == pytest.approx(value * c ** (ROOT.get(name, 1) / 2), rel=1e-8), name
    assert [round(s.decrease, 9) for s in found.schedule] == [round(s.decrease, 9) for s in known.schedule]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("steps", [None, "gauss-newton"])
def test_a_run_is_of_the_loss_itself(reduction: str, steps: str | None, tmp_path: Path) -> None:
    net, _, loss = drawn(reduction)
    criterion = nn.MSELoss(reduction=reduction)
    before = float(criterion(net(loss.X), loss.targets).detach())
    run = sf.descend(net, loss, steps, 12, directory=tmp_path, progress=False)
    assert run.certified and run.audit().holds
    assert run.gaps[0] == pytest.approx(before, rel=1e-12)
    assert run.gaps[-1] == pytest.approx(float(criterion(net(loss.X), loss.targets).detach()), rel=1e-6, abs=1e-30)
    for level in ("fast", "exact"):
        assert check(tmp_path, level=level).outcome is Outcome.ACCEPT
    loaded = sf.Run.load(tmp_path)
    assert loaded.gaps == run.gaps and loaded.audit().holds


def test_equal_rows_are_merged() -> None:
    net, squared = with_equal_rows()
    assert squared.samples is not None
    X, Y = squared.samples
    assert isinstance(X, Tensor) and isinstance(Y, Tensor)
    found, known = sf.certify(net, sf.TorchLoss(nn.MSELoss(), X, Y)), sf.certify(net, squared)
    assert found.holds and found.radius == pytest.approx(known.radius, rel=1e-8)
    assert found.optimal_value == pytest.approx(known.optimal_value * 2.0 / Y.numel(), rel=1e-15)
    value = float(nn.MSELoss()(net(X), Y).detach())
    assert found.optimal_value + found.initial_gap == pytest.approx(value, rel=1e-9)


def test_which_theorem_it_is_and_why() -> None:
    X, Y = normal(4, 2, seed=1), normal(4, 1, seed=2)
    wide, narrow = (sequential(nn.Linear(2, h, bias=False), nn.Tanh(), nn.Linear(h, 1, bias=False)) for h in (2, 1))
    fit, none = (sf.certify(net, sf.TorchLoss(nn.MSELoss(), X, Y)) for net in (wide, narrow))
    assert fit.theorem == "feed-forward/local" and "no fewer numbers are trained than fitted" in str(fit)
    assert none.theorem == "feed-forward/minimum" and "more outputs than trained numbers" in str(none)
    decayed = sf.certify(wide, sf.TorchLoss(nn.MSELoss(), X, Y, weight_decay=0.1))
    assert decayed.theorem == "feed-forward/minimum" and "with a weight decay no exact fit is a minimum" in str(decayed)
    assert "this theorem, as" not in str(sf.certify(wide, sf.SquaredLoss(X, Y)))
    assert "this theorem, as" not in str(sf.certify(wide, sf.TorchLoss(nn.MSELoss(), X, Y), "feed-forward/exact-fit"))


def test_a_theorem_of_another_loss_is_refused() -> None:
    net, loss = near_a_minimum()
    for theorem in ("feed-forward/local", "feed-forward/exact-fit"):
        with pytest.raises(
            ValueError, match=r"speaks of an exact fit, and a cross-entropy has no exact fit.*SquaredLoss"
        ):
            sf.certify(net, loss, theorem)
    net, squared, mean = drawn("mean")
    for given in (squared, mean):
        with pytest.raises(ValueError, match=r"without exact fits, .*leave theorem out .*weight_decay=1e-3"):
            sf.certify(net, given, "feed-forward/minimum")
    with pytest.raises(TypeError, match=r"steps='newton' needs a training objective"):
        sf.newton(net, mean)


def test_a_training_is_watched() -> None:
    net, _, loss = drawn("mean")
    watch = sf.watch(net, loss, every=1, report=None)
    assert watch.step() is not None and watch.certified == 1
    with torch.no_grad():
        watched = float(nn.MSELoss()(net(loss.X), loss.targets))
    assert watch.history[0].gap == pytest.approx(watched, rel=1e-8)
