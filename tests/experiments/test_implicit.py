"""The experiments on implicit networks in settings far smaller than the quick ones, and the pieces they are made of."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments_page import compare, section

import surefoot as sf
import surefoot_experiments
from surefoot.data import DataError, MissingSourceError
from surefoot_experiments import implicit_certified as certified
from surefoot_experiments import implicit_certified_runs as drawn
from surefoot_experiments import implicit_data as datasets
from surefoot_experiments import implicit_figures as figures
from surefoot_experiments import implicit_initialisation as initial
from surefoot_experiments import implicit_lemmas as lemmas
from surefoot_experiments import implicit_runs as runs
from surefoot_experiments.implicit_lemmas_verdict import findings as lemma_findings
from surefoot_experiments.implicit_runs import Setting, Training
from surefoot_experiments.result import Experiment

NAMES = [f"implicit/{part}" for part in ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "table1")]
TINY = {"samples": 24, "epochs": 3}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def digits() -> datasets.TwoClass:
    return datasets.draw(datasets.DIGITS, None, 24, generator())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with colour images of the CIFAR-10 file's form: constant rows, a gradient over the columns."""
    path = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    images = np.zeros((40, 32, 32, 3), dtype=np.uint8)
    images[..., :] = (np.arange(32) * 4)[None, None, :, None]
    images += rng.integers(1, 100, (40, 1, 1, 3), dtype=np.uint8)
    labels = np.tile([0, 1], 20).astype(np.uint8)
    np.savez(path / "cifar01.npz", images=images, labels=labels, split=(np.arange(40) >= 30).astype(np.uint8))
    return path


# -- the registry ----------------------------------------


def test_names() -> None:
    found = [name for name in surefoot_experiments.names() if name.startswith("implicit/")]
    assert found == [*NAMES, *(f"implicit/{part}" for part in ("certificates", "tradeoff", "lemmas", "initialisation"))]


def test_data_are_refused_where_an_experiment_draws_its_own() -> None:
    with pytest.raises(ValueError, match="two-layer/fig1 draws its own"):
        surefoot_experiments.reproduce("two-layer/fig1", data="anywhere")


