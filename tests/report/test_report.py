"""The report of a run directory: complete, self-contained, honest, and safe against what the files may hold."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import surefoot as sf
from surefoot import _report
from surefoot._core.audit import AuditLine, merged
from surefoot._core.plans import PLANS
from surefoot._core.registry import system_named
from surefoot._report import plots
from surefoot._report.facts import Facts
from surefoot._report.page import page as document
from surefoot._report.wording import by_family, count, factor, margin, number
from surefoot._two_layer.system import TwoLayerSystem

VOID = {"meta", "br", "link", "img"}
PLOTS = ("gap", "steps", "conditions")


def problem(n: int = 4, m: int = 3) -> sf.SquaredLoss:
    g = torch.Generator().manual_seed(3)
    X = torch.randn(30, n, generator=g, dtype=torch.float64)
    return sf.SquaredLoss(X, X @ torch.randn(n, m, generator=g, dtype=torch.float64))


def network(loss: sf.Loss, width: int = 60) -> sf.nn.TwoLayerLinear:
    return sf.nn.TwoLayerLinear.gaussian(*loss.shape, width, std=width**-0.5, seed=0)


class _Stop(sf.steps.Sharp):
    """Presses Ctrl-C at its fourth step."""

    taken = 0

    def step(self, engine: object) -> float:
        self.taken += 1
        if self.taken == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(engine)  # type: ignore[arg-type]


def certified(directory: Path) -> sf.Run:
    loss = problem()
    config = {"evaluation": {"test error": 0.0525}, "data": {"name": "made"}}
    return sf.descend(network(loss), loss, directory=directory, tolerance=1e-8, config=config)


def again(directory: Path) -> sf.Run:
    loss = problem()
    return sf.descend(network(loss), loss, directory=directory, tolerance=1e-8, certify_every=10)


def narrow(directory: Path) -> sf.Run:
    loss = problem()
    return sf.descend(network(loss, 2), loss, directory=directory, max_iterations=15)


def unregularised(directory: Path) -> sf.Run:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(20, 3, generator=g, dtype=torch.float64)
    loss = sf.SoftmaxRegression(X, torch.arange(20) % 3, 0.0)
    return sf.descend(network(loss), loss, directory=directory, max_iterations=10)


def paper(directory: Path) -> sf.Run:
    g = torch.Generator().manual_seed(0)
    X = torch.linalg.qr(torch.randn(40, 4, generator=g, dtype=torch.float64))[0]
    loss = sf.SquaredLoss(X, X @ torch.randn(4, 4, generator=g, dtype=torch.float64))
    net = sf.nn.TwoLayerLinear.gaussian(4, 4, 400, seed=0)
    found = sf.certify(net, loss, theorem="two-layer/corrected")
    return sf.descend(net, loss, certificate=found, directory=directory, tolerance=1e-6)


def diverged(directory: Path) -> sf.Run:
    loss = problem()
    return sf.descend(network(loss), loss, steps=1.0, directory=directory)


def interrupted(directory: Path) -> sf.Run:
    loss = problem()
    return sf.descend(network(loss), loss, steps=_Stop(), directory=directory)


def unmoved(directory: Path) -> sf.Run:
    loss = problem()
    return sf.descend(network(loss), loss, directory=directory, max_iterations=0)


def optimal(directory: Path) -> sf.Run:
    eye = torch.eye(2, dtype=torch.float64)
    return sf.descend(sf.nn.TwoLayerLinear(eye, 2.0 * eye), sf.SquaredLoss(eye, 2.0 * eye), directory=directory)


def resnet(directory: Path) -> sf.Run:
    loss = problem()
    net = sf.nn.LinearResNet.gaussian(*loss.shape, 30, 3, seed=0)
    return sf.descend(net, loss, directory=directory, max_iterations=200, tolerance=1e-8, certify_every=10)


def resnet_paper(directory: Path) -> sf.Run:
    loss = problem()
    net = sf.nn.LinearResNet.modified_identity(*loss.shape, 7, 3, 5000.0)
    found = sf.certify(net, loss, theorem="linear-resnet/gd")
    return sf.descend(net, loss, certificate=found, directory=directory, max_iterations=50)


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """8 rows of norm 1, two outputs."""
    g = torch.Generator().manual_seed(4)
    X = torch.randn(8, 10, generator=g, dtype=torch.float64)
    return X / X.norm(dim=1, keepdim=True), torch.randn(8, 2, generator=g, dtype=torch.float64)


def implicit(directory: Path) -> sf.Run:
    X, Y = samples()
    net = sf.nn.ImplicitReLU.certifiable(X, Y, 40)
    return sf.descend(net, sf.SquaredLoss(X, Y), directory=directory, tolerance=1e-2)


def implicit_measured(directory: Path) -> sf.Run:
    X, Y = samples()
    loss, net = sf.SquaredLoss(X, Y), sf.nn.ImplicitReLU.certifiable(X, Y, 40)
    net = sf.nn.ImplicitReLU(100.0 * net.W, 100.0 * net.A, net.b, net.gamma / 100.0)
    found = sf.certify(net, loss, theorem="implicit/measured")
    return sf.descend(net, loss, certificate=found, directory=directory, max_iterations=20)


def implicit_paper(directory: Path) -> sf.Run:
    X, Y = samples()
    loss, net = sf.SquaredLoss(X, Y), sf.nn.ImplicitReLU.paper(10, 40, 0.5, outputs=2)
    found = sf.certify(net, loss, theorem="implicit/gd")
    return sf.descend(net, loss, certificate=found, directory=directory, max_iterations=20)


def ill_posed(directory: Path) -> sf.Run:
    X, Y = samples()
    net = sf.nn.ImplicitReLU.paper(10, 40, 0.9, outputs=2)
    return sf.descend(net, sf.SquaredLoss(X, Y), steps=3.0, directory=directory)


def lasso(directory: Path) -> sf.Run:
    """No rate, and steps that a network proposes."""
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(0.5, 1.5))
    return sf.descend(net, sf.learned.Lasso.random(3, 10, 20, lam=0.01, seed=0), directory=directory, max_iterations=9)  # pyright: ignore[reportArgumentType]


def lasso_rate(directory: Path) -> sf.Run:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(0.5, 1.5))
    problems = sf.learned.Lasso.random(3, 10, 20, lam=0.01, seed=0)
    found = sf.certify(net, problems, "step-sizes/prox-rate")
    return sf.descend(net, problems, certificate=found, directory=directory, max_iterations=9)  # pyright: ignore[reportArgumentType]


def least_squares(directory: Path) -> sf.Run:
    net = sf.nn.StepSizeNet.orthogonal((2, 2, 4), range=(0.5, 1.5))
    problems = sf.learned.LeastSquares.random(3, 5, 8, seed=0)
    found = sf.certify(net, problems, "step-sizes/rate")
    return sf.descend(net, problems, certificate=found, directory=directory, max_iterations=9)  # pyright: ignore[reportArgumentType]


def deconvolution(directory: Path) -> sf.Run:
    """A bound D/t, and gaps that are changes of the iterate."""
    blur = sf.deconvolution.PeriodicBlur(torch.full((3, 3), 1.0 / 9.0, dtype=torch.float64), (16, 16))
    picture = torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = sf.deconvolution.DeconvolutionProblem(picture, blur, 0.05, "db2")
    return sf.descend(sf.deconvolution.LADMM(1.0), problem, directory=directory, max_iterations=9)


def truncated(directory: Path) -> sf.Run:
    """A direction of the data within the tolerance of the numerical rank."""
    X = torch.tensor([[1.0, 0.0], [0.0, 1e-16], [0.0, 0.0]], dtype=torch.float64)
    loss = sf.SquaredLoss(X, torch.tensor([1.0, 5.0, 0.0], dtype=torch.float64))
    return sf.descend(network(loss), loss, directory=directory, max_iterations=5)


def collinear(directory: Path) -> sf.Run:
    """A guaranteed count of no practical use."""
    loss = problem()
    X, Y = (torch.as_tensor(array).clone() for array in loss.samples or ())
    X[:, 1] = X[:, 0] + 1e-6 * X[:, 1]
    loss = sf.SquaredLoss(X, Y)
    return sf.descend(network(loss), loss, directory=directory, max_iterations=5)


RUNS = (
    certified, again, narrow, unregularised, paper, diverged, interrupted, unmoved, optimal, resnet, resnet_paper,
    implicit, implicit_measured, implicit_paper, ill_posed, lasso, lasso_rate, least_squares, deconvolution,
)  # fmt: skip


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], sf.Run]], tuple[sf.Run, Path, str]]:
    """Each run once: the run, its directory, the HTML of its report."""
    made: dict[str, tuple[sf.Run, Path, str]] = {}

    def report(make: Callable[[Path], sf.Run]) -> tuple[sf.Run, Path, str]:
        if make.__name__ not in made:
            directory = tmp_path_factory.mktemp("runs") / make.__name__
            run = make(directory)
            made[make.__name__] = (run, directory, _report.write(directory).read_text())
        return made[make.__name__]

    return report


class Structure(HTMLParser):
    """Tags that do not close in order, scripts, references to anything outside the page, repeated ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "srcset", "data", "action") or name.startswith("on"):
                self.references.append(f"{name}={value}")
            self.references += re.findall(r"url\([^)]*\)", value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def words(page: str) -> str:
    """The text of a page outside its drawings."""
    page = re.sub(r"<(style|svg).*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page)))


def undrawn(run: sf.Run) -> str:
    """The text of a run's report, without the time that drawings take."""
    return words(document(Facts.of(run), dict.fromkeys(PLOTS, ""), "0"))


@pytest.mark.parametrize("make", RUNS, ids=lambda make: make.__name__)
def test_report_is_complete_and_self_contained(make, reports) -> None:
    _, directory, page = reports(make)
    for name in PLOTS:
        assert (directory / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    structure = Structure(page)
    assert structure.wrong == []
    assert structure.open == []
    assert structure.tags & {"script", "img", "link", "iframe", "object", "base"} == set()
    inside = [f"#{name}" for name in structure.ids]
    for reference in structure.references:
        assert re.fullmatch(r"(?:href=|url\()(#[^)]*)\)?", reference)[1] in inside
    assert len(set(structure.ids)) == len(structure.ids)
    assert "http" not in page
    assert "@import" not in page
    assert page.count("<svg") >= (1 if make is deconvolution else 2)  # no steps, and margins too small to see
    assert not [file for file in directory.rglob(".*") if file.is_file()]  # no temporary file is left
    text = words(page)
    order = [
        "Key numbers",
        "Hypotheses at",
        "Plots",
        "Audit of",
        "Theorems compared",
        "Quantities",
        "Arrays",
        "Settings",
    ]
    places = [text.index(heading) for heading in [*order, "Check it independently"]]
    assert places == sorted(places)
    assert f"surefoot check {directory.name}" in text
    assert str(directory.parent) not in page


def test_certified_run_states_the_guarantee_with_its_numbers(reports) -> None:
    run, _, page = reports(certified)
    text = words(page)
    assert "✓ GUARANTEED" in text
    guaranteed = run.guaranteed_iterations(1e-8)
    assert f"within {guaranteed:,} iterations" in text
    assert f"The run ended after {run.iterations} iterations" in text
    assert f"from {number(run.gaps[0])} to {number(1e-8 * run.gaps[0])}" in text
    assert "test error 0.0525" in text
    assert "data.name made" in text
    for name, digest in run.certificate.arrays.items():
        assert name in text
        assert digest in text
    assert "differs" not in text
    assert "L1" in text and "L2" in text
    for theorem in PLANS:
        assert (theorem in text) == theorem.startswith("two-layer/")
    for line in run.audit().lines:
        assert line.name in text


def test_linear_resnet_certified_from_a_later_iteration_on(reports) -> None:
    run, _, page = reports(resnet)
    text = words(page)
    since = run.certified_from
    assert since is not None and since > 0
    assert "◐ GUARANTEED FROM A LATER ITERATION ON" in text
    assert f"in iteration {since}, at worst" in text
    for theorem in PLANS:
        assert (theorem in text) == theorem.startswith("linear-resnet/")
    for foreign in ("W1", "W2", "imbalance", "small matrices"):
        assert foreign not in text


@pytest.mark.parametrize(
    "make",
    [
        certified,
        paper,
        resnet,
        resnet_paper,
        implicit,
        implicit_measured,
        implicit_paper,
        lasso,
        lasso_rate,
        least_squares,
        deconvolution,
    ],
    ids=lambda make: make.__name__,
)
def test_every_quantity_has_a_symbol_and_a_meaning(reports, make: Callable[[Path], sf.Run]) -> None:
    run, _, page = reports(make)
    text = words(page)
    known = system_named(run.certificate.system).words.symbols
    single, families = by_family(run.certificate.quantities)
    for name in single:
        symbol, meaning = known[name]
        assert f"{name} {symbol} " in text
        assert meaning in text
    for name, values in families.items():
        symbol, meaning = known[name]
        assert f"{name}[0] … [{len(values) - 1}] {symbol} sum " in text
        assert meaning in text


def test_learned_steps_have_a_range_and_no_first_step(reports) -> None:
    run, _, page = reports(lasso)
    text = words(page)
    assert "Run report: step-sizes/prox-monotone, LASSO problems, " in text
    low, high = (number(end([row[name] for row in run.rows[:-1]])) for end, name in ((min, "lowest"), (max, "highest")))
    assert f"Relative steps P taken {low} … {high} the network's range: 0.5 … 1.5; a step is P/β" in text
    for absent in ("First step taken", "status first step", "Step sizes taken"):
        assert absent not in text
    assert "Guaranteed iterations none the theorem gives no rate to the target" in text
    compared = text[text.index("Theorems compared") : text.index("Quantities Measured")]
    for theorem in PLANS:  # the default theorem stands for its proximal form here
        expected = theorem.startswith("step-sizes/") and theorem != "step-sizes/monotone"
        assert (f" {theorem} " in compared) == expected
    assert re.findall(r"step-sizes/[a-z-]+ (?:this run )?[✓✗]", compared) == [
        "step-sizes/prox-monotone this run ✓",
        "step-sizes/prox-rate ✓",
    ]


def test_rate_that_ends_before_the_target_is_no_promise(reports) -> None:
    run, _, page = reports(lasso_rate)
    text = words(page)
    assert run.certificate.step_size and not math.isfinite(run.guaranteed_iterations(0.0))
    assert "no limit" not in text
    assert "Guaranteed iterations none the" in text


@pytest.mark.parametrize("make", [lasso_rate, deconvolution], ids=lambda make: make.__name__)
def test_sublinear_bound_is_named_and_drawn_as_what_it_is(reports, make: Callable[[Path], sf.Run]) -> None:
    run, _, page = reports(make)
    text = words(page)
    bound = f"{number(run.certificate.claim.constant)}/t"
    assert f"keep the gap at most {bound} after t iterations" in text
    assert f"Guaranteed gap after t iterations {bound}" in text
    assert "of no practical use" in text and run.certificate.advice in text
    assert f"bound of {run.certificate.theorem}" in page[page.index("<svg") :]
    for false in ("gives no rate", "no guaranteed bound to draw", "the rate does not", "no rate"):
        assert false not in text[: text.index("Theorems compared")]


def test_deconvolution_is_not_called_gradient_descent_on_a_loss(reports) -> None:
    _, _, page = reports(deconvolution)
    text = words(page)
    for false in ("loss minus optimal value", "gradient descent", "Distance of the loss", "weights", "First step"):
        assert false not in text.replace("initial weights", "").replace("initial/weights", "")
    assert "Gap: change from an iterate to the next" in text
    assert "so that the exact iteration of the linearised ADMM obeys the bound" in text
    assert "Parameters alpha = 1, beta = 1, gamma = 1" in text


def test_reduced_data_and_counts_of_no_practical_use_are_in_the_verdict(tmp_path: Path) -> None:
    run = truncated(tmp_path / "cut")
    text = undrawn(sf.Run.load(run.directory or ""))
    assert run.certificate.cut is not None
    assert f"The guarantee speaks of reduced data: {run.certificate.cut.text}." in text
    assert "1 of 2 directions of the data dropped" in text and "by up to 12.5" in text
    slow = collinear(tmp_path / "slow")
    text = undrawn(sf.Run.load(slow.directory or ""))
    assert slow.certificate.practical is False and "columns 0, 1 of X are nearly collinear" in slow.certificate.advice
    assert f"of no practical use. Why, and what would help: {slow.certificate.advice}" in text
    assert "to the target; of no practical use" in text


def test_quantities_of_one_name_are_a_family() -> None:
    single, families = by_family({"f": 1.0, "mass[0]": 2.0, "mass[1]": 3.0})
    assert single == {"f": 1.0}
    assert families == {"mass": [2.0, 3.0]}


def test_certified_features_hardly_move_and_the_page_says_what_that_means(reports) -> None:
    run, directory, page = reports(implicit)
    text = words(page)
    net = sf.nn.ImplicitReLU(*(run.initial[name] for name in ("W", "A", "b")), float(run.initial["gamma"]))
    norm = float(net.equilibrium(run.problem["X"]).Z.norm())
    moved = max(row["feature_movement"] for row in run.rows) / norm
    assert 0.0 < moved < 1e-4
    assert f"The features moved by at most {number(moved, 3)} of their norm" in text
    assert "in effect a linear readout of random equilibrium features, not that features are learned" in text
    assert "Dashed, above: what the certificate allows" in text
    assert "Samples N 8 10 inputs, 2 outputs Width m 40" in text
    assert (directory / "plots" / "features.png").read_bytes().startswith(b"\x89PNG")
    for theorem in PLANS:
        assert (theorem in text) == theorem.startswith("implicit/")


def test_trained_features_are_not_called_a_readout(reports) -> None:
    run, _, page = reports(implicit_paper)
    text = words(page)
    assert not run.certified
    assert "this run trained the features, too" in text
    assert "linear readout" not in text
    assert "what the certificate allows" not in text


def test_lost_equilibrium_is_explained(reports) -> None:
    run, _, page = reports(ill_posed)
    assert run.status is sf.RunStatus.ILL_POSED
    text = words(page)
    assert "where the equilibrium may not exist; the weights kept are those of the newest checkpoint" in text
    assert run.status.text in text
    assert "a million times" not in text


def test_other_systems_have_no_features(reports) -> None:
    _, directory, page = reports(certified)
    assert not (directory / "plots" / "features.png").exists()
    assert "Movement of the features" not in page


def test_hypothesis_that_fails_is_named_with_both_sides_and_what_would_help(reports) -> None:
    run, _, page = reports(narrow)
    text = words(page)
    assert "NOTHING IS GUARANTEED" in text
    failed = [c for c in run.certificate.conditions if not c.holds]
    assert failed
    for condition in failed:
        assert condition.name in text
    assert run.certificate.suggestion in text
    assert "there is nothing to accept" in text
    assert "✓ GUARANTEED" not in text


def test_loss_without_strong_convexity_is_told_what_would_help(reports) -> None:
    run, _, page = reports(unregularised)
    assert run.certificate.quantities["strong_convexity"] == 0.0
    text = words(page)
    assert "NOTHING IS GUARANTEED" in text
    assert "mu > 0: the left side is 0 , which must be > the right side, 0" in text
    assert "use l2 > 0" in text


def test_theorem_that_cannot_be_evaluated_is_listed_with_the_reason(reports, monkeypatch) -> None:
    run = reports(certified)[0]
    certify = TwoLayerSystem.certify

    def refuse(self, net, loss, theorem):
        if theorem == "two-layer/sharp":
            raise ValueError("a bound overflows")
        return certify(self, net, loss, theorem)

    monkeypatch.setattr(TwoLayerSystem, "certify", refuse)
    assert "two-layer/sharp a bound overflows not evaluated" in undrawn(run)


def test_later_certificates_are_listed_and_drawn(reports) -> None:
    run, _, page = reports(again)
    text = words(page)
    assert run.adopted
    assert "Certificates along the run" in text
    best = run.guaranteed_iterations(1e-8)
    assert best < run.certificate.iterations_to(1e-8)
    assert f"Certificates taken along the run lower that to {best:,} iterations" in text
    assert f"certified again ({len(run.adopted)} ×)" in page
    assert "from iteration 10:" not in text  # phases are taken together in the audit
    assert "Certificates along the run" not in words(reports(certified)[2])


def test_margins_are_drawn_where_there_are_any(reports) -> None:
    _, _, page = reports(paper)
    assert 'id="conditions-caption"' in page
    assert "margin in powers of ten" in page
    assert 'id="conditions-caption"' not in reports(certified)[2]  # every side there is beside a zero


def test_margins_too_small_to_see_are_not_drawn(tmp_path: Path, reports) -> None:
    run, directory, _ = reports(paper)
    shown = 'id="conditions-caption"'
    for size, drawn in ((0.02, True), (0.005, False)):
        near = [dataclasses.replace(c, margin=size) for c in run.certificate.conditions]
        changed = dataclasses.replace(run, certificate=dataclasses.replace(run.certificate, conditions=tuple(near)))
        facts = dataclasses.replace(Facts.of(sf.Run.load(directory)), run=changed)
        assert (shown in document(facts, dict.fromkeys(PLOTS, ""), "0")) is drawn


@pytest.mark.parametrize("widest", [0.3, 4.0])
def test_words_of_a_bar_stand_inside_the_drawing_and_do_not_leave_their_bar(reports, widest: float) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # not above: heavy at every collection

    certificate = reports(paper)[0].certificate
    margins = [-widest, widest, -0.4 * widest, 0.6 * widest, -0.05 * widest, 0.9 * widest]
    like = next(c for c in certificate.conditions if c.margin is not None)
    conditions = tuple(
        dataclasses.replace(like, left=1.23456e-11, right=9.87654e12, margin=m, holds=m > 0.0) for m in margins
    )
    figure = plots._conditions(dataclasses.replace(certificate, conditions=conditions))
    figure.set_dpi(100)
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    words = [t for t in axes.texts if t.get_fontsize() == 8.5]
    assert len(words) == len(margins)
    for said, bar in zip(words, axes.patches, strict=True):
        box, drawn = said.get_window_extent(), bar.get_window_extent()
        assert box.x0 >= 0.0
        assert box.x1 <= figure.bbox.x1
        inside = said.get_color() == plots.PAPER
        overlap = min(box.x1, drawn.x1) - max(box.x0, drawn.x0)
        assert overlap == pytest.approx(box.width) if inside else overlap <= 0.0


def test_data_network_and_scores_are_named_for_people(reports) -> None:
    run, directory, _ = reports(certified)
    data = {"data": "digits", "train_rows": 1437, "network": "X W1 W2ᵀ, width 60"}
    scores = {"test_rows": 360, "test_accuracy": 0.95, "optimum_test_accuracy": 0.96, "test_rmse": 3.0, "mine": 1.0}
    changed = dataclasses.replace(run, config={**run.config, "data": data, "evaluation": scores})
    facts = dataclasses.replace(Facts.of(sf.Run.load(directory)), run=changed)
    text = words(document(facts, dict.fromkeys(PLOTS, ""), "0"))
    start = text[: text.index("Key numbers")]
    assert "Data: digits, 1,437 rows" in start
    assert "Network: X W1 W2ᵀ, width 60" in start
    for name in ("Held-out rows 360", "Accuracy 0.95", "Accuracy of the loss's minimiser 0.96", "mine 1"):
        assert name in text
    assert "in the unit of the target" in text
    assert "test_accuracy" not in text


def test_uncovered_step_rule_is_said_to_be_so(reports) -> None:
    run, _, page = reports(diverged)
    text = words(page)
    assert run.certificate.holds
    assert run.status is sf.RunStatus.DIVERGED
    assert "NOTHING IS GUARANTEED" in text
    assert "'constant', of which the theorem does not speak" in text
    assert "not covered by the theorem" in text
    assert "diverged: the last gap is far above this scale" in page


def test_interrupted_run_without_steps_and_at_the_optimum(reports) -> None:
    run, _, page = reports(interrupted)
    assert run.status is sf.RunStatus.INTERRUPTED
    assert run.status.text in words(page)
    run, _, page = reports(unmoved)
    assert run.iterations == 0
    assert "no step was taken" in page
    run, _, page = reports(optimal)
    assert run.gaps == [0.0]
    assert "nothing is left to do: the gap 0 is within the target" in words(page)


def test_run_that_was_killed_is_reported_as_unfinished(tmp_path: Path) -> None:
    certified(tmp_path / "run")
    (tmp_path / "run" / "final.safetensors").unlink()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    del config["result"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    trace = tmp_path / "run" / "trace.jsonl"
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:5]))
    text = undrawn(sf.Run.load(tmp_path / "run"))
    assert "has 5 iterations on record and no end" in text


def test_text_from_the_files_is_escaped_and_its_sides_are_shown(tmp_path: Path, reports) -> None:
    evil = "<script>alert('x')</script>&\"$\\frac{\x00\n漢"
    run = reports(certified)[0]
    conditions = (
        sf.Condition(f"first {evil}", 3.25, "<=", 1.75, False, -0.2688),
        sf.Condition(f"second {evil}", 2.0, ">", 0.0, True, None),
    )
    certificate = dataclasses.replace(
        run.certificate,
        conditions=conditions,
        status=sf.CertificateStatus.FAILS,
        schedule=(),
        suggestion=f"third {evil}",
        rule=evil,
        quantities={**run.certificate.quantities, evil: 1.0},
        arrays={**run.certificate.arrays, evil: evil, "problem/X": "0" * 64},
    )
    config = {**run.config, "rule": evil, "engine": evil, evil: {evil: evil}, "evaluation": {evil: evil}}
    dataclasses.replace(run, certificate=certificate, config=config, rule=evil, engine=evil).save(tmp_path / evil[8:20])
    page = _report.write(tmp_path / evil[8:20]).read_text()
    structure = Structure(page)
    assert structure.wrong == [] and structure.open == []
    assert "script" not in structure.tags
    assert "<script" not in page
    assert "\x00" not in page
    text = words(page)
    assert "the left side is 3.25 , which must be ≤ the right side, 1.75" in text
    assert "first <script>" in text and "third <script>" in text
    assert "✗ differs" in text and "✗ missing" in text


def test_violation_under_a_certificate_comes_first(reports) -> None:
    run = reports(certified)[0]
    rows = [dict(row) for row in run.rows]
    rows[3]["gap"] = 2.0 * rows[0]["gap"]
    text = undrawn(dataclasses.replace(run, rows=rows))
    assert "THE RUN BREAKS ITS GUARANTEE" in text
    assert "first at iteration 2" in text
    assert "✗ violated" in text


def test_writing_again_gives_the_same_bytes_and_leaves_matplotlib_alone(reports) -> None:
    import matplotlib

    _, directory, page = reports(certified)
    settings = dict(matplotlib.rcParams)
    before = [(directory / "plots" / f"{name}.png").read_bytes() for name in PLOTS]
    assert _report.write(directory) == directory / "report.html"
    assert (directory / "report.html").read_text() == page
    assert [(directory / "plots" / f"{name}.png").read_bytes() for name in PLOTS] == before
    assert dict(matplotlib.rcParams) == settings


def test_directory_that_cannot_be_reported_raises(tmp_path: Path, reports) -> None:
    with pytest.raises(sf.RunDirectoryError, match="not a directory"):
        _report.write(tmp_path / "absent")
    run = reports(certified)[0]
    unknown = dataclasses.replace(run.certificate, theorem="two-layer/never")
    dataclasses.replace(run, certificate=unknown).save(tmp_path / "unknown")
    with pytest.raises(sf.RunDirectoryError, match="two-layer/never"):
        _report.write(tmp_path / "unknown")
    config = {**run.config, "tolerance": "small"}
    dataclasses.replace(run, config=config).save(tmp_path / "tolerance")
    with pytest.raises(sf.RunDirectoryError, match="tolerance"):
        _report.write(tmp_path / "tolerance")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (940.1833630716451, "940.2"),
        (1234567, "1,234,567"),
        (26656.03, "26,660"),
        (-0.25, "−0.25"),
        (1e-10, "10⁻¹⁰"),
        (5.239108e-08, "5.239 × 10⁻⁸"),
        (9.99999, "10"),
        (0.000999999, "0.001"),
        (999999.7, "10⁶"),
        (math.inf, "∞"),
        (math.nan, "not a number"),
        (10**400, "more than 10³⁰⁸"),
    ],
)
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    assert number(value) == text


