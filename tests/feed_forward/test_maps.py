"""Convolutions, pooling and residual blocks: what torch computes, what the certificate says of it, and what is refused."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from draws import normal
from good_runs import sequential
from torch import Tensor, nn

import surefoot as sf
from surefoot._core.registry import system_of
from surefoot._feed_forward.engine import distance
from surefoot._feed_forward.modules import extra, layers_of, table
from surefoot_check import Outcome, check
from surefoot_check.feed_forward.enclosures import Measured, gap_exact
from surefoot_check.feed_forward.geometry import CIRCULAR, CONVOLUTION, MAXIMUM, Geometry
from surefoot_check.feed_forward.network import load_problem
from surefoot_check.feed_forward.shared import Maximum
from surefoot_check.rigor.bounds import FAST, Level
from surefoot_check.rigor.exact import EXACT

F64 = torch.float64
ROWS = 3
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def _two(*modules: nn.Module, height: int = 5, width: int = 6, channels: int = 1, seed: int = 1) -> nn.Sequential:
    """On maps of one channel."""
    return sequential(nn.Unflatten(1, (channels, height, width)), *modules, seed=seed)


def _one(*modules: nn.Module, length: int = 7, channels: int = 2, seed: int = 2) -> nn.Sequential:
    """On maps of one direction."""
    return sequential(nn.Unflatten(1, (channels, length)), *modules, seed=seed)


def _normed() -> nn.Sequential:
    net = _two(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(24, 2), seed=9)
    net(normal(20, 30, seed=3))
    net[2].requires_grad_(False)
    return net.eval()


def _frozen() -> nn.Sequential:
    net = NETWORKS["two convolutions"]()
    net[1].weight.requires_grad_(False)  # pyright: ignore[reportCallIssue]
    net[3].bias.requires_grad_(False)  # pyright: ignore[reportCallIssue]
    return net


def _block(*modules: nn.Module) -> Any:
    return sf.nn.Residual(*modules)


NETWORKS: dict[str, Callable[[], nn.Sequential]] = {
    "two convolutions": lambda: _two(
        nn.Conv2d(1, 3, 3, stride=2), nn.Tanh(), nn.Conv2d(3, 2, (2, 1)), nn.Tanh(), nn.Flatten(), nn.Linear(4, 2)
    ),
    "zeros around": lambda: _two(
        nn.Conv2d(1, 2, 3, padding=(1, 2), bias=False), nn.GELU(), nn.Flatten(), nn.Linear(80, 1)
    ),
    "same size": lambda: _two(nn.Conv2d(1, 2, (2, 4), padding="same"), nn.SiLU(), nn.Flatten(), nn.Linear(60, 1)),
    "circular": lambda: _two(
        nn.Conv2d(1, 2, (3, 2), padding=(1, 0), padding_mode="circular", stride=(1, 2)),
        nn.Softplus(2.0),
        nn.Flatten(),
        nn.Linear(30, 1),
    ),
    "in one direction": lambda: _one(
        nn.Conv1d(2, 3, 3, padding=1), nn.Tanh(), nn.AvgPool1d(2), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Linear(4, 2)
    ),
    "means that overlap": lambda: _two(
        nn.AvgPool2d(2, 1), nn.Conv2d(1, 2, 2), nn.Tanh(), nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.Linear(8, 2)
    ),
    "maxima": lambda: _two(nn.Conv2d(1, 3, 2), nn.MaxPool2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)),
    "a kink behind maxima": lambda: _two(
        nn.Conv2d(1, 3, 2), nn.MaxPool2d(2), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(12, 2)
    ),
    "maxima of a ReLU": lambda: _two(
        nn.Conv2d(1, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(48, 2), seed=11
    ),
    "maxima that overlap": lambda: _two(
        nn.Conv2d(1, 2, 2), nn.LeakyReLU(0.3), nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(12, 2), seed=4
    ),
    "maxima in one direction": lambda: _one(
        nn.Conv1d(2, 4, 2), nn.Tanh(), nn.MaxPool1d(2, 1), nn.Flatten(), nn.Linear(20, 2), seed=5
    ),
    "ends in a convolution": lambda: _two(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Conv2d(4, 1, (3, 4)), nn.Flatten()),
    "maps made of rows": lambda: sequential(
        nn.Linear(30, 8), nn.Tanh(), nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(9, 2), seed=6
    ),
    "batch norm of maps": _normed,
    "partly frozen": _frozen,
    "a block": lambda: sequential(
        nn.Linear(30, 6), nn.Tanh(), _block(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 6)), nn.Linear(6, 2), seed=7
    ),
    "a block at the beginning": lambda: sequential(
        _block(nn.Linear(30, 4), nn.GELU(), nn.Linear(4, 30)), nn.Tanh(), nn.Linear(30, 1), seed=8
    ),
    "blocks in blocks": lambda: sequential(
        nn.Linear(30, 5),
        _block(nn.Tanh(), nn.Linear(5, 5), _block(nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 5))),
        nn.LeakyReLU(0.2),
        nn.Linear(5, 2),
        seed=9,
    ),
    "a block of convolutions": lambda: _two(
        nn.Conv2d(1, 2, 2),
        _block(nn.Tanh(), nn.Conv2d(2, 2, 3, padding=1)),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 2),
        seed=10,
    ),
}


def data(net: nn.Sequential, error: float = 1e-4) -> sf.SquaredLoss:
    """Rows that the network nearly fits."""
    inputs = layers_of(net)[0].inputs
    X = normal(ROWS, inputs, seed=1)
    f = net(X).detach()
    return sf.SquaredLoss(X, f + error * normal(*f.shape, seed=2))


def measured(net: nn.Sequential, loss: sf.SquaredLoss, level: Level = FAST) -> Measured:
    """As the checker has it."""
    system: Any = system_of(net)
    problem = system.problem(net, loss)
    arrays = {name: array.numpy() for name, array in problem.arrays().items()}
    weights = {name: weight.numpy() for name, weight in system.reduced(net, problem).items()}
    return Measured(load_problem(problem.kind, arrays, level), weights)


def jacobian(problem: Any, weights: dict[str, Tensor]) -> Tensor:
    """By torch."""
    parts = torch.func.jacrev(lambda w: problem.residual(w).reshape(-1))(weights)
    return torch.cat([parts[name].reshape(len(parts[name]), -1) for name in weights], dim=1)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_is_that_of_the_modules(name: str) -> None:
    """Read into a table, as the checker has it, and built again."""
    net = NETWORKS[name]()
    system, given = system_of(net), data(net)
    loss = system.problem(net, given)
    weights = system.reduced(net, loss)
    f = net(loss.X).detach()
    assert torch.allclose(loss.residual(weights) + loss.Y, f, rtol=1e-12, atol=1e-13)
    at = measured(net, given)
    assert np.linalg.norm(at.layers[-1].before.value - f.numpy()) <= at.layers[-1].before.error + 1e-13
    again, _ = system.rebuild(loss.kind, loss.arrays(), weights)
    assert torch.allclose(again(loss.X), f, rtol=1e-12, atol=1e-13)
    layers = layers_of(again)
    assert torch.equal(table(layers)[0], loss.layers)
    assert {key: value.tolist() for key, value in extra(layers).items()} == {
        key: loss.frozen[key].tolist() for key in ("geometry", "skips") if key in loss.frozen
    }


@pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_gram_matrix_and_the_loss_are_enclosed(name: str, level: Level) -> None:
    net = NETWORKS[name]()
    system, given = system_of(net), data(net)
    loss = system.problem(net, given)
    J = jacobian(loss, system.reduced(net, loss)).numpy()
    at = measured(net, given, level)
    assert np.linalg.norm(at.gram.value - J @ J.T) <= at.gram.error + 1e-12 * np.linalg.norm(J) ** 2
    assert at.gram.error <= 1e-10 * np.linalg.norm(J) ** 2
    residual = loss.residual(system.reduced(net, loss))
    low, high = gap_exact(at.problem, at.weights)
    gap = 0.5 * float(residual.square().sum())
    assert float(low) <= gap * (1.0 + 1e-6) and gap * (1.0 - 1e-6) <= float(high) <= at.gap


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_in_the_ball_exceeds_the_bounds(name: str) -> None:
    """Between pairs of points J changes by at most Λ times their distance, no pre-activation moves farther than its bound, and
    where the margin exceeds 1 no maximum has another winner."""
    net = NETWORKS[name]()
    system, given = system_of(net), data(net)
    loss = system.problem(net, given)
    start, generator = system.reduced(net, loss), torch.Generator().manual_seed(3)
    at, radius = measured(net, given), 0.02
    margins = [found for found in at.kink_margins(radius) if found is not None]
    if margins:
        radius *= 0.9 * min(1.0, at.kink_margin(radius)[0])
        assert at.kink_margin(radius)[0] > 1.0
    bend = at.lipschitz(radius)

    def point() -> dict[str, Tensor]:
        step = {key: torch.randn(w.shape, generator=generator, dtype=F64) for key, w in start.items()}
        size = distance(step, {key: 0.0 * s for key, s in step.items()})
        return {key: start[key] + 0.999 * radius / size * s for key, s in step.items()}

    points = [start, point(), point(), point()]
    for a, b in itertools.pairwise(points):
        change = float(torch.linalg.matrix_norm(jacobian(loss, a) - jacobian(loss, b), 2))
        assert change <= bend * distance(a, b) + 1e-11
    bounds = [(np.zeros_like(at.problem.X), np.zeros(ROWS))]
    for layer in at.layers:
        moved, reach = layer.moved(*bounds[-1], radius)
        slope, skip = layer.bounds.slope, layer.kind.skip
        bounds.append((slope * moved, slope * reach))
        if skip >= 0:
            bounds[-1] = (bounds[-1][0] + bounds[skip][0], bounds[-1][1] + bounds[skip][1])
    for there in points[1:]:
        other = Measured(at.problem, {key: w.numpy() for key, w in there.items()})
        for before, after, (moved, reach) in zip(at.layers, other.layers, bounds[1:], strict=True):
            change = np.abs(after.before.value - before.before.value)
            assert (change <= radius * moved / before.bounds.slope + 1e-12).all() or before.kind.skip >= 0
            outputs = np.abs(after.outputs.value - before.outputs.value)
            assert (outputs <= radius * moved + 1e-12).all()
            assert (np.linalg.norm(outputs, axis=1) <= radius * reach + 1e-12).all()
            if isinstance(before, Maximum):
                still = before._of_winners(before._still)[:, :, 0]  # among these it does not matter
                assert ((before._winners == after._winners) | still).all()


def fitted(name: str) -> tuple[nn.Sequential, sf.SquaredLoss]:
    """With targets so near that a certificate holds."""
    net = NETWORKS[name]()
    return net, data(net, 1e-8)


@pytest.mark.parametrize(
    "name", ["two convolutions", "maxima of a ReLU", "in one direction", "blocks in blocks", "circular"]
)
def test_a_run_is_accepted_at_both_levels(name: str, tmp_path: Path) -> None:
    net, loss = fitted(name)
    certificate = sf.certify(net, loss)
    assert certificate.holds, certificate
    run = sf.descend(net, loss, max_iterations=8, certificate=certificate, directory=tmp_path, progress=False)
    assert run.audit().holds and run.gaps[-1] < run.gaps[0]
    for level in ("fast", "exact"):
        assert check(tmp_path, level).outcome is Outcome.ACCEPT
    assert sf.certify(net, loss).initial_gap == pytest.approx(run.gaps[-1], rel=1e-3)


@pytest.mark.parametrize("name", ["two convolutions", "maxima", "a block"])
def test_equal_rows_are_merged(name: str) -> None:
    net = NETWORKS[name]()
    X = normal(ROWS, 30, seed=1)[[0, 1, 0, 2]]
    loss = sf.SquaredLoss(X, net(X).detach() + 1e-6 * normal(4, 2, seed=2))
    system: Any = system_of(net)
    problem, at = system.problem(net, loss), measured(net, loss)
    J = jacobian(problem, system.reduced(net, problem)).numpy()
    assert J.shape[0] == 2 * ROWS
    assert np.linalg.norm(at.gram.value - J @ J.T) <= at.gram.error + 1e-12 * np.linalg.norm(J) ** 2


def test_weights_in_float32_are_certified_as_their_copy() -> None:
    net = NETWORKS["two convolutions"]().float()
    loss = data(copy.deepcopy(net).double())
    assert sf.certify(net, loss) == sf.certify(copy.deepcopy(net).double(), loss)


@pytest.mark.parametrize("name", ["two convolutions", "maxima", "a block"])
def test_the_finish_of_a_fit(name: str, tmp_path: Path) -> None:
    net = NETWORKS[name]()
    loss = data(net, 1e-3)
    run = sf.descend(net, loss, "gauss-newton", 8, progress=False)
    assert run.gaps[-1] < 1e-12 * run.gaps[0]
    certificate = sf.certify(net, loss, "feed-forward/exact-fit")
    assert certificate.holds, certificate
    sf.descend(net, loss, max_iterations=3, certificate=certificate, directory=tmp_path, progress=False)
    assert check(tmp_path).outcome is Outcome.ACCEPT


# -- windows -----------------------------------------------------------------------------------------------------------


def test_windows_of_a_map() -> None:
    g = Geometry.of((CONVOLUTION, 2, 3, 4, 2, 2, 1, 2, 0, 1, 2, 2))
    assert g is not None and g.windows.tolist() == [[-1, 0, -1, 4], [1, 2, 5, 6], [-1, 4, -1, 8], [5, 6, 9, 10]]
    assert g.overlap == 2 and g.patches[1].tolist() == [1, 2, 5, 6, 13, 14, 17, 18]
    ring = Geometry.of((CIRCULAR, 1, 1, 3, 1, 3, 1, 1, 0, 1, 1, 3))
    assert ring is not None and ring.windows.tolist() == [[2, 0, 1], [0, 1, 2], [1, 2, 0]] and ring.overlap == 3
    assert Geometry.of((0,) * 12) is None


def test_a_tie_leaves_the_jacobian_open() -> None:
    """Where two entries of a window are equal, either may be the one that counts."""
    net = _two(nn.Conv2d(1, 1, 1), nn.MaxPool2d((5, 6)), nn.Flatten(), nn.Linear(1, 1))
    X = torch.ones(1, 30, dtype=F64)
    at = measured(net, sf.SquaredLoss(X, net(X).detach() + 1e-3))
    assert at.kink_margin(1e-6)[0] == 0.0 and at.gram.error > 0.1 * float(np.abs(at.gram.value).max())
    assert MAXIMUM in [layer.kind.geometry.kind for layer in at.layers if layer.kind.geometry is not None]


def test_windows_of_dead_units_are_no_kinks() -> None:
    """Where all entries of a window are 0 behind a ReLU, any of them may be the largest."""
    net = NETWORKS["maxima of a ReLU"]()
    at = measured(net, data(net))
    assert (at.layers[1].before.value == 0.0).any() and at.kink_margin(1e-6)[0] > 1.0
    with torch.no_grad():
        net[1].bias.fill_(0.0)  # pyright: ignore[reportCallIssue, reportOptionalMemberAccess, reportAttributeAccessIssue]
        net[1].weight.fill_(0.0)  # pyright: ignore[reportCallIssue, reportOptionalMemberAccess, reportAttributeAccessIssue]
    assert measured(net, data(net)).kink_margin(1e-6)[0] == 0.0


# -- what is refused ---------------------------------------------------------------------------------------------------

FLAT, LAST = nn.Flatten(), nn.Linear(2, 2)


def _with_inner(inner: nn.Module) -> sf.nn.Residual:
    """A block whose modules were replaced."""
    block = _block()
    block.inner = inner  # pyright: ignore[reportAttributeAccessIssue]
    return block


REFUSED: list[tuple[Callable[[], nn.Sequential], str]] = [
    (lambda: sequential(nn.Conv2d(1, 2, 3)), r"net\[0\], Conv2d, needs maps, and here are rows: put nn.Unflatten\(1, "),
    (lambda: _two(nn.Conv2d(1, 2, 3)), r"net ends in maps of shape \(2, 3, 4\); put nn.Flatten\(\) at its end"),
    (lambda: _two(nn.Conv2d(1, 2, 3), LAST), r"Linear, follows maps of shape \(2, 3, 4\); put nn.Flatten"),
    (lambda: _two(nn.Conv2d(2, 2, 3), FLAT), r"does not take maps of shape \(1, 5, 6\)"),
    (lambda: _two(nn.Conv1d(1, 2, 3), FLAT), r"Conv1d, does not take maps of shape \(1, 5, 6\)"),
    (lambda: _two(nn.Conv2d(2, 2, 3, groups=2), FLAT, channels=2), "has groups=2; only groups=1 is"),
    (lambda: _two(nn.Conv2d(1, 2, 3, dilation=2), FLAT), r"has dilation=\(2, 2\); only dilation=1 is"),
    (lambda: _two(nn.Conv2d(1, 2, 3, padding_mode="reflect"), FLAT), "has padding_mode='reflect'; only 'zeros' and"),
    (lambda: _two(nn.Conv2d(1, 2, 7), FLAT), "has windows of 7 x 7, larger than maps of 5 x 6"),
    (
        lambda: _two(nn.Conv2d(1, 2, 6, padding=1, padding_mode="circular"), FLAT),
        "more than once; use less padding",
    ),
    (
        lambda: _two(nn.Conv2d(1, 2, 3, padding=3, padding_mode="circular"), FLAT),
        "has windows that go around maps of 5 x 6 more than once; use less padding",
    ),
    (lambda: _two(nn.MaxPool2d(2, ceil_mode=True), FLAT), "has ceil_mode=True; only ceil_mode=False"),
    (lambda: _two(nn.MaxPool2d(2, dilation=2), FLAT), "has dilation=2; only dilation=1"),
    (lambda: _two(nn.MaxPool2d(2, return_indices=True), FLAT), "has return_indices=True"),
    (lambda: _two(nn.AvgPool2d(2, divisor_override=3), FLAT), "has divisor_override=3"),
    (lambda: _two(nn.AvgPool2d(2, padding=1, count_include_pad=False), FLAT), "only count_include_pad=True"),
    (lambda: sequential(nn.Unflatten(1, (5, -1)), FLAT, LAST), r"Unflatten, is not supported at this place"),
    (lambda: sequential(nn.Linear(30, 4), nn.Unflatten(1, (2, 3)), FLAT, LAST), r"makes maps of shape \(2, 3\) of 4"),
    (lambda: sequential(_block(nn.Linear(30, 30))), "net ends in Residual; it must end in a Linear module"),
    (lambda: sequential(_block(nn.Identity()), LAST), r"net\[0\], Residual, has no Linear module"),
    (lambda: sequential(_block(nn.Linear(30, 2)), LAST), r"takes 30 numbers .* and gives 2"),
    (lambda: sequential(_block(nn.Tanh(), nn.Linear(30, 30)), LAST), r"net\[0.inner.0\], Tanh, does not follow"),
    (lambda: sequential(nn.Linear(30, 4), _block(nn.Linear(4, 4, bias=False), nn.Mish()), LAST), "Mish, is not supp"),
    (
        lambda: sequential(_with_inner(nn.ModuleList([nn.Linear(30, 30)])), LAST),
        "has a ModuleList as its inner; build it",
    ),
    (lambda: _two(nn.Conv2d(1, 512, 1), nn.BatchNorm2d(512)).eval().requires_grad_(False), "take smaller maps"),
    (
        lambda: _two(nn.Conv2d(1, 512, 1), nn.AvgPool2d(1), FLAT),
        "a fixed map of 15,360 numbers to 15,360.*take smaller",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_not_supported_is_named(make: Callable[[], nn.Sequential], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        sf.certify(make(), sf.SquaredLoss(normal(ROWS, 30, seed=1), normal(ROWS, 2, seed=2)))


def test_losses_have_rows() -> None:
    maps = normal(ROWS, 30, seed=1).reshape(ROWS, 1, 5, 6)
    with pytest.raises(
        ValueError, match=r"it must have rows \(N, n\): pass X.flatten\(1\), of which a network of maps"
    ):
        sf.SquaredLoss(maps, normal(ROWS, 2, seed=2))
    with pytest.raises(ValueError, match=r"must have 2 dimension\(s\): pass X.flatten\(1\)"):
        sf.TorchLoss(nn.CrossEntropyLoss(), maps, torch.tensor([0, 1, 1]))


def test_a_kink_of_a_maximum_is_named() -> None:
    net = NETWORKS["maxima"]()
    suggestion = sf.certify(net, data(net, 5e-3)).suggestion
    assert (
        "nearest to a kink is layer 2, row" in suggestion
        and "(of MaxPool2d: where its largest entry changes)" in suggestion
    )


@pytest.mark.parametrize(
    ("name", "what"), [("two convolutions", r"net\[1\] is a Conv2d"), ("a block", r"net\[2.inner.2\] ends a Residual")]
)
def test_minima_are_of_dense_networks(name: str, what: str) -> None:
    net = NETWORKS[name]()
    loss = sf.TorchLoss(nn.MSELoss(), normal(ROWS, 30, seed=1), normal(ROWS, 2, seed=2), 1e-3)
    with pytest.raises(
        ValueError, match=f"{what}: feed-forward/minimum speaks of Linear modules alone; feed-forward/local also"
    ):
        sf.certify(net, loss)


def test_a_residual_block_adds() -> None:
    block, x = sf.nn.Residual(nn.Linear(2, 2)), torch.ones(1, 2)
    assert torch.equal(block(x), x + block.inner(x))
    with pytest.raises(ValueError, match=r"the modules of Residual make \(1, 1\) of \(1, 2\)"):
        sf.nn.Residual(nn.Linear(2, 1))(x)


def test_a_block_that_computes_in_place_adds_what_it_was_given() -> None:
    net = sequential(nn.Linear(3, 4), sf.nn.Residual(nn.ReLU(inplace=True), nn.Linear(4, 4)), nn.Linear(4, 1))
    X, Y = normal(5, 3, seed=1), torch.zeros(5, 1, dtype=F64)
    system = system_of(net)
    problem = system.problem(net, sf.SquaredLoss(X, Y))
    value = 0.5 * float(net(X).detach().square().sum())
    assert float(problem.value(system.reduced(net, problem))) == pytest.approx(value, rel=1e-14)
    assert bool((net[0](X) < 0.0).any())