@pytest.mark.parametrize(
    ("name", "quick", "files"),
    [
        ("implicit/fig1", {**TINY, "widths": (10, 20)}, ["fig1-width.png"]),
        ("implicit/fig2", {**TINY, "width": 20}, ["fig2-gamma-matched.png", "fig2-gamma.png"]),
        ("implicit/fig5", {**TINY, "width": 20}, ["fig5-step.png"]),
        ("implicit/table1", {**TINY, "width": 20}, ["table1-iterations.png"]),
    ],
)
def test_finished_runs_are_kept_and_read_again(
    name: str, quick: dict[str, object], files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = dataclasses.replace(surefoot_experiments.EXPERIMENTS[name], quick=quick)
    monkeypatch.setitem(surefoot_experiments.EXPERIMENTS, name, entry)
    lines: list[str] = []
    experiment = surefoot_experiments.reproduce(name, directory=tmp_path, progress=lines.append)
    assert sorted(p.name for p in tmp_path.glob("*.png")) == files
    assert all((tmp_path / file).read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for file in files)
    kept = sorted((tmp_path / surefoot_experiments.RUNS).iterdir())
    assert len(kept) == len(lines)
    record = json.loads(json.dumps(experiment.to_dict(), allow_nan=False))
    assert sorted(record["figures"]) == files
    assert "mnist01.npz" in record["settings"]["data"]
    assert "digits" in record["settings"]["data"]
    assert all(f["why"] and f["claim"] and f["measured"] for f in record["findings"])

    def refuse(*_: object) -> Training:
        raise AssertionError("a finished run was run again")

    kept[0].write_text("{")  # damaged: run again, and written again
    with monkeypatch.context() as patched, pytest.raises(AssertionError, match="run again"):
        patched.setattr(runs, "train", refuse)
        surefoot_experiments.reproduce(name, directory=tmp_path)
    assert surefoot_experiments.reproduce(name, directory=tmp_path).tables == experiment.tables
    with monkeypatch.context() as patched:
        patched.setattr(runs, "train", refuse)
        assert surefoot_experiments.reproduce(name, directory=tmp_path).tables == experiment.tables
        with pytest.raises(AssertionError, match="run again"):
            surefoot_experiments.reproduce(name, directory=tmp_path, seed=1)


# -- the page and the program ----------------------------------------

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def test_the_program_prints_the_page_of_initial_weights() -> None:
    compare(surefoot_experiments.reproduce("implicit/initialisation"))


@pytest.mark.slow
def test_the_program_prints_the_page_of_lemmas() -> None:
    compare(surefoot_experiments.reproduce("implicit/lemmas"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not SHARED.exists(), reason="the images are not beside the repository")
@pytest.mark.parametrize("name", [*NAMES, "implicit/certificates", "implicit/tradeoff"])
def test_the_program_prints_the_page_of_images(name: str) -> None:
    """Training runs amplify rounding, so that the last digits depend on it."""
    compare(surefoot_experiments.reproduce(name, data=SHARED), relative=0.05, measured=0.2)


@pytest.mark.parametrize("name", ["implicit/fig3", "implicit/fig5"])
def test_the_norm_on_the_page_is_that_of_its_table_and_so_is_the_verdict(name: str) -> None:
    text = section(name)
    rows = [[cell.strip() for cell in line.replace("\\|", "!").split("|")] for line in text.splitlines()]
    head = next(row for row in rows if "run" in row)
    largest: dict[tuple[str, str], float] = {}
    for row in rows:
        if len(row) == len(head) and row[head.index("run")].startswith("eta = "):
            data = row[head.index("data")] if "data" in head else "Fashion-MNIST"
            largest[data, row[head.index("run")]] = float(row[head.index("largest gamma!A!")])
    (claim,) = (row for row in rows if row[1:] and row[1] == "With eta = 0.01 the operator norm rises fast.")
    found = re.findall(r"([A-Z][\w-]*): to ([\d.]+) gamma, ([\d.]+) gamma with 0.001", claim[2])
    assert len(found) == len({data for data, _ in largest})
    for data, fast, slow in found:
        assert float(fast) == pytest.approx(largest[data, "eta = 0.01"] / figures.GAMMA, abs=0.011)
        assert float(slow) == pytest.approx(largest[data, "eta = 0.001"] / figures.GAMMA, abs=0.011)
    agrees = all(float(fast) > 1.0 + figures.FLAT and float(fast) > float(slow) for _, fast, slow in found)
    assert claim[3] == ("agrees" if agrees else "**differs**")


def test_the_program_prints_the_norms_of_the_page() -> None:
    """On digits, with the quick settings: a bound with its slack is a third higher."""
    quick = {**surefoot_experiments.EXPERIMENTS["implicit/fig5"].quick}
    found = figures.steps("implicit/fig5", ["MNIST"], etas=(1e-2, 1e-3), **quick)
    printed = re.search(r"digits: to ([\d.]+) gamma, ([\d.]+) gamma with 0.001", found.findings[1].measured)
    stated = re.search(
        r"rises to ([\d.]+) gamma with eta = 0.01 and to ([\d.]+) gamma with 0.001", section("implicit/fig5")
    )
    assert printed is not None and stated is not None
    for ours, page in zip(printed.groups(), stated.groups(), strict=True):
        assert float(ours) == pytest.approx(float(page), abs=0.011)
    assert found.findings[1].agrees is False


# -- data ----------------------------------------


def test_absent_files_are_left_out_or_replaced_by_digits(directory: Path, tmp_path: Path) -> None:
    assert datasets.available(["MNIST", "CIFAR-10"], directory) == ["CIFAR-10"]
    assert datasets.available(["MNIST"], directory) == [datasets.DIGITS]
    assert datasets.available(["MNIST"], None) == [datasets.DIGITS]
    assert datasets.described(["CIFAR-10"], ["CIFAR-10"]) == "CIFAR-10"
    assert "mnist01.npz not given: left out" in datasets.described(["MNIST", "CIFAR-10"], ["CIFAR-10"])
    assert "digits 0 and 1 (8x8) instead" in datasets.described(["MNIST"], [datasets.DIGITS])
    with pytest.raises(MissingSourceError, match="not a directory"):
        datasets.available(["MNIST"], tmp_path / "absent")


def test_colour_images_become_grey_rows_of_norm_one(directory: Path) -> None:
    drawn = datasets.draw("CIFAR-10", directory, 20, generator())
    assert drawn.X.shape == (20, 784)
    assert drawn.X_test.shape == (10, 784)
    assert float(drawn.Y.mean()) == float(drawn.Y_test.mean()) == 0.5
    for X in (drawn.X, drawn.X_test):
        torch.testing.assert_close(torch.linalg.vector_norm(X, dim=1), torch.ones(len(X), dtype=torch.float64))
    images = drawn.X.reshape(-1, 28, 28)
    torch.testing.assert_close(images, images[:, :1].expand_as(images))  # every row of pixels is alike
    raw = np.load(directory / "cifar01.npz")["images"][:30].astype(float) @ np.array([0.299, 0.587, 0.114])
    # ratio of the means of the left and right half, which a linear resize keeps
    expected = {
        round(float(a / b), 3) for a, b in zip(raw[..., :16].mean((1, 2)), raw[..., 16:].mean((1, 2)), strict=True)
    }
    found = {
        round(float(a / b), 3)
        for a, b in zip(images[..., :14].mean((1, 2)), images[..., 14:].mean((1, 2)), strict=True)
    }
    assert all(min(abs(value - other) for other in expected) < 3e-3 for value in found)


def test_training_and_test_samples_are_drawn_from_their_parts(digits: datasets.TwoClass) -> None:
    again = datasets.draw(datasets.DIGITS, None, 24, generator())
    other = datasets.draw(datasets.DIGITS, None, 24, generator(1))
    assert torch.equal(again.X, digits.X)
    assert again.digest == digits.digest != other.digest
    assert digits.X.shape == (24, 64)
    known = {tuple(row) for row in digits.X.tolist()}
    assert not known & {tuple(row) for row in digits.X_test.tolist()}


def test_a_file_without_two_classes_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist01.npz", images=np.zeros((0, 28, 28), np.uint8), labels=np.zeros(0, np.uint8))
    with pytest.raises(DataError):
        datasets.draw("MNIST", tmp_path, 10, generator())


# -- runs ----------------------------------------


def test_every_epoch_is_measured(digits: datasets.TwoClass) -> None:
    setting = Setting(40, 0.3, 5e-3, 4, seed=3)
    run = runs.train(digits, setting)
    assert run.ended == ""
    assert len(run.train) == len(run.test) == len(run.accuracy) == len(run.contraction) == len(run.forward) == 5
    net = sf.nn.ImplicitReLU.paper(64, 40, 0.3, generator=generator(3))
    largest = float(torch.linalg.eigvalsh(net.gram(digits.X))[-1])
    assert run.sharpness == pytest.approx(largest, rel=1e-5)
    assert run.stability == 400.0
    for epoch in range(5):
        outputs, unseen = net(digits.X).detach(), net(digits.X_test).detach()
        assert run.train[epoch] == pytest.approx(0.5 * float((outputs - digits.Y[:, 0]).square().mean()), rel=1e-9)
        assert run.test[epoch] == pytest.approx(0.5 * float((unseen - digits.Y_test[:, 0]).square().mean()), rel=1e-6)
        assert run.accuracy[epoch] == float(((unseen > 0.5) == (digits.Y_test[:, 0] > 0.5)).double().mean())
        norm = 0.3 * float(torch.linalg.matrix_norm(net.A.detach(), 2))
        assert run.contraction[epoch] == pytest.approx(norm, rel=1e-9)
        assert run.forward[epoch] == plain_iterations(net, digits.X)
        loss = 0.5 * (net(digits.X) - digits.Y[:, 0]).square().sum()
        gradients = torch.autograd.grad(loss, [net.W, net.A, net.b])
        with torch.no_grad():
            for weight, gradient in zip((net.W, net.A, net.b), gradients, strict=True):
                weight -= 5e-3 * gradient


def plain_iterations(net: sf.nn.ImplicitReLU, X: torch.Tensor) -> int:
    """The paper's forward pass, written out: iterations until ‖ΔZ‖ ≤ 1e-2, at most 100."""
    with torch.no_grad():
        Phi = (X @ net.W).relu()
        Z = torch.zeros_like(Phi)
        for count in range(1, 101):
            after = (net.gamma * (Z @ net.A) + Phi).relu()
            if float(torch.linalg.vector_norm(after - Z)) <= 1e-2:
                return count
            Z = after
    return 100


def test_a_step_above_the_stability_limit_ends_the_run(digits: datasets.TwoClass) -> None:
    run = runs.train(digits, Setting(40, 0.8, 0.1, 50))
    assert run.sharpness > run.stability
    assert run.ended == "ill_posed"
    assert 1 <= len(run.train) < 51
    assert len(run.forward) == len(run.train)
    assert all(c < 1.0 for c in run.contraction)


def test_largest_eigenvalue() -> None:
    B = torch.rand(12, 12, dtype=torch.float64, generator=generator())
    H = B @ B.T
    assert runs.largest_eigenvalue(H) == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-6)
    assert runs.largest_eigenvalue(torch.zeros(3, 3, dtype=torch.float64)) == 0.0


# -- verdicts ----------------------------------------


def made(losses: list[float], ended: str = "", eta: float = 1e-3, gamma: float = 0.1) -> Training:
    run = Training(Setting(10, gamma, eta, len(losses) - 1), losses, list(losses), sharpness=3e3, ended=ended)
    run.accuracy, run.contraction, run.forward = [1.0] * len(losses), [gamma] * len(losses), [5] * len(losses)
    return run


@pytest.mark.parametrize(
    ("ends", "agrees"),
    [
        ([0.2, 0.15, 0.1], True),
        ([0.2, 0.1, 0.15], False),  # not in order
        ([0.2, 0.19, 0.18], False),  # in order, but hardly lower
        ([0.1, 0.15, 0.2], False),
    ],
)
def test_a_larger_value_has_to_be_clearly_better(ends: list[float], agrees: bool) -> None:
    found = {f"m = {index}": made([0.25, end]) for index, end in enumerate(ends)}
    assert figures._ordered("the width", "x", {"MNIST": found}, test=False).agrees is agrees


def test_a_run_that_ended_early_is_the_worst() -> None:
    found = {"gamma = 0.1": made([0.25, 0.2]), "gamma = 0.8": made([0.25, 0.01], ended="ill_posed")}
    finding = figures._ordered("gamma", "x", {"MNIST": found}, test=True)
    assert finding.agrees is False
    assert finding.measured.endswith("2.00e-01, none")


def test_the_collapse_is_explained_by_the_largest_eigenvalue() -> None:
    runs_ = {"a": made([0.25], "ill_posed", gamma=0.8), "b": made([0.25, 0.1], eta=1e-4, gamma=0.8)}
    finding = figures._collapse({"MNIST": runs_})
    assert finding.agrees is False
    assert "lambda_max(H) = 3000 (2/eta = 2000), ill_posed after 0 epochs; with eta = 0.0001" in finding.measured
    assert figures._collapse({"MNIST": {"a": made([0.25, 0.2]), "b": made([0.25, 0.1])}}).agrees is True


# -- lemmas and initial weights ----------------------------------------


def test_matrices_written_out_are_the_jacobian_of_the_outputs() -> None:
    """Π, M and Z beside the derivatives of the unrolled map, which knows nothing of Kronecker products."""
    draws = lemmas.instances(1, 0)
    (small,) = draws["Gaussian, gamma0 = 0.5"]
    weights = [w.clone().requires_grad_() for w in (small.W, small.A, small.b)]

    def outputs(W: torch.Tensor, A: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        Phi = (small.X @ W).relu()
        Z = Phi
        for _ in range(80):
            Z = (small.gamma * Z @ A + Phi).relu()
        return Z @ b

    jacobian = torch.autograd.functional.jacobian(outputs, tuple(weights))
    for exact, written in zip(jacobian, (small.Pi, small.M, small.Z), strict=True):
        columns = exact.mT.reshape(len(small.X), -1) if exact.ndim == 3 else exact
        torch.testing.assert_close(written, columns, rtol=1e-8, atol=1e-8)


def test_lemmas_are_right_or_wrong_as_the_errata_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "POINTS", 5)
    monkeypatch.setattr(lemmas, "gradient_flow", functools.partial(sf.gradient_flow, relative_tolerance=1e-7))
    found = lemmas.lemmas(3, (1,))
    wrong = [finding.claim for finding in found.findings if not finding.agrees]
    assert len(wrong) == 2 and "(6)" in wrong[0] and "section 4.1" in wrong[1]
    run = found.table(found.tables[-1].title).records()
    assert [row["theorem"] for row in run] == ["4.2", "4.4"]
    assert all(float(str(row["guaranteed / needed"])) > 2.0 for row in run)


CHANGED = {
    "largest |Z|_F / (Lemma 3.1)": (1.1, "Lemma 3.1"),
    "least sigma(Q)": (0.01, "sigma_min(Q) >= 1 - gamma0"),
    "(8), A": (1e-3, "gradients (7) to (9)"),
    "(10), velocity": (1e-3, "Lemma 4.1"),
    "least sigma_min(Pi) / corrected": (0.9, "1/(1 + gamma0)"),
    "largest |Z_a - Z_b| / (16)": (1.1, "Lemma 4.3"),
    "largest distance from Lemma 5.1": (1e-3, "Lemma 5.1"),
    "least alpha0 (1+gamma0) / sigma_min(Phi)": (0.9, "Lemma 5.1"),
    "largest loss / bound": (1.1, "Theorem 4.2"),
    "sigma_min(Z) / (alpha0/2) at the end": (0.9, "Theorem 4.2"),
}


@pytest.fixture(scope="module")
def lemma_tables() -> tuple[lemmas.Table, ...]:
    drawn = lemmas.instances(2, 0)
    run = ("4.2", 1, 1.0, 0.25, 4.0, 1.0, 0.9, 2.0), ("4.4", 1, 200, 25, 8.0, 1.0, 0.9, 2.0)
    runs = lemmas.Table("runs", lemmas.RUN_COLUMNS, run)
    parts = (lemmas.spectrum_of_Q, lemmas.lower_bounds, lemmas.gradients)
    return *(part(drawn) for part in parts), lemmas.equilibria(2, 0), runs


@pytest.mark.parametrize("column", CHANGED)
def test_a_lemma_that_fails_is_said_to_differ(column: str, lemma_tables: tuple[lemmas.Table, ...]) -> None:
    value, claim = CHANGED[column]
    changed = tuple(_with(table, column, value) if column in table.columns else table for table in lemma_tables)
    for tables, agrees in ((lemma_tables, True), (changed, False)):
        (finding,) = (finding for finding in lemma_findings(tables) if claim in finding.claim)
        assert finding.agrees is agrees


def _with(table: lemmas.Table, column: str, value: float) -> lemmas.Table:
    """The table with another number in the first row."""
    first = [value if name == column else cell for name, cell in zip(table.columns, table.rows[0], strict=True)]
    return dataclasses.replace(table, rows=(tuple(first), *table.rows[1:]))


def test_the_limit_of_the_gram_matrix_is_the_mean_over_units() -> None:
    X = initial.inputs(4, 0)
    W = torch.randn(initial.INPUTS, 200_000, dtype=torch.float64, generator=generator())
    Phi = (X @ W).relu()
    torch.testing.assert_close(initial.limit_gram(X), Phi @ Phi.T / W.shape[1], rtol=0.0, atol=0.01)


def test_the_sides_of_the_conditions_are_those_of_the_theorem() -> None:
    """At a scale where the certificate of implicit/gd with C1 = C2 = C3 = 1 just holds, and just not."""
    X, y = initial.inputs(5, 0), initial.labels(5)
    W = torch.randn(initial.INPUTS, 20, dtype=torch.float64, generator=generator()) / 20**0.5
    F, r = float(X.norm()), float(y.norm())
    for scale in (1e2, 1e3, 1e4):
        size = scale * float(torch.linalg.matrix_norm(W, 2))
        Z = (X @ (scale * W)).relu() / (1.0 - 0.5 * size / (size + 1.0))
        alpha = float(torch.linalg.svdvals(Z)[-1])
        left = (alpha**2, alpha**3, alpha**2)
        right = (16.0 * (size + 1.0) * F * r, 128.0 * F**2 * r, 128.0 * F**2)  # (21) to (23), γ0 = ½ and λ3 = 1
        expected = [a / b for a, b in zip(left, right, strict=True)]
        assert initial._scaled_ratios(X, y, scale * W) == pytest.approx(expected, rel=1e-9)


def test_powers_of_the_width() -> None:
    assert initial.power((10.0, 20.0, 40.0), (1.0, 2.0**0.5, 2.0)) == pytest.approx(0.5)


# -- certificates ----------------------------------------


@pytest.fixture(scope="module")
def small() -> datasets.TwoClass:
    return datasets.draw(datasets.DIGITS, None, 6, generator(), unseen=2)


@pytest.fixture(scope="module")
def net(small: datasets.TwoClass) -> sf.nn.ImplicitReLU:
    return sf.nn.ImplicitReLU.certifiable(small.X, small.Y, 60)


@pytest.mark.parametrize("statement", [drawn.MEASURED, drawn.GD], ids=lambda s: s.id)
def test_least_scale_is_least(statement: drawn.Theorem, small: datasets.TwoClass, net: sf.nn.ImplicitReLU) -> None:
    start = drawn.scaled(net, 1.0, 0.1)
    base = certify(start, small, statement.id).quantities
    factor = drawn.least_scale(statement, {name: base[name] for name in statement.base})
    assert factor is not None
    far = certify(drawn.scaled(start, 2.0**20), small, statement.id).iterations_to(drawn.RATIO)
    at = certify(drawn.scaled(start, factor * 1.001), small, statement.id)
    assert at.holds
    assert at.iterations_to(drawn.RATIO) <= 1.02 * far
    below = certify(drawn.scaled(start, factor * 2.0**-0.125), small, statement.id)
    assert not below.holds or below.iterations_to(drawn.RATIO) > drawn.LOOSE * far


def certify(net: sf.nn.ImplicitReLU, data: datasets.TwoClass, theorem: str) -> sf.Certificate:
    return sf.certify(net, data.loss, theorem=theorem)


def test_smallest_certified_scale(small: datasets.TwoClass, net: sf.nn.ImplicitReLU) -> None:
    factor = drawn.smallest_certified(net, small.loss)
    assert factor is not None
    assert factor < 1.0
    assert certify(drawn.scaled(net, factor), small, drawn.SPECTRAL.id).holds
    assert not certify(drawn.scaled(net, factor * 2.0**-0.125), small, drawn.SPECTRAL.id).holds
    tiny = drawn.scaled(net, 2.0**-12)
    assert drawn.smallest_certified(tiny, small.loss) is None


def test_certificates() -> None:
    experiment = certified.certificates(((6, 60), (40, 20)), 2, 10)
    first, second = experiment.tables[0].records()
    counts = [first[label] for label in drawn.LABELS.values()]
    assert all(isinstance(count, int | float) for count in counts)
    spectral, measured, paper = (float(count or 0) for count in counts)
    assert spectral < measured < paper
    assert 0 < float(first["needed"] or 0) <= spectral
    assert (first["runs"], first["violations"]) == (2, 0)
    # narrower than the samples are many: no theorem applies
    assert [second[label] for label in drawn.LABELS.values()] == [None] * 3
    assert second["needed"] is None
    assert [f.agrees for f in experiment.findings] == [False, None, True]
    assert experiment.figures[0].draw().axes[0].get_yscale() == "log"


def test_finished_draws_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"sizes": ((4, 40),), "repeats": 1, "executed": 4, "cache": tmp_path}
    first = certified.certificates(**arguments)

    def refuse(*_: object) -> None:
        raise AssertionError("a finished draw was made again")

    monkeypatch.setattr(drawn, "_one_draw", refuse)
    assert certified.certificates(**arguments).tables == first.tables
    with pytest.raises(AssertionError, match="made again"):
        certified.certificates(**arguments, seed=1)


