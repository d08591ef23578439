"""LISTA, LISTA-CPSS and ALISTA: untrained the first two are ISTA, training lowers the error, and violations are counted right."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from surefoot._lasso.lista import ALISTA, LISTA, LISTACPSS, UnrolledISTA
from surefoot._lasso.lista_training import train_lista
from surefoot._lasso.violations import violations
from surefoot._learning.run import TrainStatus
from surefoot._step_sizes.baselines import trace
from surefoot.learned import Lasso, LeastSquares

F64 = torch.float64
LAM = 0.05


def matrix(rows: int = 10, columns: int = 16) -> Tensor:
    M = torch.randn(rows, columns, dtype=F64, generator=torch.Generator().manual_seed(0))
    return M / M.norm(dim=0)


def draw(seed: int, count: int = 12, M: Tensor | None = None) -> tuple[Lasso, Tensor]:
    """Problems of one matrix, and the sparse signals that they measure."""
    M = matrix() if M is None else M
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, M.shape[1], generator=generator, dtype=F64)
    kept = torch.rand(count, M.shape[1], generator=generator, dtype=F64) < 0.15
    kept[:, 0] = True  # no signal is zero
    x = x * kept
    return Lasso.from_matrix(M, M @ x.T, lam=LAM), x


NETS = [
    lambda shared: LISTA(matrix(), 6, LAM, shared=shared),
    lambda shared: LISTACPSS(matrix(), 6, LAM, shared=shared, selection=0.0),
]


@pytest.mark.parametrize("make", NETS)
@pytest.mark.parametrize("shared", [True, False])
def test_before_training_it_is_ista(make: type, shared: bool) -> None:
    net, (problems, _) = make(shared), draw(1)
    assert net.smoothness == pytest.approx(problems.common_smoothness, rel=1e-12)
    iterates = net.iterates(problems.Y)
    assert len(iterates) == 7
    for steps, x in enumerate(iterates):
        torch.testing.assert_close(x, trace("ISTA 1/β", problems, steps).solution, rtol=1e-9, atol=1e-12)
    assert torch.equal(net(problems.Y), iterates[-1])


@pytest.mark.parametrize("shared", [True, False])
def test_learned_matrices(shared: bool) -> None:
    copies = 1 if shared else 6
    assert len(LISTA(matrix(), 6, shared=shared).of_iterate) == copies
    assert len(list(LISTACPSS(matrix(), 6, shared=shared).parameters())) == copies + 1
    assert "M" not in dict(LISTA(matrix(), 6).named_parameters())


def test_support_selection_by_hand() -> None:
    """With M = W = 1 and x_0 = 0, v = Y; a quarter of the coordinates, the largest, passes unshrunk if above the threshold."""
    net = LISTACPSS(torch.eye(4, dtype=F64), 2, 0.5, selection=0.25, most=0.25)
    Y = torch.tensor([[3.0, -2.0, 0.1, 1.0], [0.4, 0.1, 0.2, -0.3]], dtype=F64)
    expected = torch.tensor([[3.0, -1.5, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]], dtype=F64)
    torch.testing.assert_close(net.iterates(Y)[1], expected, rtol=1e-6, atol=1e-7)
    grown = LISTACPSS(torch.eye(4, dtype=F64), 2, 0.5, selection=0.25, most=1.0)
    second = grown.layer(1, torch.zeros(2, 4, dtype=F64), Y)
    torch.testing.assert_close(second[0], torch.tensor([3.0, -2.0, 0.0, 0.5], dtype=F64), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [LISTA, LISTACPSS])
@pytest.mark.parametrize("shared", [True, False])
def test_training_helps_on_fresh_problems(kind: type[UnrolledISTA], shared: bool) -> None:
    net = kind(matrix(), 5, LAM, shared=shared)
    problems, signals = draw(1, 32)
    unseen, truth = draw(2, 64)

    def error() -> float:
        with torch.no_grad():
            return float((net(unseen.Y) - truth).square().sum(1).mean())

    before = error()
    run = train_lista(net, problems, signals, 120, 3e-3, fresh=lambda epoch: draw(100 + epoch, 32))
    assert error() < 0.6 * before
    assert run.status is TrainStatus.FINISHED and len(run.losses) == 121 and run.best == min(run.validation)
    with torch.no_grad():
        reached = float((net(problems.Y) - signals).square().sum(1).mean())
    assert reached == pytest.approx(run.best, rel=1e-12), "the best weights are kept"


def test_alista_learns_two_numbers_a_layer() -> None:
    net = ALISTA(matrix(), 5, LAM)
    assert sum(p.numel() for p in net.parameters()) == 10
    problems, signals = draw(1, 32)
    unseen, truth = draw(2, 64)
    x = torch.zeros(64, 16, dtype=F64)
    for _ in range(5):  # 16 coordinates: nothing is selected
        v = x - (x @ net.M.T - unseen.Y) @ net.W
        x = v.sign() * (v.abs() - LAM).clamp(min=0.0)
    torch.testing.assert_close(net(unseen.Y), x)

    def error() -> float:
        with torch.no_grad():
            return float((net(unseen.Y) - truth).square().sum(1).mean())

    before, W = error(), net.W.clone()
    train_lista(net, problems, signals, 120, 1e-2, fresh=lambda epoch: draw(100 + epoch, 32))
    assert error() < 0.8 * before and torch.equal(net.W, W)
    found = violations(net, unseen, truth)
    assert float(found.diagonal.max()) == 0.0 and torch.equal(net.weight(0), W)
    with pytest.raises(ValueError, match="shares"):
        ALISTA(matrix(), 3, most=2.0)


def test_targets_are_minimisers_by_default() -> None:
    problems, _ = draw(3)
    one, other = LISTA(matrix(), 3, LAM), LISTA(matrix(), 3, LAM)
    assert train_lista(one, problems, epochs=3) == train_lista(other, problems, problems.optimum(), 3)


def test_divergence_keeps_the_best_weights() -> None:
    net, (problems, signals) = LISTA(matrix(), 4, LAM), draw(1)
    run = train_lista(net, problems, signals, 40, 1e100)
    assert run.status is TrainStatus.DIVERGED and len(run.losses) < 41
    with torch.no_grad():
        assert float((net(problems.Y) - signals).square().sum(1).mean()) == pytest.approx(run.best, rel=1e-12)


def test_violations_by_hand() -> None:
    """M = [[1, .6], [0, .8]] has coherence .6; W = [[1, 1], [0, .5]] has WᵀM = [[1, .6], [1, 1]]."""
    M = torch.tensor([[1.0, 0.6], [0.0, 0.8]], dtype=F64)
    net = LISTACPSS(M, 2, 0.1, selection=0.0)
    with torch.no_grad():
        net.weights[0].copy_(torch.tensor([[1.0, 1.0], [0.0, 0.5]], dtype=F64))
        net.weights[1].copy_(M)
        net.thresholds.copy_(torch.tensor([0.1, 0.1], dtype=F64))
    problems = Lasso.from_matrix(M, torch.tensor([[2.0, 0.05], [0.0, 0.0]], dtype=F64), lam=0.1)
    targets = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=F64)
    x = net.iterates(problems.Y)
    assert x[1].sign().tolist() == [[1.0, 1.0], [0.0, 0.0]]
    found = violations(net, problems, targets)
    assert found.signs[0] == 0.5  # coordinate 2 of the first problem, coordinate 1 of the second
    assert found.false_positives[0] == 0.5
    assert found.diagonal.tolist() == [0.0, 0.0]
    assert found.off_diagonal.tolist() == [0.5, 0.0]  # the 1 below the diagonal
    assert violations(net, problems, targets, limit=0.5).off_diagonal.tolist() == [1.0, 1.0]
    assert violations(net, problems, targets, limit=1.0).off_diagonal.tolist() == [0.0, 0.0]
    with torch.no_grad():
        net.weights[1].mul_(1.05)
    scaled = violations(net, problems, targets)
    assert scaled.diagonal.tolist() == [0.0, 1.0] and scaled.off_diagonal[1] == 0.0
    assert violations(net, problems, targets, tolerance=0.06).diagonal.tolist() == [0.0, 0.0]
    assert found.table().splitlines()[1].split() == ["1", "50.0", "%", "50.0", "%", "0.0", "%", "50.0", "%"]


def test_no_violation_at_the_solution() -> None:
    net = LISTACPSS(torch.eye(3, dtype=F64), 2, 0.1, selection=0.0)
    problems = Lasso.from_matrix(torch.eye(3, dtype=F64), torch.tensor([[1.0], [-2.0], [0.0]], dtype=F64), lam=0.1)
    found = violations(net, problems)
    for share in (found.signs, found.false_positives, found.diagonal, found.off_diagonal):
        assert share.tolist() == [0.0, 0.0]


def test_training_breaks_the_conditions() -> None:
    """Figure 2: the first layers of a trained network have wrong signs, and W_iᵀM_i = 1 holds nowhere."""
    problems, signals = draw(1, 32)
    unseen, truth = draw(2, 32)
    for shared in (True, False):
        net = LISTACPSS(matrix(), 5, LAM, shared=shared)
        train_lista(net, problems, signals, 60, 3e-3)
        found = violations(net, unseen, truth)
        assert float(found.signs.max()) > 0.05 and float(found.diagonal.min()) > 0.9
        if shared:
            assert len(set(found.diagonal.tolist())) == 1


def test_other_problems_are_refused() -> None:
    net, (problems, _) = LISTA(matrix(), 3), draw(1)
    with pytest.raises(ValueError, match="one matrix"):
        net.check(Lasso.random(2, 10, 16))
    with pytest.raises(TypeError, match=r"pass sf\.learned\.Lasso"):
        net.check(LeastSquares.random(2, 10, 16))
    with pytest.raises(TypeError, match="float32"):
        net.check(problems.to(dtype=torch.float32))
    with pytest.raises(ValueError, match="targets has shape"):
        train_lista(net, problems, torch.zeros(3, 3, dtype=F64), 1)
    with pytest.raises(TypeError, match="net is a Linear"):
        violations(torch.nn.Linear(2, 2), problems)  # pyright: ignore[reportArgumentType]
    for bad in (lambda: LISTA(matrix(), 0), lambda: LISTA(0.0 * matrix(), 3), lambda: LISTA(matrix(), 3, -1.0)):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(ValueError, match="shares"):
        LISTACPSS(matrix(), 3, selection=2.0)


def test_single_precision() -> None:
    net = LISTA(matrix().float(), 3, LAM)
    problems = draw(1)[0].to(dtype=torch.float32)
    run = train_lista(net, problems, epochs=2)
    assert net(problems.Y).dtype == torch.float32 and run.losses[2] < run.losses[0]