def test_factors_margins_and_counts() -> None:
    assert factor(0.173) == "0.827"
    assert factor(4.236e-9) == "1 − 4.236 × 10⁻⁹"
    assert factor(0.0) == "1 (no rate)"
    assert margin(0.0) == "0 % to spare"
    assert margin(math.log10(1.05)) == "5 % to spare"
    assert margin(-1.0) == "short by a factor of 10"
    assert margin(400.0) == "10⁴⁰⁰ times to spare"
    assert count(math.inf) == "none"
    assert count(10**9) == "1,000,000,000"
    assert count(5435970149) == "more than 10⁹"


def test_audit_lines_of_phases_are_taken_together() -> None:
    lines = [
        AuditLine("a", True, 0.5, 2, None, 10),
        AuditLine("b", True, None, None, None, 0),
        AuditLine("a", False, 1.5, 13, 13, 5),
        AuditLine("b", True, 0.1, 11, None, 5),
    ]
    assert merged(lines) == (AuditLine("a", False, 1.5, 13, 13, 15), AuditLine("b", True, 0.1, 11, None, 5))


def test_drawings_keep_only_ids_that_are_used() -> None:
    drawing = '<metadata>m</metadata><g id="a"><use xlink:href="#b"/></g><p id="b"/></svg>'
    embedded = plots.embeddable(f'<?xml?><svg viewBox="0 0 1 1" xmlns="x">{drawing}', "n")
    assert embedded.startswith('<svg viewBox="0 0 1 1" role="img" aria-labelledby="n-caption">')
    assert embedded.endswith('><g><use href="#n-b"/></g><p id="n-b"/></svg>')
