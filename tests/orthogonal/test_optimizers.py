"""CayleySGD and CayleyAdam."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from surefoot._linalg.cayley import cayley
from surefoot._orthogonal.cayley_steps import STEPS, defect, tall
from surefoot.optim import CayleyAdam, CayleySGD

F32, F64, C128 = torch.float32, torch.float64, torch.complex128
SHAPES = [(6, 2), (2, 6), (4, 4), (5, 1), (1, 1), (3, 5, 2), (2, 2, 5)]
MAKERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p, **o: CayleySGD(p, **{"lr": 0.05, **o}),
    "momentum": lambda p, **o: CayleySGD(p, **{"lr": 0.02, "momentum": 0.8, "dampening": 0.1, **o}),
    "nesterov": lambda p, **o: CayleySGD(p, **{"lr": 0.02, "momentum": 0.8, "nesterov": True, **o}),
    "adam": lambda p, **o: CayleyAdam(p, **{"lr": 0.02, **o}),
}


def parameter(*shape: int, dtype: torch.dtype = F64) -> nn.Parameter:
    rows, columns = shape[-2:]
    Q = torch.linalg.qr(torch.randn(*shape[:-2], max(rows, columns), min(rows, columns), dtype=dtype))[0]
    return nn.Parameter(Q if rows >= columns else Q.mH.contiguous())


def polar_factor(B: Tensor) -> Tensor:
    left, _, right = torch.linalg.svd(B, full_matrices=False)
    return left @ right


def fit(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], steps: int) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize("inverse", list(STEPS))
@pytest.mark.parametrize("dtype", [F64, C128])
def test_one_step_is_equation_6(inverse: str, dtype: torch.dtype) -> None:
    U = parameter(5, 2, dtype=dtype)
    start, G = U.detach().clone(), torch.randn(5, 2, dtype=dtype)
    U.grad = G
    CayleySGD([U], lr=0.3, inverse=inverse).step()
    torch.testing.assert_close(U.detach(), cayley(G @ start.mH - start @ G.mH, start, 0.3), rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("dtype", [F32, F64, C128])
@pytest.mark.parametrize("shape", SHAPES)
def test_orthonormal_for_random_gradients(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    U = parameter(*shape, dtype=dtype)
    optimizer = MAKERS[name]([U], lr=0.5)
    for _ in range(20):
        U.grad = torch.randn(*shape, dtype=dtype)
        optimizer.step()
        assert defect(tall(U.detach())) <= 8 * max(shape) * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("shape", [(3, 6), (2, 5, 2)])
def test_procrustes(name: str, shape: tuple[int, ...]) -> None:
    B = polar_factor(torch.randn(*shape, dtype=F64)) + 0.2 * torch.randn(*shape, dtype=F64)
    U = parameter(*shape)
    optimizer = MAKERS[name]([U], lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97 if name == "adam" else 1.0)
    for _ in range(250):
        optimizer.zero_grad()
        (U - B).square().sum().backward()
        optimizer.step()
        schedule.step()
    torch.testing.assert_close(U.detach(), polar_factor(B), rtol=0.0, atol=1e-3 if name == "adam" else 1e-7)


@pytest.mark.parametrize("name", list(MAKERS))
def test_small_steps_descend(name: str) -> None:
    A = torch.randn(8, 8, dtype=F64)
    U = parameter(8, 3)
    optimizer = MAKERS[name]([U], lr=1e-3)
    losses: list[float] = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = (U * (A @ U)).sum()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert all(later < earlier for earlier, later in pairwise(losses))


def test_maximize_is_minimising_the_negative() -> None:
    A = torch.randn(6, 6, dtype=F64)
    for name in MAKERS:
        first = parameter(6, 2)
        second = nn.Parameter(first.detach().clone())
        up, down = MAKERS[name]([first], maximize=True), MAKERS[name]([second])
        fit(up, lambda U=first: (U * (A @ U)).sum(), 5)
        fit(down, lambda U=second: -(U * (A @ U)).sum(), 5)
        assert torch.equal(first, second)


@pytest.mark.parametrize("dtype", [F64, C128])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "dampening": 0.2}, {"momentum": 0.9, "nesterov": True}])
def test_ordinary_parameters_move_as_torch_sgd_moves_them(options: dict[str, Any], dtype: torch.dtype) -> None:
    _compare_with_torch(
        dtype,
        lambda groups: CayleySGD(groups, lr=0.1, weight_decay=0.01, **options),
        lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01, **options),
    )


@pytest.mark.parametrize("dtype", [F64, C128])
def test_ordinary_parameters_move_as_torch_adam_moves_them(dtype: torch.dtype) -> None:
    _compare_with_torch(
        dtype,
        lambda groups: CayleyAdam(groups, lr=0.1, weight_decay=0.01, betas=(0.8, 0.9)),
        lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.01, betas=(0.8, 0.9)),
    )


def _compare_with_torch(
    dtype: torch.dtype, ours: Callable[..., torch.optim.Optimizer], theirs: Callable[..., torch.optim.Optimizer]
) -> None:
    vector = nn.Parameter(torch.randn(5, dtype=dtype))
    reference = nn.Parameter(vector.detach().clone())
    U = parameter(4, 2, dtype=dtype)
    mixed = ours([{"params": [U]}, {"params": [vector], "orthonormal": False}])
    plain = theirs([reference])
    for _ in range(10):
        gradient = torch.randn(5, dtype=dtype)
        vector.grad, reference.grad, U.grad = gradient, gradient.clone(), torch.randn(4, 2, dtype=dtype)
        mixed.step()
        plain.step()
        torch.testing.assert_close(vector, reference, rtol=1e-12, atol=1e-14)
    assert defect(U.detach()) < 1e-14


def test_weight_decay_leaves_orthonormal_parameters_alone() -> None:
    U = parameter(4, 2)
    twin = nn.Parameter(U.detach().clone())
    U.grad = torch.randn(4, 2, dtype=F64)
    twin.grad = U.grad.clone()
    CayleySGD([U], weight_decay=0.5).step()
    CayleySGD([twin]).step()
    assert torch.equal(U, twin)


@pytest.mark.parametrize("name", [*MAKERS, "search"])
def test_state_dict_round_trip_is_the_uninterrupted_run(name: str) -> None:
    A = torch.randn(7, 7, dtype=F64)
    make = (lambda p: CayleySGD(p, line_search="nonmonotone")) if name == "search" else MAKERS[name]
    first, bias = parameter(7, 2), nn.Parameter(torch.randn(2, dtype=F64))

    def groups(U: Tensor, b: Tensor) -> list[dict[str, Any]]:
        return [{"params": [U]}, {"params": [b], "orthonormal": False}]

    def loss(U: Tensor, b: Tensor) -> Tensor:
        return (U * (A @ U) + b * U).sum() + b.square().sum()

    optimizer = make(groups(first, bias))
    fit(optimizer, lambda: loss(first, bias), 4)
    second, other = nn.Parameter(first.detach().clone()), nn.Parameter(bias.detach().clone())
    resumed = make(groups(second, other))
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    fit(optimizer, lambda: loss(first, bias), 5)
    fit(resumed, lambda: loss(second, other), 5)
    assert torch.equal(first, second) and torch.equal(bias, other)


def test_line_search_minimises_on_a_mixed_problem() -> None:
    """Rotation, scale and shift of points, min over U orthonormal and c: ‖c + X U − Y‖²."""
    X, truth = torch.randn(40, 5, dtype=F64), parameter(5, 2).detach()
    Y = X @ truth + torch.tensor([1.0, -2.0], dtype=F64)
    U = nn.Parameter(polar_factor(truth + 0.2 * torch.randn(5, 2, dtype=F64)))
    c = nn.Parameter(torch.zeros(2, dtype=F64))
    optimizer = CayleySGD(
        [{"params": [U]}, {"params": [c], "orthonormal": False, "lr": 1e-2}], lr=1e-2, line_search="nonmonotone"
    )
    fit(optimizer, lambda: (c + X @ U - Y).square().sum(), 80)
    torch.testing.assert_close(U.detach(), truth, rtol=0.0, atol=1e-6)
    torch.testing.assert_close(c.detach(), torch.tensor([1.0, -2.0], dtype=F64), rtol=0.0, atol=1e-6)
    assert optimizer.step_length is not None and optimizer.step_length > 0.0


@pytest.mark.parametrize("maximize", [False, True])
def test_line_search_finds_the_trace_minimum(maximize: bool) -> None:
    A = torch.randn(12, 12, dtype=F64)
    A = A + A.mT
    U = parameter(3, 12)
    optimizer = CayleySGD([U], line_search="nonmonotone", maximize=maximize)
    fit(optimizer, lambda: (U @ A * U).sum(), 150)
    values = torch.linalg.eigvalsh(A)
    best = values[-3:] if maximize else values[:3]
    assert float((U @ A * U).detach().sum()) == pytest.approx(float(best.sum()), rel=1e-9)
    assert defect(tall(U.detach())) < 1e-14


class _Closure:
    """Trace objective whose call number ``bad`` does something else."""

    def __init__(self, U: nn.Parameter, bad: set[int], fault: Callable[[], float | None]) -> None:
        self.U, self.bad, self.fault, self.calls = U, bad, fault, 0
        self.A = torch.randn(U.shape[0], U.shape[0], dtype=F64)

    def __call__(self) -> Tensor:
        self.calls += 1
        self.U.grad = None
        loss = (self.U * (self.A @ self.U)).sum()
        loss.backward()
        if self.calls in self.bad:
            value = self.fault()
            return loss if value is None else loss * value
        return loss


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_closure_that_raises_leaves_the_last_accepted_point(error: type[BaseException]) -> None:
    U = parameter(6, 2)

    def fault() -> float:
        raise error("mine")

    closure = _Closure(U, {4}, fault)  # the trial of the second step
    optimizer = CayleySGD([U], line_search="nonmonotone")
    optimizer.step(closure)
    assert closure.calls == 2
    accepted = U.detach().clone()
    with pytest.raises(error, match="mine"):
        optimizer.step(closure)
    assert torch.equal(U, accepted)
    optimizer.step(closure)
    assert not torch.equal(U, accepted) and defect(U.detach()) < 1e-14


def test_trials_with_nan_are_rejected() -> None:
    U = parameter(6, 2)
    closure = _Closure(U, {2, 3}, lambda: math.nan)
    optimizer = CayleySGD([U], lr=0.1, line_search="nonmonotone")
    before = closure.A
    optimizer.step(closure)
    assert closure.calls == 4 and closure.A is before
    assert optimizer.step_length == pytest.approx(0.09)  # 1 · .3 · .3


def test_trials_with_a_non_finite_gradient_are_rejected() -> None:
    U = parameter(6, 2)

    def fault() -> None:
        assert U.grad is not None
        U.grad[0, 0] = math.inf

    optimizer = CayleySGD([U], lr=0.1, line_search="nonmonotone")
    optimizer.step(_Closure(U, {2}, fault))
    assert optimizer.step_length == pytest.approx(0.3)


def test_no_accepted_trial_leaves_the_point() -> None:
    U = parameter(6, 2)
    start = U.detach().clone()
    optimizer = CayleySGD([U], line_search="nonmonotone")
    optimizer.step(_Closure(U, set(range(2, 100)), lambda: math.nan))
    assert torch.equal(U, start) and optimizer.step_length == 0.0
    optimizer.step(_Closure(U, set(), lambda: None))
    assert optimizer.step_length > 0.0 and not torch.equal(U, start)


def test_non_finite_start_moves_nothing() -> None:
    U = parameter(6, 2)
    start = U.detach().clone()
    with pytest.raises(FloatingPointError, match="nothing has moved"):
        CayleySGD([U], line_search="nonmonotone").step(_Closure(U, {1}, lambda: math.nan))
    for make in MAKERS.values():
        first, second = parameter(4, 2), nn.Parameter(start.clone())
        kept = first.detach().clone()
        optimizer = make([first, second])
        first.grad, second.grad = torch.ones(4, 2, dtype=F64), torch.full((6, 2), math.nan, dtype=F64)
        with pytest.raises(FloatingPointError, match="parameter 1 of group 0 is not finite"):
            optimizer.step()
        assert torch.equal(first, kept) and torch.equal(second, start)
        assert not any(optimizer.state[p] for p in (first, second))


@pytest.mark.parametrize(("inverse", "lr"), [("reduced", 1e9), ("chebyshev", 200.0)])
def test_a_step_of_many_turns_is_refused(inverse: str, lr: float) -> None:
    U = parameter(6, 2)
    U.grad = torch.randn(6, 2, dtype=F64)
    with pytest.raises(FloatingPointError, match="many turns"):
        CayleySGD([U], lr=lr, inverse=inverse).step()


def test_sparse_gradients_are_refused() -> None:
    for options in ({}, {"line_search": "nonmonotone"}):
        U = parameter(6, 2)
        U.grad = torch.ones(6, 2, dtype=F64).to_sparse()
        with pytest.raises(RuntimeError, match="is sparse"):
            CayleySGD([U], **options).step(lambda: torch.tensor(0.0))


def test_plain_closure_is_called_once_and_parameters_without_gradient_stay() -> None:
    U, idle = parameter(6, 2), parameter(3, 2)
    kept = idle.detach().clone()
    closure = _Closure(U, set(), lambda: None)
    loss = CayleySGD([U, idle], lr=0.1).step(closure)
    assert closure.calls == 1 and isinstance(loss, Tensor) and torch.equal(idle, kept)
    assert CayleySGD([idle]).step() is None
    assert CayleySGD([idle], line_search="nonmonotone").step(lambda: torch.tensor(1.0)) is not None


def test_schedulers_and_tensor_rates() -> None:
    U = parameter(6, 2)
    optimizer = CayleySGD([U], lr=torch.tensor(0.1, dtype=F64))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.0 if epoch == 0 else 1.0)
    start = U.detach().clone()
    U.grad = torch.randn(6, 2, dtype=F64)
    optimizer.step()  # a warm-up from 0
    torch.testing.assert_close(U.detach(), start, rtol=0.0, atol=1e-15)
    schedule.step()
    optimizer.step()
    assert float((U.detach() - start).norm()) > 1e-2


def test_under_another_parametrization() -> None:
    """A parametrization on top of an orthonormal parameter: torch registers ``original``, which stays orthonormal."""

    class Scaled(nn.Module):
        def forward(self, U: Tensor) -> Tensor:
            return 2.0 * U

    layer = nn.Linear(5, 3, bias=True, dtype=F64)
    with torch.no_grad():
        layer.weight.copy_(parameter(3, 5))
    parametrize.register_parametrization(layer, "weight", Scaled())
    original = layer.parametrizations.weight.original
    optimizer = CayleySGD(
        [{"params": [original]}, {"params": [layer.bias], "orthonormal": False}], lr=0.05, momentum=0.5
    )
    X, Y = torch.randn(20, 5, dtype=F64), torch.randn(20, 3, dtype=F64)
    before = float((layer(X) - Y).detach().square().mean())
    fit(optimizer, lambda: (layer(X) - Y).square().mean(), 40)
    assert float((layer(X) - Y).detach().square().mean()) < before
    assert defect(tall(original.detach())) < 1e-14
    torch.testing.assert_close(layer.weight, 2.0 * original)


def test_from_torch_orthogonal_parametrization() -> None:
    """Weights made by ``parametrizations.orthogonal``, once the parametrization is removed, are a valid start."""
    layer = parametrizations.orthogonal(nn.Linear(6, 4, bias=False, dtype=F64))
    parametrize.remove_parametrizations(layer, "weight")
    optimizer = CayleyAdam(layer.parameters(), lr=0.05)
    B = torch.randn(4, 6, dtype=F64)
    fit(optimizer, lambda: (layer.weight - B).square().sum(), 100)
    assert defect(tall(layer.weight.detach())) < 1e-14


@pytest.mark.parametrize("name", list(MAKERS))
def test_repeats_bit_for_bit(name: str) -> None:
    results: list[Tensor] = []
    for _ in range(2):
        torch.manual_seed(3)
        A, U = torch.randn(6, 6, dtype=F64), parameter(6, 2)
        fit(MAKERS[name]([U]), lambda A=A, U=U: (U * (A @ U)).sum(), 10)
        results.append(U.detach())
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CayleySGD([parameter(3, 2)], lr=0.0), ValueError, "lr is 0.0"),
        (lambda: CayleySGD([parameter(3, 2)], lr=-1.0), ValueError, "lr is -1.0"),
        (lambda: CayleySGD([parameter(3, 2)], lr=math.nan), ValueError, "lr is nan"),
        (lambda: CayleySGD([parameter(3, 2)], momentum=1.0), ValueError, "momentum is 1.0"),
        (lambda: CayleySGD([parameter(3, 2)], weight_decay=-1.0), ValueError, "weight_decay is -1.0"),
        (lambda: CayleySGD([parameter(3, 2)], nesterov=True), ValueError, "nesterov needs momentum"),
        (lambda: CayleySGD([parameter(3, 2)], inverse="qr"), ValueError, "inverse is 'qr'; it must be one of"),
        (lambda: CayleySGD([parameter(3, 2)], line_search="wolfe"), ValueError, "line_search is 'wolfe'"),
        (lambda: CayleySGD([parameter(3, 2)], line_search="nonmonotone", momentum=0.9), ValueError, "set both to 0"),
        (lambda: CayleyAdam([parameter(3, 2)], betas=(0.9, 1.0)), ValueError, r"betas\[1\] is 1.0"),
        (lambda: CayleyAdam([parameter(3, 2)], eps=0.0), ValueError, "eps is 0.0"),
        (lambda: CayleyAdam([parameter(3, 2)], betas=0.9), ValueError, "betas is 0.9; it must be two numbers"),
        (lambda: CayleyAdam([parameter(3, 2)], betas=(0.9, 0.9, 0.9)), ValueError, "must be two numbers"),
        (lambda: CayleyAdam([parameter(3, 2)], lr=None), TypeError, "lr is None; it must be a number"),
        (lambda: CayleySGD([parameter(3, 2)], lr=True), TypeError, "lr is True; it must be a number"),
        (lambda: CayleySGD([torch.eye(3).to_sparse()]), TypeError, "to_dense"),
        (lambda: CayleySGD([torch.eye(3, device="meta")]), TypeError, "device meta"),
        (lambda: CayleyAdam([parameter(3, 2)], lr=0.0), ValueError, "lr is 0.0"),
        (
            lambda: CayleySGD([nn.Parameter(torch.ones(3, 2))]),
            ValueError,
            "parameter 0 has no orthonormal columns.*polar",
        ),
        (lambda: CayleySGD([nn.Parameter(torch.ones(2, 3))]), ValueError, "parameter 0 has no orthonormal rows"),
        (lambda: CayleySGD([("w", nn.Parameter(torch.ones(2, 3)))]), ValueError, "w has no orthonormal rows"),
        (lambda: CayleySGD([nn.Parameter(torch.ones(3))]), ValueError, r"shape \(3,\).*orthonormal=False"),
        (lambda: CayleySGD([nn.Parameter(torch.eye(2).half())], line_search="nonmonotone"), TypeError, "dtype float16"),
        (lambda: CayleySGD([parameter(3, 2)], flatten=1), TypeError, "flatten is 1"),
        (lambda: CayleySGD([torch.eye(2, dtype=torch.int64)]), TypeError, "dtype int64"),
        (lambda: CayleySGD([]), ValueError, "empty parameter list"),
        (
            lambda: CayleySGD([parameter(3, 2)], line_search="nonmonotone").step(),
            ValueError,
            r"line_search needs step\(closure\)",
        ),
    ],
)
def test_bad_input(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_line_search_refuses_mixed_senses() -> None:
    first, second = parameter(3, 2), parameter(3, 2)
    optimizer = CayleySGD([{"params": [first], "maximize": True}, {"params": [second]}], line_search="nonmonotone")
    with pytest.raises(ValueError, match="maximize differs"):
        optimizer.step(lambda: torch.tensor(0.0))


def test_groups_added_later_are_checked() -> None:
    optimizer = CayleySGD([parameter(3, 2)], lr=0.1)
    with pytest.raises(ValueError, match="no orthonormal columns"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3, 2))]})
    with pytest.raises(ValueError, match="lr is -1"):
        optimizer.add_param_group({"params": [parameter(3, 2)], "lr": -1.0})
    optimizer.add_param_group({"params": nn.Parameter(torch.ones(3)), "orthonormal": False, "lr": 0.5})
    assert len(optimizer.param_groups) == 2 and optimizer.param_groups[1]["lr"] == 0.5


def _drift(name: str, dtype: torch.dtype, steps: int) -> float:
    """The largest defect of a run of random gradients."""
    U = parameter(4, 2, dtype=dtype)
    optimizer = MAKERS[name]([U], lr=0.1)
    gradients = torch.randn(997, 4, 2, dtype=dtype)
    worst = 0.0
    for index in range(steps):
        U.grad = gradients[index % 997]
        optimizer.step()
        if index % 100 == 99:
            worst = max(worst, defect(U.detach()))
    return worst


@pytest.mark.parametrize("name", ["momentum", "adam"])
@pytest.mark.parametrize(("dtype", "bound"), [(F32, 1e-6), (F64, 2e-15)])
def test_no_drift(name: str, dtype: torch.dtype, bound: float) -> None:
    assert _drift(name, dtype, 600) <= bound


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["momentum", "adam"])
@pytest.mark.parametrize(("dtype", "bound"), [(F32, 1e-5), (F64, 1e-12)])
def test_no_drift_over_1e5_steps(name: str, dtype: torch.dtype, bound: float) -> None:
    assert _drift(name, dtype, 100_000) <= bound


@pytest.mark.parametrize("name", [*MAKERS, "search"])
def test_copies_and_pickles_go_on(name: str) -> None:
    A = torch.randn(5, 5, dtype=F64)
    U = parameter(5, 2)
    optimizer = CayleySGD([U], line_search="nonmonotone") if name == "search" else MAKERS[name]([U])
    fit(optimizer, lambda: (U * (A @ U)).sum(), 3)
    twins = [copy.deepcopy((optimizer, U)), pickle.loads(pickle.dumps((optimizer, U)))]
    fit(optimizer, lambda: (U * (A @ U)).sum(), 3)
    for other, V in twins:
        fit(other, lambda V=V: (V * (A @ V)).sum(), 3)
        assert torch.equal(U, V)
        assert getattr(other, "line_search", None) == getattr(optimizer, "line_search", None)


@pytest.mark.parametrize("name", [*MAKERS, "search"])
@pytest.mark.parametrize("resting", [(0,), (1,), (0, 1)])
def test_a_scheduler_may_set_rates_to_0(name: str, resting: tuple[int, ...]) -> None:
    U, b = parameter(5, 2), nn.Parameter(torch.randn(2, dtype=F64))
    groups = [{"params": [U]}, {"params": [b], "orthonormal": False}]
    optimizer = CayleySGD(groups, line_search="nonmonotone") if name == "search" else MAKERS[name](groups)
    rates = [lambda epoch, n=n: 0.0 if n in resting and epoch < 2 else 1.0 for n in range(2)]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rates)
    for epoch in range(4):
        target = torch.randn(5, 2, dtype=F64)
        start = U.detach().clone(), b.detach().clone()
        fit(optimizer, lambda target=target: (U + b - target).square().sum(), 1)
        schedule.step()
        for n, (before, after) in enumerate(zip(start, (U, b), strict=True)):
            moved = float((after.detach() - before).norm())
            assert moved < 1e-14 if n in resting and epoch < 2 else moved > 1e-8
