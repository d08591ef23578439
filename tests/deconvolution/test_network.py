"""The unrolled network: what it is before training, its symmetries, its gradients, and its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, kernel, noisy, photos
from torch import Tensor

from surefoot._core.io import RunDirectoryError
from surefoot._deconvolution.half_quadratic import HyperLaplacian
from surefoot._deconvolution.learned import network
from surefoot._deconvolution.learned.network import REFERENCE, polynomial_inverse
from surefoot.deconvolution import (
    LADMM,
    Blur,
    DeconvolutionProblem,
    PeriodicBlur,
    State,
    ValidBlur,
    default_penalty,
    gradient_wiener,
    psnr,
)
from surefoot.nn import LearnedDeconvolution

BLURS = {name: blur for name, blur in blurs().items() if min(blur.domain) >= 7}
every = pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))
both = pytest.mark.parametrize("filters", [0, 5])


def net(filters: int, layers: int = 3, **options: object) -> LearnedDeconvolution:
    """Small, with weights away from their special initial values."""
    made = LearnedDeconvolution(layers, filters, **options).double()  # pyright: ignore[reportArgumentType]
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in made.parameters():
            p += 0.05 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return made


def observation(blur: Blur, count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    lead = (count, 1) if blur.kernel.ndim == 4 else (count,)
    return blur.forward(torch.rand(*lead, *blur.domain, generator=generator, dtype=DOUBLE))


@every
@both
def test_every_blur(blur: Blur, filters: int) -> None:
    y = observation(blur)
    z = net(filters)(y, blur, 0.02)
    assert z.shape[-2:] == blur.domain and bool(z.isfinite().all())
    # one image at a time gives the same
    assert torch.allclose(net(filters)(y[:1], blur, 0.02)[0], z[0], atol=1e-10)


@pytest.mark.parametrize("make", [PeriodicBlur, ValidBlur])
@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_untrained_shrinkage_is_the_linearised_admm(make: type[PeriodicBlur | ValidBlur], noise: float) -> None:
    blur = make(kernel(5, 4), (33, 40))
    y = noisy(blur, photos(3, 40)[:, :33], noise)
    problem = DeconvolutionProblem(y, blur, default_penalty(noise))
    beta = 10.0 * problem.penalty
    solver, untrained = LADMM(beta, 1.0 / beta, 1.0 / beta), LearnedDeconvolution(4, 0).double()
    found = untrained.iterates(y, blur, torch.tensor(noise, dtype=DOUBLE))
    z = found[0].image
    state = State(z, problem.wavelet.analysis(z), torch.zeros_like(z), z)
    for k, one in enumerate(found[1:]):
        state = solver.step(problem, state, k)
        assert torch.allclose(one.image, state.synthesis, atol=1e-6)
        assert torch.allclose(one.multiplier, state.multiplier, atol=1e-6)


def test_files_of_earlier_versions_start_as_they_did(tmp_path: Path) -> None:
    from surefoot._core.io import read_tensors, write_tensors

    file = tmp_path / "net.safetensors"
    net(3, start="gradient-wiener").save(file)
    stored = read_tensors(file)
    del stored["settings.start"]
    write_tensors(file, stored)
    assert LearnedDeconvolution.load(file).start == "gradient-wiener"


@pytest.mark.parametrize("make", [PeriodicBlur, ValidBlur])
def test_the_half_quadratic_start_is_near_the_whole_solver(make: type[PeriodicBlur | ValidBlur]) -> None:
    blur, sharp = make(kernel(5, 4), (64, 64)), photos(2, 64)
    y = noisy(blur, sharp, 0.02)
    start = LearnedDeconvolution(1, 4).double().iterates(y, blur, torch.tensor(0.02, dtype=DOUBLE))[0].image
    whole = HyperLaplacian().solve(y, blur, 0.02).latent
    quality = [psnr(blur.crop(z), blur.crop(sharp)).mean() for z in (gradient_wiener(blur, y, 0.02), start, whole)]
    assert quality[1] > quality[0] + 0.3 and quality[1] > quality[2] - 1.5


def test_start_is_gradient_wiener() -> None:
    blur = PeriodicBlur(kernel(5, 4), (32, 30))
    y = noisy(blur, photos(2, 32)[:, :, :30], 0.02)
    start = (
        LearnedDeconvolution(1, 4, start="gradient-wiener")
        .double()
        .iterates(y, blur, torch.tensor(0.02, dtype=DOUBLE))[0]
        .image
    )
    assert torch.allclose(start, gradient_wiener(blur, y, 0.02), atol=1e-6)


def test_a_noise_level_for_each_image() -> None:
    blur = PeriodicBlur(kernel(5, 4), (16, 18))
    y = observation(blur, 3)
    levels = torch.tensor([0.01, 0.02, 0.03], dtype=DOUBLE)
    together = net(5)(y, blur, levels[:, None, None])
    for one, level, z in zip(y, levels, together, strict=True):
        assert torch.allclose(net(5)(one, blur, float(level)), z, atol=1e-10)


def test_brightness_passes_through_filters() -> None:
    blur = ValidBlur(kernel(5, 4), (16, 18))
    y = observation(blur)
    assert torch.allclose(net(5)(y + 0.3, blur, 0.02), net(5)(y, blur, 0.02) + 0.3, atol=1e-9)


def test_shifts_by_two_pixels_pass_through_filters() -> None:
    """On pictures of even size, circularly: the filters act on polyphase components."""
    blur = PeriodicBlur(kernel(5, 4), (16, 18))
    y = observation(blur)
    assert torch.allclose(
        net(5)(y.roll((2, 4), (-2, -1)), blur, 0.02), net(5)(y, blur, 0.02).roll((2, 4), (-2, -1)), atol=1e-9
    )


@both
@pytest.mark.parametrize("make", [PeriodicBlur, ValidBlur])
def test_gradients(filters: int, make: type[PeriodicBlur | ValidBlur]) -> None:
    """Along random directions in the weights, against differences."""
    made = net(filters, 2)
    blur = make(kernel(3, 3), (10, 12))
    y = observation(blur, 1)
    target = torch.rand(10, 12, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)

    def loss() -> Tensor:
        return (made(y, blur, 0.02) - target).square().sum()

    loss().backward()
    weights = list(made.parameters())
    generator = torch.Generator().manual_seed(6)
    directions = [torch.randn(p.shape, generator=generator, dtype=DOUBLE) for p in weights]
    slope = sum(float((d * p.grad).sum()) for d, p in zip(directions, weights, strict=True) if p.grad is not None)
    values = []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for p, d in zip(weights, directions, strict=True):
                p += step * d
            values.append(float(loss()))
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-4)


# -- LD-Minv -----------------------------------------------------------------------------------------------------------


def test_polynomial_inverse_is_the_papers_iteration_on_matrices() -> None:
    generator = torch.Generator().manual_seed(0)
    values = 1.0 + 9.0 * torch.rand(3, 4, generator=generator, dtype=DOUBLE)
    C = torch.tensor([[1.0, 0.9, 1.2], [1.1, 1.0, 0.8]], dtype=DOUBLE)
    A = torch.diag(values.flatten())
    X = 2.0 / (1.0 + values.max()) * torch.eye(12, dtype=DOUBLE)
    for row, found in zip(C, polynomial_inverse(values, C), strict=True):
        E = torch.eye(12, dtype=DOUBLE) - A @ X
        X = X @ sum((c * torch.linalg.matrix_power(E, power) for power, c in enumerate(row)), torch.zeros_like(X))
        assert torch.allclose(X.diagonal(), found.flatten(), atol=1e-12)


def test_a_deep_polynomial_is_the_exact_inverse() -> None:
    blur = PeriodicBlur(kernel(5, 4), (16, 18))
    y = observation(blur)
    exact = net(5)
    errors = []
    for depth in (1, 2, 8):
        other = LearnedDeconvolution(3, 5, inverse=(depth, 4)).double()
        other.load_state_dict(exact.state_dict(), strict=False)
        errors.append(other.inverse_error(blur, 0.02))
        if depth == 8:
            assert torch.allclose(other(y, blur, 0.02), exact(y, blur, 0.02), atol=1e-9)
    assert errors[0] > errors[1] > 1e3 * errors[2]
    assert exact.inverse_error(blur, 0.02) == 0.0


def test_inverse_loss_is_loss_4_and_moves_only_coefficients() -> None:
    blur = PeriodicBlur(kernel(3, 3), (8, 8))
    made = net(3, 1, inverse=(2, 3))
    loss = made.inverse_loss(blur, 0.02)
    (layer,) = made.layers
    noise = torch.tensor(0.02 / REFERENCE, dtype=DOUBLE).log()
    a = (layer.alpha(noise) * blur.majorizer + 1.0).detach()  # pyright: ignore[reportCallIssue]
    A = torch.diag(a.flatten() / a.max())
    terms = [
        (A @ torch.diag((x * a.max()).flatten()) @ A - A).square().sum() / len(A)
        for x in polynomial_inverse(a, layer.coefficients)  # pyright: ignore[reportArgumentType]
    ]
    assert float(loss.detach()) == pytest.approx(float(torch.stack(terms).sum().detach()) / 4.0, rel=1e-9)
    loss.backward()
    assert {name for name, p in made.named_parameters() if p.grad is not None} == {"layers.0.coefficients"}


# -- files and bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"filters": 4}, {"filters": 0, "wavelet": "haar"}, {"filters": 3, "inverse": (2, 3)}]
)
def test_files(options: dict[str, object], tmp_path: Path) -> None:
    made = net(layers=2, **options)  # pyright: ignore[reportArgumentType]
    made.save(tmp_path / "net.safetensors")
    again = LearnedDeconvolution.load(tmp_path / "net.safetensors")
    assert (again.filters, again.wavelet, again.inverse) == (made.filters, made.wavelet, made.inverse)
    blur = PeriodicBlur(kernel(3, 3), (12, 12))
    y = observation(blur)
    assert torch.equal(again(y, blur, 0.01), made(y, blur, 0.01))


def test_damaged_files(tmp_path: Path) -> None:
    from surefoot._core.io import write_tensors

    file = tmp_path / "net.safetensors"
    with pytest.raises(RunDirectoryError, match="missing"):
        LearnedDeconvolution.load(file)
    file.write_bytes(b"no tensors")
    with pytest.raises(RunDirectoryError, match="damaged"):
        LearnedDeconvolution.load(file)
    write_tensors(file, {"W1": torch.ones(2)})
    with pytest.raises(RunDirectoryError, match=r"no deconvolution network \(it lacks log_gradient, settings.shape"):
        LearnedDeconvolution.load(file)
    made = net(3)
    with torch.no_grad():
        made.log_gradient.fill_(torch.nan)
    made.save(file)
    with pytest.raises(RunDirectoryError, match="non-finite"):
        LearnedDeconvolution.load(file)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"settings.shape": torch.tensor([10**9, 0, 0, 0])}, "settings are not those of its weights"),
        ({"settings.shape": torch.tensor([3, 10**6, 0, 0])}, "settings are not those of its weights"),
        ({"settings.wavelet": torch.tensor(list(b"bior2.2"), dtype=torch.uint8)}, "is not orthogonal"),
        ({"settings.wavelet": torch.tensor(list(b"none"), dtype=torch.uint8)}, "unknown wavelet 'none'"),
        ({"settings.noise": torch.tensor([0.1, 0.01])}, "noise levels from 0.1 to 0.01"),
        ({"settings.noise": torch.tensor([torch.nan, 1.0])}, "noise levels from nan to 1"),
        ({"settings.start": torch.tensor(list(b"zero"), dtype=torch.uint8)}, "start is 'zero'"),
        ({"log_gradient": torch.tensor(1.0, dtype=torch.float16)}, "its weights are torch.float16"),
        ({"log_gradient": torch.tensor(1)}, "its weights are torch.int64"),
    ],
)
def test_files_whose_settings_lie(tmp_path: Path, changed: dict[str, torch.Tensor], message: str) -> None:
    """Refused before memory is taken for what they claim."""
    from surefoot._core.io import read_tensors, write_tensors

    file = tmp_path / "net.safetensors"
    net(3).save(file)
    write_tensors(file, {**read_tensors(file), **changed})
    with pytest.raises(RunDirectoryError, match=f"{file.name} holds no deconvolution network .*{message}"):
        LearnedDeconvolution.load(file)


def test_bad_input() -> None:
    blur = PeriodicBlur(kernel(3, 3), (12, 12))
    made, y = net(3), observation(blur)
    for noise in (0.0, -0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="noise"):
            made(y, blur, noise)
    with pytest.raises(TypeError, match="network"):
        made(y.float(), blur.to(torch.float32), 0.01)
    with pytest.raises(ValueError, match="nan at pixel"):
        made(torch.full_like(y, torch.nan), blur, 0.01)
    small = PeriodicBlur(kernel(3, 3), (6, 12))
    with pytest.raises(ValueError, match="at least 7"):
        made(torch.zeros(6, 12, dtype=DOUBLE), small, 0.01)
    for arguments in ((0, 3), (2, -1)):
        with pytest.raises(ValueError, match="must be an integer"):
            LearnedDeconvolution(*arguments)
    with pytest.raises(ValueError, match="inverse"):
        LearnedDeconvolution(2, 3, inverse=(2, 1))


class Counting:
    """Counts the products of a blur, each once however it is made of others."""

    def __init__(self, blur: Blur, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.depth = 0
        for name in ("forward", "adjoint", "filtered", "solve"):
            monkeypatch.setattr(blur, name, self._counted(getattr(blur, name)))

    def _counted(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*arguments: object) -> Tensor:
            self.count += not self.depth
            self.depth += 1
            result = function(*arguments)
            self.depth -= 1
            return result

        return call


@both
@pytest.mark.parametrize("start", ["half-quadratic", "gradient-wiener"])
@pytest.mark.parametrize("make", [PeriodicBlur, ValidBlur])
def test_applications(
    filters: int, start: str, make: type[PeriodicBlur | ValidBlur], monkeypatch: pytest.MonkeyPatch
) -> None:
    blur = make(kernel(3, 3), (20, 20))
    y = observation(blur)
    counted = Counting(blur, monkeypatch)
    made = net(filters, start=start)
    made(y, blur, 0.02)
    # multiplying by the penalty of the Wiener start is no product with the blur: once in each of its systems
    penalties = 0 if make is PeriodicBlur or start == "half-quadratic" else 1 + network.START_ITERATIONS
    assert counted.count - penalties == made.applications(blur)
