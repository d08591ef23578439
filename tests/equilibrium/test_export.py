"""Exported layers, and equilibria of which all comes as tensors."""

import pytest
import torch
from torch import nn

from surefoot._equilibrium.contractive import contractive
from surefoot._equilibrium.graphs.inference import EquilibriumInference
from surefoot._equilibrium.layer import EquilibriumLayer

SIZE = 5


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Cell(nn.Module):
    def __init__(self, norm=0.8) -> None:
        super().__init__()
        W = draw(SIZE, SIZE, seed=1)
        self.W = nn.Parameter(norm * W / torch.linalg.matrix_norm(W, 2))

    def forward(self, z, x):
        return torch.tanh(z @ self.W + x)


class Steep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIZE, SIZE).double()

    def forward(self, z, x):
        return torch.tanh(3.0 * self.linear(z) + x)


X = draw(4, SIZE)
NON_NORMAL = 0.5 * torch.eye(SIZE, dtype=torch.float64) + 3.0 * torch.eye(SIZE, dtype=torch.float64).roll(1, 1).triu(1)
CASES = {
    "known factor": ({"contraction": 0.81}, Cell(), X),
    "estimated factor": ({}, Cell(), X),
    "float32": ({"contraction": 0.81}, Cell().float(), X.float()),
    "below rounding": ({"contraction": 0.81, "tolerance": 1e-12}, Cell().float(), X.float()),
    "a proved factor": ({}, contractive(Steep()), X),
    "loose": ({"tolerance": 1e-2, "contraction": 0.81}, Cell(), X),
    "non-normal": ({}, lambda z, x: z @ NON_NORMAL + x, X),
    "a start that is the solution": (
        {},
        lambda z, x: 0.5 * torch.sin(z) + x,
        torch.zeros(2, SIZE, dtype=torch.float64),
    ),
    "tiny": ({}, Cell(), 1e-170 * X),
    "constant": ({}, lambda z, x: x, X),
    "several tensors": (
        {"state_shape": ((SIZE,), (2, SIZE))},
        lambda z, x: (0.4 * z[1].sum(1).sin() + x, 0.3 * z[0][:, None].cos() + 0.1 * z[1]),
        X,
    ),
    "too few": ({"max_iterations": 4, "contraction": 0.81}, Cell(), X),
    "divergent": ({}, lambda z, x: 2.0 * z + x, X),
    "a false factor": ({"contraction": 0.05}, Cell(), X),
    "overflow": ({}, lambda z, x: (z + 1.0).exp() + x, X),
}


@pytest.mark.parametrize("case", CASES)
def test_it_gives_what_plain_steps_of_the_layer_give(case):
    options, f, x = CASES[case]
    layer = EquilibriumLayer(f, solver="plain", on_failure="return", **options).eval()
    true, info = layer.solve(x)
    z, bound, converged = EquilibriumInference(layer)(x)
    assert torch.equal(converged, ~info.failed)
    assert bound.dtype == torch.float64
    assert torch.equal(bound.isinf(), info.error_bound.isinf())
    pairs = zip(z, true, strict=True) if isinstance(z, tuple) else [(z, true)]
    distance = sum((a - b).double().flatten(1).square().sum(1) for a, b in pairs).sqrt()
    good = converged | ~bound.isinf()
    assert (distance[good] <= (bound + info.error_bound)[good] * (1.0 + 1e-12)).all()


def test_a_program_has_the_values_of_the_model_for_any_batch(tmp_path):
    model = nn.Sequential(nn.Linear(SIZE, SIZE).double(), EquilibriumLayer(contractive(Steep()))).eval()
    with torch.no_grad():
        program = torch.export.export(model, (X,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        torch.export.save(program, tmp_path / "model.pt2")
        loaded = torch.export.load(tmp_path / "model.pt2").module()
        for batch in (3, 7):
            x = draw(batch, SIZE, seed=batch)
            assert float((loaded(x) - model(x)).abs().max()) < 1e-11
        with pytest.raises(RuntimeError, match="did not converge"):
            loaded(X * float("nan"))


@pytest.mark.slow
def test_a_program_of_bounds_and_flags():
    layer = EquilibriumLayer(Cell(), max_iterations=20)
    inference = EquilibriumInference(layer).eval()
    program = torch.export.export(inference, (X,)).module()
    for x in (X, 0.01 * X, float("nan") * X):
        for a, b in zip(program(x), inference(x), strict=True):
            assert torch.equal(a.nan_to_num(), b.nan_to_num())
            assert not a.requires_grad
    assert not inference(X)[2].all()


def test_what_cannot_be_exported_says_so():
    layer = EquilibriumLayer(Cell())
    with pytest.raises(ValueError, match=r"eval\(\)"):
        EquilibriumInference(layer)(X)
    layer.eval()
    with pytest.raises(RuntimeError, match="no_grad"):
        torch.export.export(layer, (X,))
    with pytest.raises(ValueError, match="half precision"):
        EquilibriumInference(layer.half())(X.half())
    layer.double().on_failure = "warn"
    with torch.no_grad(), pytest.raises(ValueError, match="cannot warn"):
        torch.export.export(layer, (X,))
