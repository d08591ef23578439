"""Training implicit networks: certificate, descent, audit, resume, and the ways in which it can go wrong."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._core.registry import system_named
from surefoot._core.samples import SampleLoss
from surefoot._implicit.engine import Iterate, WeightEngine, Weights
from surefoot._implicit.norms import spectral_norm_upper
from surefoot._implicit.solvers import SolverMemory
from surefoot._report import write
from surefoot._report.wording import factor
from surefoot_check.checker import check
from surefoot_check.verdict import Outcome

SPECTRAL, MEASURED = "implicit/spectral", "implicit/measured"


def digits(samples: int) -> tuple[Tensor, Tensor]:
    """The first images of the digits 0 and 1, rows of norm 1, without parallel rows, and their labels."""
    data = sf.data.load("digits").classes(0, 1)
    assert isinstance(data.X, Tensor) and data.labels is not None
    X = data.X / data.X.norm(dim=1, keepdim=True)
    chosen = torch.cat([(data.labels == c).nonzero()[: samples // 2, 0] for c in (0, 1)])
    return X[chosen], data.labels[chosen].double()


def small(seed: int = 0, outputs: int = 1, N: int = 6, m: int = 24) -> tuple[sf.nn.ImplicitReLU, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(N, 5, dtype=torch.float64, generator=generator)
    X /= X.norm(dim=1, keepdim=True)
    Y = torch.randn(N, outputs, dtype=torch.float64, generator=generator)
    y = Y[:, 0] if outputs == 1 else Y
    return sf.nn.ImplicitReLU.certifiable(X, y, m, seed=seed), X, y


# -- the engine --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("gamma", [0.1, 0.6])
def test_the_engine_is_gradient_descent_on_the_module(gamma: float, outputs: int) -> None:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(7, 4, dtype=torch.float64, generator=generator)
    Y = torch.randn(7, outputs, dtype=torch.float64, generator=generator)
    net = sf.nn.ImplicitReLU.paper(4, 12, gamma, outputs=outputs, generator=generator)
    with torch.no_grad():  # away from the kinks of A = I
        net.A += 0.02 * torch.randn(12, 12, dtype=torch.float64, generator=generator)
        net.b += torch.randn(net.b.shape, dtype=torch.float64, generator=generator)
    net.tolerance = 1e-13
    start = Weights.of({"W": net.W, "A": net.A, "b": net.b.reshape(12, -1)})
    engine = WeightEngine(SampleLoss(X, Y), start, gamma)
    for eta in (1e-3, 3e-3, 1e-3):
        loss = 0.5 * ((net(X) - Y.squeeze(1) if outputs == 1 else net(X) - Y) ** 2).sum()
        assert engine.iterate.gap == pytest.approx(float(loss.detach()), rel=1e-9)
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                assert parameter.grad is not None
                parameter -= eta * parameter.grad
        before = engine.iterate.gradient
        engine.move(eta)
        after = engine.iterate.gradient
        assert engine.alignment == pytest.approx(
            sum(float((getattr(before, n) * getattr(after, n)).sum()) for n in ("W", "A", "b")), rel=1e-9
        )
        for name in ("W", "A"):
            torch.testing.assert_close(engine.weights()[name], getattr(net, name).detach(), rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(engine.weights()["b"].reshape(net.b.shape), net.b.detach(), rtol=1e-8, atol=1e-9)


def test_bounds_of_a_step_enclose_the_exact_ones() -> None:
    """ω of the residual and h of the output step (Lemma 5), against 60 digits."""
    mpmath = pytest.importorskip("mpmath")
    net, X, y = small(3, N=3, m=8)
    run = sf.descend(net, sf.SquaredLoss(X, y), max_iterations=4, tolerance=0.0, progress=False)
    weights = {name: tensor.clone() for name, tensor in run.final.items()}
    loss = SampleLoss(X, y)
    at = Iterate(loss, Weights.of(weights), net.gamma, spectral_norm_upper(weights["A"]), SolverMemory())
    eta = float(run.step_sizes[0])
    after = at.at.b - eta * at.gradient.b
    with mpmath.workdps(60):
        W, A, b, x, t = (mpmath.matrix(v.tolist()) for v in (weights["W"], weights["A"], weights["b"], X, loss.Y))
        XW = x * W
        Phi = XW.apply(lambda value: max(value, mpmath.mpf(0)))
        Z = mpmath.matrix(at.Z.tolist())
        for _ in range(400):
            Z = (mpmath.mpf(net.gamma) * (Z * A) + Phi).apply(lambda value: max(value, mpmath.mpf(0)))
        r = Z * b - t
        residual_error = mpmath.norm(mpmath.matrix(at.residual.tolist()) - r)
        h = (b - mpmath.matrix(after.tolist())) / mpmath.mpf(eta) - Z.T * r
        assert residual_error <= at.residual_error
        assert mpmath.norm(h) <= at.output_defect(eta, after)
        assert at.measurements["residual_lower"] <= mpmath.norm(r)


# -- certificates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theorem", [SPECTRAL, MEASURED])
@pytest.mark.parametrize("outputs", [1, 2])
def test_certified_runs_keep_their_certificate_and_the_checker_accepts_them(
    tmp_path: Path, theorem: str, outputs: int
) -> None:
    net, X, y = small(0, outputs)
    loss = sf.SquaredLoss(X, y)
    certificate = sf.certify(net, loss, theorem)
    assert certificate.holds, str(certificate)
    count = certificate.iterations_to(1e-3)
    run = sf.descend(
        net,
        loss,
        tolerance=1e-3,
        max_iterations=int(min(count, 400)),
        certificate=certificate,
        directory=tmp_path / "run",
        progress=False,
    )
    assert run.certified and run.iterations <= count
    audit = run.audit()
    assert audit.holds, str(audit)
    assert {line.name for line in audit.lines if line.checked} >= {
        "the map stays a contraction: sum |A' - A| <= rho",
        "|b| <= B",
        "features stay near: sum |Z' - Z| <= f sigma",
        "hidden steps are small: at most 1 + delta times the bound of Lemma 1",
        "the output step is accurate: |h| <= tau |r|",
        "the gap stays under the guaranteed bound",
    }
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT
    assert sf.Run.load(tmp_path / "run").audit().holds


@pytest.mark.slow
def test_spectral_counts_digits() -> None:
    """Guaranteed and needed iterations to loss ratio 1e-3 on real images, N = 20, m = 80, median of 5 seeds."""
    X, y = digits(20)
    guaranteed, needed = [], []
    for seed in range(5):
        net = sf.nn.ImplicitReLU.certifiable(X, y, 80, seed=seed)
        loss = sf.SquaredLoss(X, y)
        certificate = sf.certify(net, loss)
        assert certificate.holds
        guaranteed.append(certificate.iterations_to(1e-3))
        run = sf.descend(net, loss, tolerance=1e-3, max_iterations=20_000, certificate=certificate, progress=False)
        needed.append(run.iterations)
        assert run.status is sf.RunStatus.CONVERGED and run.audit().holds
        assert run.iterations <= guaranteed[-1]
    assert sorted(guaranteed)[2] <= 1.1 * sorted(needed)[2]


@pytest.mark.parametrize("theorem", [SPECTRAL, MEASURED])
def test_labels_that_are_fitted_already(tmp_path: Path, theorem: str) -> None:
    """r_0 = 0: every mass is 0, the guaranteed gap is 0, and nothing is divided by it."""
    _, X, y = small(0)
    net = sf.nn.ImplicitReLU.certifiable(X, torch.zeros_like(y), 24)
    loss = sf.SquaredLoss(X, torch.zeros_like(y))
    certificate = sf.certify(net, loss, theorem)
    assert certificate.holds and certificate.initial_gap == certificate.bound(0) == certificate.bound(10**6) == 0.0
    assert certificate.iterations_to(1e-3) == 0
    run = sf.descend(net, loss, certificate=certificate, directory=tmp_path / "run", progress=False)
    assert (run.status, run.iterations) == (sf.RunStatus.CONVERGED, 0)
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_nearly_parallel_rows_are_certified_with_honest_counts(tmp_path: Path) -> None:
    """Rows an angle of 1e-4 apart: billions of iterations, in blocks so long that floats must not lose the fall of a step."""
    _, X, y = small(0)
    X[1] = X[0] + 1e-4 * X[2]
    net = sf.nn.ImplicitReLU.certifiable(X, y, 24)
    loss = sf.SquaredLoss(X, y)
    certificate = sf.certify(net, loss)
    assert certificate.holds and certificate.iterations_to(1e-3) > 1e7
    sf.descend(net, loss, certificate=certificate, max_iterations=5, directory=tmp_path / "run", progress=False)
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_the_paper_scale_is_not_certified_and_the_suggestion_helps() -> None:
    X, y = digits(20)
    net = sf.nn.ImplicitReLU.paper(64, 80, 0.5)
    certificate = sf.certify(net, sf.SquaredLoss(X, y))
    assert not certificate.holds and "certifiable" in certificate.suggestion
    gd = sf.certify(net, sf.SquaredLoss(X, y), "implicit/gd")
    assert not gd.holds and "implicit/spectral" in gd.suggestion


def test_parallel_rows_are_explained() -> None:
    _, X, y = small(0)
    X, y = torch.cat([X, 2.0 * X[:1]]), torch.cat([y, y[:1]])
    certificate = sf.certify(sf.nn.ImplicitReLU.paper(5, 24, 0.1), sf.SquaredLoss(X, y))
    assert not certificate.holds and "rows 0, 6" in certificate.suggestion
    with pytest.raises(sf.nn.NotCertifiable, match=r"rows 0, 6.*merge_rows"):
        sf.nn.ImplicitReLU.certifiable(X, y, 24)
    merged = sf.data.merge_rows(X, y)
    assert sf.certify(sf.nn.ImplicitReLU.certifiable(merged.X, merged.Y, 24), sf.SquaredLoss(merged.X, merged.Y)).holds


def test_narrow_networks_and_lost_contraction_are_explained() -> None:
    _, X, y = small(0)
    with pytest.raises(sf.nn.NotCertifiable, match="width is 4, below the 6 samples"):
        sf.nn.ImplicitReLU.certifiable(X, y, 4)
    certificate = sf.certify(sf.nn.ImplicitReLU.paper(5, 4, 0.1), sf.SquaredLoss(X, y))
    assert not certificate.holds and "width 4 is below" in certificate.suggestion
    lost = sf.certify(sf.nn.ImplicitReLU.paper(5, 24, 1.0), sf.SquaredLoss(X, y))
    assert not lost.holds and "smaller gamma" in lost.suggestion


def test_certified_along_the_trajectory() -> None:
    """Weights a little too small at first: after some safe steps the theorem holds, and the rest follows it."""
    good, X, y = small(1)
    shrink = 0.15
    net = sf.nn.ImplicitReLU(good.W * shrink, good.A * shrink, good.b, good.gamma / shrink)
    loss = sf.SquaredLoss(X, y)
    assert not sf.certify(net, loss).holds
    run = sf.descend(net, loss, tolerance=1e-8, max_iterations=400, certify_every=5, progress=False)
    assert run.certified_from is not None and run.certified_from > 0
    assert run.audit().holds


@pytest.mark.parametrize(
    ("of_X", "of_y", "message"),
    [
        (1e300, 1.0, "X has largest singular value .*: scale every row of X to norm 1"),
        (1e-300, 1.0, "X has largest singular value .*: scale every row of X to norm 1"),
        (1e150, 1.0, "X has largest singular value .*: scale every row of X to norm 1"),
        (1.0, 1e300, "y reaches .*: scale the labels"),
        (1.0, 1e-300, "y reaches .*: scale the labels"),
    ],
)
def test_extreme_scales_are_explained(of_X: float, of_y: float, message: str) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(10, 5, dtype=torch.float64, generator=generator)
    y = torch.randn(10, dtype=torch.float64, generator=generator)
    with pytest.raises(sf.nn.NotCertifiable, match=message):
        sf.nn.ImplicitReLU.certifiable(of_X * X, of_y * y, 40)


@pytest.mark.parametrize("factor", [1e3, 1e10, 1e150])
def test_rows_of_different_sizes_are_not_blamed_on_the_width(factor: float) -> None:
    X = torch.randn(10, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X[::2] *= factor
    X[1::2] /= factor
    with pytest.raises(sf.nn.NotCertifiable, match=r"scale every row (of X )?to norm 1") as error:
        sf.nn.ImplicitReLU.certifiable(X, X[:, 0].sign(), 40)
    assert "larger width" not in str(error.value)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_resume_equals_uninterrupted(tmp_path: Path) -> None:
    kept = []
    for name, limits in (("whole", [30]), ("parts", [7, 19, 30])):
        for limit in limits:
            net, X, y = small(2)
            with torch.no_grad():
                net.A += 0.02 * torch.randn(
                    net.A.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5)
                )
            run = sf.descend(
                net,
                sf.SquaredLoss(X, y),
                steps="barzilai-borwein",
                tolerance=0.0,
                max_iterations=limit,
                directory=tmp_path / name,
                resume=limit != limits[0],
                progress=False,
            )
        kept.append(run)
    assert kept[0].rows == kept[1].rows
    for name, tensor in kept[0].final.items():
        assert torch.equal(tensor, kept[1].final[name])


def test_resume_with_the_low_rank_solver_equals_uninterrupted(tmp_path: Path) -> None:
    """m > 128 and A not diagonal: the basis of the low-rank model and the watch on ‖A‖ belong to the state."""
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(8, 5, dtype=torch.float64, generator=generator)
    y = torch.randn(8, dtype=torch.float64, generator=generator)
    start = sf.nn.ImplicitReLU.paper(5, 140, 0.4, generator=generator)
    with torch.no_grad():
        start.A += 0.02 * torch.randn(140, 140, dtype=torch.float64, generator=generator)
    assert start.equilibrium(X).solver == "low_rank"
    certificate = sf.certify(start, sf.SquaredLoss(X, y))
    kept = []
    for name, limits in (("whole", [20]), ("parts", [3, 11, 20])):
        for limit in limits:
            run = sf.descend(
                copy.deepcopy(start),
                sf.SquaredLoss(X, y),
                steps=1e-2,
                tolerance=0.0,
                max_iterations=limit,
                certificate=certificate,
                directory=tmp_path / name,
                resume=limit != limits[0],
                progress=False,
            )
        kept.append(run)
    assert kept[0].iterations == 20 and kept[0].rows == kept[1].rows
    for name, tensor in kept[0].final.items():
        assert torch.equal(tensor, kept[1].final[name])


def test_a_network_that_is_dead_from_the_start(tmp_path: Path) -> None:
    _, X, y = small(0)
    loss = sf.SquaredLoss(X.abs(), y)
    dead = sf.nn.ImplicitReLU.paper(5, 24, 0.5)
    dead = sf.nn.ImplicitReLU(-dead.W.abs(), dead.A, dead.b, dead.gamma)
    run = sf.descend(dead, loss, steps=1e-2, directory=tmp_path / "run", progress=False)
    assert run.status is sf.RunStatus.COLLAPSED and run.iterations == 0
    assert run.gaps == [pytest.approx(0.5 * float(y.square().sum()))]
    assert "other weights" in run.status.text
    assert sf.Run.load(tmp_path / "run").gaps == run.gaps
    assert "Audit" in write(tmp_path / "run").read_text()
    assert [line.name for line in run.audit().lines if line.checked] == ["well posed: gamma |A| < 1"]


def test_the_iterate_that_collapsed_is_recorded(tmp_path: Path) -> None:
    X, y = digits(10)
    net = sf.nn.ImplicitReLU.paper(64, 20, 0.1)
    loss = sf.SquaredLoss(X, y)
    run = sf.descend(net, loss, steps=1.0, max_iterations=200, directory=tmp_path / "run", progress=False)
    assert run.status is sf.RunStatus.COLLAPSED and run.iterations == len(run.rows) - 1 > 0
    assert run.gaps[-1] == pytest.approx(0.5 * float(y.square().sum()))
    assert "step" not in run.rows[-1]
    assert str(sf.Run.load(tmp_path / "run").audit()) == str(run.audit())
    assert "the weights kept are those of the newest checkpoint" in write(tmp_path / "run").read_text()


def test_the_report_gives_the_factor_of_the_worst_iteration(tmp_path: Path) -> None:
    net, X, y = small(0)
    run = sf.descend(net, sf.SquaredLoss(X, y), directory=tmp_path / "run", max_iterations=3, progress=False)
    worst = min(segment.decrease for segment in run.certificate.schedule)
    assert worst < 0.5 * run.certificate.schedule[0].decrease
    text = write(tmp_path / "run").read_text()
    assert "in every iteration, at worst" in text
    assert factor(worst) in text and factor(run.certificate.schedule[0].decrease) not in text


def test_collapse_has_a_status_and_keeps_the_last_good_weights(tmp_path: Path) -> None:
    """The erratum of section 5.2: non-negative inputs and a step above 2/λ_max kill every unit."""
    X, y = digits(40)
    net = sf.nn.ImplicitReLU.paper(64, 60, 0.8)
    run = sf.descend(
        net, sf.SquaredLoss(X, y), steps=0.5, max_iterations=200, directory=tmp_path / "run", progress=False
    )
    assert run.status.failed and run.status in (sf.RunStatus.COLLAPSED, sf.RunStatus.ILL_POSED)
    assert all(bool(tensor.isfinite().all()) for tensor in run.final.values())
    assert float(torch.linalg.matrix_norm(run.final["A"], 2)) * 0.8 < 1.0


def test_well_posed_steps_never_lose_the_equilibrium() -> None:
    X, y = digits(40)
    losing = sf.nn.ImplicitReLU.paper(64, 60, 0.95)
    keeping = sf.nn.ImplicitReLU.paper(64, 60, 0.95)
    loss = sf.SquaredLoss(X, y)
    assert sf.descend(losing, loss, steps=5e-3, max_iterations=60, progress=False).status is sf.RunStatus.ILL_POSED
    run = sf.descend(keeping, loss, steps=sf.steps.WellPosed(5e-3), max_iterations=60, progress=False)
    assert not run.status.failed
    assert max(row["contraction"] for row in run.rows) <= 0.99 * (1 + 1e-9)


def test_traces_of_a_loop_of_ones_own() -> None:
    net, X, y = small(4)
    loss = sf.SquaredLoss(X, y)
    certificate = sf.certify(net, loss)
    assert certificate.step_size is not None
    trace = sf.Trace(loss)
    for _ in range(20):
        trace.record(net, certificate.step_size)
        net.zero_grad()
        (0.5 * ((net(X) - y) ** 2).sum()).backward()
        with torch.no_grad():
            for parameter in net.parameters():
                assert parameter.grad is not None
                parameter -= certificate.step_size * parameter.grad
    trace.record(net)
    audit = sf.audit(trace, certificate)
    assert audit.holds, str(audit)
    assert any(line.checked and "step" in line.name for line in audit.lines)


def test_losses_that_do_not_fit() -> None:
    net, X, y = small(0)
    with pytest.raises(TypeError, match=r"MatrixSensing.*SquaredLoss"):
        sf.certify(net, sf.MatrixSensing(torch.ones(2, 2, 2, dtype=torch.float64) * torch.eye(2), torch.ones(2)))
    with pytest.raises(TypeError, match="needs the rows"):
        sf.certify(net, sf.SquaredLoss.from_statistics(sf.SquaredLoss(X, y).statistics))
    with pytest.raises(ValueError, match="inputs=3"):
        sf.certify(net, sf.SquaredLoss(X[:, :3], y))
    with pytest.raises(TypeError, match="float64"):
        sf.certify(net.float(), sf.SquaredLoss(X, y))


# -- gradient flow -----------------------------------------------------------------------------------------------------


def linear_flow(H: Tensor, residual: Tensor, times: Tensor) -> Tensor:
    """exp(-Ht) r_0 at each time (T, N): the residual of the flow of a network whose Gram matrix H (N, N) does not move."""
    values, vectors = torch.linalg.eigh(H)
    return (torch.exp(-times[:, None] * values) * (vectors.T @ residual)) @ vectors.T


def test_gradient_flow_follows_the_lazy_model_at_large_scale() -> None:
    net, X, y = small(5)
    scale = 30.0
    big = sf.nn.ImplicitReLU(net.W * scale, net.A * scale, net.b, net.gamma / scale)
    H = big.gram(X)
    horizon = 2.0 / float(torch.linalg.eigvalsh(H)[-1])
    times = torch.linspace(0.0, horizon, 5, dtype=torch.float64)
    predicted = linear_flow(H, -y, times)
    flow = sf.gradient_flow(big, sf.SquaredLoss(X, y), times)
    assert flow.status is sf.RunStatus.CONVERGED
    torch.testing.assert_close(flow.outputs[:, :, 0] - y, predicted, rtol=0.0, atol=1e-3 * float(y.norm()))
    assert flow.gaps[-1] == pytest.approx(0.5 * float(((big(X) - y).detach() ** 2).sum()), rel=1e-9)


def test_gradient_flow_follows_the_scalar_case_with_its_own_tolerances() -> None:
    with (Path(__file__).parents[1] / "cases" / "implicit_relu.json").open() as file:
        case = next(case for case in json.load(file)["cases"] if case["kind"] == "gradient_flow")
    inputs = {name: torch.tensor(value, dtype=torch.float64) for name, value in case["inputs"].items()}
    net = sf.nn.ImplicitReLU(inputs["W"], inputs["A"], inputs["b"], case["inputs"]["gamma"])
    flow = sf.gradient_flow(net, sf.SquaredLoss(inputs["X"], inputs["y"]), inputs["t"])
    assert flow.gaps == pytest.approx(case["expected"]["loss"], rel=case["rtol"], abs=0.0)


def test_gradient_flow_ends_with_a_status() -> None:
    net, X, y = small(0)
    flow = sf.gradient_flow(net, sf.SquaredLoss(X, y), [0.0, 1e6], max_evaluations=50)
    assert flow.status is sf.RunStatus.MAX_ITERATIONS and flow.times.tolist() == [0.0]
    with pytest.raises(ValueError, match="increase"):
        sf.gradient_flow(net, sf.SquaredLoss(X, y), [1.0, 0.5])
    with pytest.raises(TypeError, match=r"times is 1\.0 \(float\); pass a list of increasing times"):
        sf.gradient_flow(net, sf.SquaredLoss(X, y), 1.0)  # type: ignore[arg-type]


def test_the_system_is_registered() -> None:
    assert system_named("implicit").default_theorem == SPECTRAL
    assert math.isfinite(system_named("implicit").resolution(small(0)[0], SampleLoss(*small(0)[1:])))