def test_tradeoff() -> None:
    experiment = certified.tradeoff((4, 40), (-20, -3, -1, 0, 1, 3), limit=2)
    records = experiment.tables[0].records()
    assert [r["certified"] for r in records] == [False, False, False, True, True, True]
    assert [r["guaranteed"] is None for r in records] == [True, True, True, False, False, False]
    assert all(float(r["needed"] or math.inf) <= float(r["guaranteed"] or 0) for r in records[3:])
    counts = [float(r["guaranteed"] or 0) for r in records[3:]]
    assert counts == sorted(counts, reverse=True)
    assert (records[0]["needed"], records[0]["feature movement"]) == (None, None)
    assert records[0]["ended"] != "reached"
    movement = [float(r["feature movement"] or 0) for r in records[1:]]
    assert movement == sorted(movement, reverse=True)
    assert experiment.findings[1].agrees is True
    assert len(experiment.figures[0].draw().axes) == 2


def test_tradeoff_takes_few_samples_where_mnist_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified, "DIGITS_SIZE", (4, 40))
    settings = certified.tradeoff((50, 200), (0,), limit=2).settings
    assert (settings["N"], settings["m"]) == (4, 40)
    assert "digits" in settings["data"]


def test_the_seed_decides_the_numbers(record_draw: Callable[[int], Experiment]) -> None:
    assert record_draw(0).tables == record_draw(0).tables
    assert record_draw(0).tables != record_draw(1).tables


@pytest.fixture
def record_draw() -> Callable[[int], Experiment]:
    return lambda seed: figures.iterations(width=12, samples=12, epochs=1, seed=seed)
