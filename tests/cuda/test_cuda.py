"""Everything that accepts CUDA tensors, on a GPU: the same results as on the CPU, and tensors that stay on their device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._implicit.norms import spectral_norm_upper
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

CUDA = torch.device("cuda")


def data(outputs: int = 2, rows: int = 60, columns: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    return X, torch.randn(rows, outputs, dtype=torch.float64, generator=generator)


def two_layer() -> tuple[torch.nn.Module, Tensor, Tensor]:
    X, Y = data()
    return sf.nn.TwoLayerLinear.gaussian(5, 2, 40, std=1.0, seed=0), X, Y


def linear_resnet() -> tuple[torch.nn.Module, Tensor, Tensor]:
    X, Y = data()
    return sf.nn.LinearResNet.modified_identity(5, 2, 7, 4, 30.0), X, Y


def implicit() -> tuple[torch.nn.Module, Tensor, Tensor]:
    X, Y = data(1, 8)
    X = X / X.norm(dim=1, keepdim=True)
    return sf.nn.ImplicitReLU.certifiable(X, Y[:, 0], 32), X, Y[:, 0]


@pytest.mark.parametrize("make", [two_layer, linear_resnet, implicit])
def test_runs_agree_with_the_cpu_and_are_accepted(
    make: Callable[[], tuple[torch.nn.Module, Tensor, Tensor]], tmp_path: Path
) -> None:
    runs = []
    for device in (torch.device("cpu"), CUDA):
        net, X, Y = make()
        net = net.to(device)
        loss = sf.SquaredLoss(X.to(device), Y.to(device))
        certificate = sf.certify(net, loss)
        assert certificate.holds, str(certificate)
        run = sf.descend(
            net,
            loss,
            certificate=certificate,
            tolerance=1e-3,
            max_iterations=300,
            directory=tmp_path / device.type,
            progress=False,
        )
        assert all(p.device.type == device.type for p in net.parameters())
        assert run.audit().holds, str(run.audit())
        assert check(tmp_path / device.type).outcome is Outcome.ACCEPT
        runs.append(run)
    cpu, gpu = runs
    assert abs(cpu.iterations - gpu.iterations) <= 1
    for a, b in zip(cpu.gaps, gpu.gaps, strict=False):
        assert b == pytest.approx(a, rel=1e-6)


def test_resume_on_the_gpu(tmp_path: Path) -> None:
    finals = []
    for name, limits in (("whole", [12]), ("parts", [5, 12])):
        for limit in limits:
            net, X, y = implicit()
            run = sf.descend(
                net.to(CUDA),
                sf.SquaredLoss(X.to(CUDA), y.to(CUDA)),
                tolerance=0.0,
                max_iterations=limit,
                directory=tmp_path / name,
                resume=limit != limits[0],
                progress=False,
            )
        finals.append(run)
    assert finals[0].rows == finals[1].rows


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.8])
def test_implicit_forward_and_backward(gamma: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(50, 20, dtype=torch.float64, generator=generator)
    net = sf.nn.ImplicitReLU.paper(20, 100, gamma, generator=generator)
    with torch.no_grad():
        net.A += 0.01 * torch.randn(100, 100, dtype=torch.float64, generator=generator)
        net.b += torch.randn(100, dtype=torch.float64, generator=generator)
    results = []
    for device in (torch.device("cpu"), CUDA):
        copy = sf.nn.ImplicitReLU(net.W, net.A, net.b, gamma).to(device=device, dtype=dtype)
        copy(X.to(device=device, dtype=dtype)).square().sum().backward()
        found = copy.equilibrium(X.to(device=device, dtype=dtype))
        assert found.Z.device.type == device.type
        results.append((found.Z.double().cpu(), found.error, [p.grad.double().cpu() for p in copy.parameters()]))
    (Z, error, gradients), (Z_gpu, error_gpu, gradients_gpu) = results
    assert float((Z - Z_gpu).norm()) <= error + error_gpu
    tolerance = 1e-6 if dtype == torch.float64 else 2e-3
    for a, b in zip(gradients, gradients_gpu, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * float(a.norm()))


def test_norm_bounds() -> None:
    for size in (1, 7, 300):
        A = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
        exact = float(torch.linalg.matrix_norm(A, 2))
        assert exact * (1 - 1e-12) <= spectral_norm_upper(A.to(CUDA)) <= exact * (1 + 1e-6)


def test_equilibrium_layer() -> None:
    class Map(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = torch.nn.Linear(6, 6, dtype=torch.float64)
            with torch.no_grad():
                self.linear.weight.mul_(0.5 / torch.linalg.matrix_norm(self.linear.weight, 2))

        def forward(self, z: Tensor, x: Tensor) -> Tensor:
            return torch.tanh(self.linear(z) + x)

    gradients = []
    for device in ("cpu", "cuda"):
        layer = sf.nn.EquilibriumLayer(Map(), contraction=0.5).to(device)
        x = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(4, 6).to(device).requires_grad_()
        z = layer(x)
        assert z.device.type == device
        (first,) = torch.autograd.grad(z.square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        gradients.append((first.detach().cpu(), second.cpu()))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_devices_that_differ_are_named() -> None:
    net, X, y = implicit()
    with pytest.raises(ValueError, match=r"net is on cpu and the loss on cuda"):
        sf.certify(net, sf.SquaredLoss(X.to(CUDA), y.to(CUDA)))
