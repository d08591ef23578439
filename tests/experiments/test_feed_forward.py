"""The experiments on feed-forward networks in settings smaller than the quick ones, and their page."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import surefoot as sf
import surefoot_experiments
from surefoot_experiments import feed_forward_cases as cases
from surefoot_experiments import feed_forward_certified as certified
from surefoot_experiments import feed_forward_minimum as minima
from surefoot_experiments import feed_forward_runs as runs
from surefoot_experiments import feed_forward_sgd as batches
from surefoot_experiments import feed_forward_verdict as verdict
from surefoot_experiments import feed_forward_width as widths
from surefoot_experiments.feed_forward_cases import CLASSES, PARITY, Kind

NAMES = [f"feed-forward/{name}" for name in ("certified", "finish", "width", "sgd", "minimum")]
SMALL = (
    Kind("16", "Tanh", PARITY, 6, 2000, 1e6, descends=True),
    Kind("16", "Softplus", PARITY, 6, 2000, 1e6, "lbfgs"),
    Kind("16", "Tanh", PARITY, 6, 1, 1.0, batch=4, dtype="float32"),
)


@pytest.fixture(scope="module")
def experiment() -> surefoot_experiments.Experiment:
    return certified.certified(SMALL, 2)


def test_names() -> None:
    assert [name for name in surefoot_experiments.names() if name.startswith("feed-forward/")] == NAMES


# -- from which step on ----------------------------------------


def test_networks_are_certified_and_keep_their_guarantee(experiment: surefoot_experiments.Experiment) -> None:
    plain, finished = (experiment.table(name).records() for name in (certified.FITS, certified.WITH_FINISH))
    for record, after in zip(plain, finished, strict=True):
        assert record["certified"] == after["certified"] == record["checker"] == after["checker"] == "2 of 2"
        assert isinstance(record["step"], float) and isinstance(after["step"], float)
        assert 0.0 < after["step"] <= record["step"] < 5000
        assert float(str(record["moved"])) > 0.01
    (descent,) = experiment.table(certified.DESCENTS).records()
    assert isinstance(descent["floor steps"], float) and isinstance(descent["guaranteed"], float)
    assert isinstance(descent["certified-bb steps"], float)
    assert descent["certified-bb steps"] <= descent["floor steps"] <= descent["guaranteed"]
    assert descent["audit violations"] == 0


def test_findings_are_decided_by_the_numbers(experiment: surefoot_experiments.Experiment) -> None:
    early, finished, few, near, accepted, kept, loose = experiment.findings
    assert early.agrees is False and "2 of 3" in early.measured and SMALL[2].label in early.measured
    assert finished.agrees is False and few.agrees is False and "2 of 3" in few.measured
    assert near.agrees == (float(near.measured.split()[1]) <= verdict.RADIUS)
    assert accepted.agrees is True and accepted.measured == "12 of 12"
    assert kept.agrees is True and "2 of 2 runs" in kept.measured
    assert loose.agrees == (float(loose.measured.split()[2]) <= verdict.LOOSE)


def test_what_is_never_certified_is_said() -> None:
    experiment = certified.certified(SMALL[:1], 1, limit=99)
    (record,) = experiment.table(certified.FITS).records()
    assert record["certified"] == "0 of 1" and record["step"] is None and record["guaranteed"] is None
    assert [finding.agrees for finding in experiment.findings] == [False, False, False, False, None, None, None]


def test_a_finish_leads_to_a_fit() -> None:
    experiment = certified.finish((Kind("20", "ReLU", PARITY, 10, 200, optimizer="adam"),), 1)
    (record,) = experiment.table(certified.WITH_FINISH).records()
    assert (
        record["certified"] == record["checker"] == "1 of 1" and [f.agrees for f in experiment.findings] == [True] * 3
    )


def test_a_history_begins_at_the_start_and_has_the_margins(experiment: surefoot_experiments.Experiment) -> None:
    X, Y = SMALL[0].data(None)
    draw = runs.Draw.of(runs.computed_draw(list(SMALL[0]), 0, 5000, 5, False, X, Y))
    first, *rest = draw.history
    assert first.step == 0 and first.moved == [0.0] and first.margin is None
    assert draw.plain is not None and rest[-1].step == draw.plain.step and rest[-1].moved == draw.plain.moved
    assert rest[-1].margin is not None and rest[-1].margin > 1.0
    assert all(look.margin <= 1.0 for look in rest[:-1] if look.margin is not None)


def test_batches_are_all_rows_in_a_new_order() -> None:
    batches = runs._batches(4, 10, 0)
    epochs = [torch.cat([torch.as_tensor(next(batches)) for _ in range(3)]).tolist() for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 2 and epochs[0] != epochs[1]
    assert next(runs._batches(0, 10, 0)) == slice(None)


# -- data and networks ----------------------------------------


def test_digits_and_weights_are_as_stated() -> None:
    X, Y = cases.digits(30, classes=False)
    torch.testing.assert_close(X.mean(0), torch.zeros_like(X[0]), atol=1e-12, rtol=0.0)
    torch.testing.assert_close(X.std(0), torch.ones_like(X[0]))
    assert set(Y.reshape(-1).tolist()) == {-1.0, 1.0}
    assert cases.digits(30, classes=True)[1].sum(1).tolist() == [1.0] * 30
    torch.manual_seed(3)
    expected = nn.Linear(X.shape[1], 16, dtype=torch.float64)
    weight = next(SMALL[0].net(X.shape[1], 1, 3).parameters())
    assert torch.equal(weight, expected.weight)
    wide = next(SMALL[0]._replace(first=3.0).net(2000, 1, 3).parameters())
    assert 2.9 < float(wide.detach().std()) < 3.1


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Files as those of the experiments, with other contents."""
    random = np.random.default_rng(0)
    for name in ("mnist01.npz", "fashion01.npz"):
        images = random.integers(0, 256, (30, 28, 28)).astype(np.uint8)
        images[:, :2, :2] = 0
        labels, split = (np.arange(30) % 2).astype(np.uint8), (np.arange(30) % 3 == 0).astype(np.uint8)
        np.savez(tmp_path / name, images=images, labels=labels, split=split)
    X = random.standard_normal((20, 3))
    X[5] = X[2]
    np.savez(tmp_path / "uci_regression.npz", concrete_X=X, concrete_y=random.standard_normal(20))
    return tmp_path


def test_images_are_the_first_of_the_training_part(directory: Path) -> None:
    X, Y = Kind("8", "Tanh", "MNIST", 6, unit=True).data(directory)
    raw = np.load(directory / "mnist01.npz")
    rows = np.flatnonzero(raw["split"] == 0)[:6]
    torch.testing.assert_close(torch.linalg.vector_norm(X, dim=1), torch.ones(6, dtype=torch.float64))
    assert Y[:, 0].tolist() == [2.0 * label - 1.0 for label in raw["labels"][rows]]
    first = torch.as_tensor(raw["images"][rows[0]].reshape(-1), dtype=torch.float64)
    torch.testing.assert_close(X[0], first / first.norm())


def test_small_images_are_standardised_where_they_are_not_constant(directory: Path) -> None:
    X, _ = Kind(cases.CONVOLUTIONS, "Tanh", cases.SMALL_IMAGES, 8).data(directory)
    assert X.shape == (8, 196) and X[:, 0].tolist() == [0.0] * 8
    torch.testing.assert_close(X.std(0)[1:], torch.ones(195, dtype=torch.float64))


def test_the_network_of_convolutions_is_that_of_the_prototype() -> None:
    net = Kind(cases.CONVOLUTIONS, "Tanh", cases.SMALL_IMAGES, 8).net(196, 1, 0)
    assert sum(weight.numel() for weight in net.parameters()) == 865
    assert net(torch.zeros(3, 196, dtype=torch.float64)).shape == (3, 1)


def test_rows_of_a_table_are_distinct(directory: Path) -> None:
    X, Y = Kind("8", "Tanh", "concrete", 10).data(directory)
    assert len(X) == 10 and len(torch.unique(X, dim=0)) == 10
    torch.testing.assert_close(Y.std(0), torch.ones(1, dtype=torch.float64))


def test_networks_whose_data_are_absent_are_left_out(directory: Path) -> None:
    kinds = cases.FINISHED
    assert cases.usable(kinds, directory) == list(kinds) and cases.left_out(kinds, kinds) == ""
    without = cases.usable(kinds, None)
    assert {kind.task for kind in without} == {PARITY, CLASSES}
    said = cases.left_out(kinds, without)
    assert "fashion01.npz, mnist01.npz, uci_regression.npz" in said
    with pytest.raises(sf.data.MissingSourceError, match=r"not a directory.*mnist01.npz"):
        cases.usable(kinds, directory / "absent")


# -- width, minima, figures ----------------------------------------


def test_a_width_is_found_at_which_a_fit_is_guaranteed_at_the_start() -> None:
    experiment = widths.width((widths.Scale(10.0, 630),), 1, rows=10)
    (record,) = experiment.table("least width").records()
    (descent,) = experiment.table("descent").records()
    assert record["certified"] == "1 of 1" and record["width"] == descent["width"]
    assert isinstance(record["width"], float) and record["width"] < 630.0
    assert [finding.agrees for finding in experiment.findings] == [True] * 3


def test_minima_are_certified_and_kinks_refused() -> None:
    small = (
        minima.Case(Kind("2", "Tanh", CLASSES, 30), 1e-2, True),
        minima.Case(Kind("2", "Softplus", PARITY, 30), 1e-2),
    )
    experiment = minima.minimum(small, 1)
    for record in experiment.table("certified minima").records():
        assert record["certified"] == record["checker"] == "1 of 1"
        assert isinstance(record["|grad| at most"], float) and isinstance(record["|grad| needed"], float)
        assert record["|grad| at most"] < record["|grad| needed"]
    assert [finding.agrees for finding in experiment.findings] == [True] * 3
    assert "ReLU" in experiment.findings[2].measured


def test_an_objective_is_the_mean_over_the_rows() -> None:
    case = minima.Case(Kind("3", "Tanh", CLASSES, 20), 0.3)
    X, Y = case.kind.data(None)
    net, factor = case.kind.net(X.shape[1], 10, 0), case.factor(10)
    loss = case.objective(X, Y)
    size = sum(float(weight.detach().square().sum()) for weight in net.parameters())
    with torch.no_grad():
        torchs = float(nn.MSELoss()(net(X), Y)) + 0.5 * loss.weight_decay * size
        ours = 0.5 * float((net(X) - Y).square().sum()) / 20 + 0.5 * 0.3 * size
    assert math.isclose(torchs, factor * ours, rel_tol=1e-12)


def test_the_figure_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = dataclasses.replace(surefoot_experiments.EXPERIMENTS[NAMES[0]], quick={"networks": SMALL[:1], "repeats": 1})
    monkeypatch.setitem(surefoot_experiments.EXPERIMENTS, NAMES[0], entry)
    experiment = surefoot_experiments.reproduce(NAMES[0], directory=tmp_path)
    assert experiment.settings["full"] is False
    assert [path.name for path in tmp_path.glob("*.png")] == ["training-1.png"]


# -- the page ----------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()


def page(name: str) -> list[list[dict[str, str]]]:
    """The tables behind the command of an experiment, up to the next heading."""
    text = re.split(r"\n##", PAGE.split(f"surefoot reproduce {name} ")[1])[0].replace("\\|", "!")
    found: list[list[dict[str, str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in block.splitlines()]
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def shown(cell: str) -> float:
    return math.inf if cell == "–" else float(cell.replace(",", ""))


def verdict_of(claims: list[dict[str, str]], number: int) -> tuple[str, str]:
    claim = claims[number]
    return claim["measured"].split(" networks")[0], claim[""]


def said(good: int, of: int) -> tuple[str, str]:
    return f"{good} of {of}", "agrees" if good == of else "**differs**"


def test_the_verdicts_on_the_page_are_those_of_its_tables() -> None:
    fits, finished, descents, claims = page(NAMES[0])
    assert [row["network"] for row in fits] == [kind.label for kind in cases.NETWORKS]
    smooth = [row for row, kind in zip(fits, cases.NETWORKS, strict=True) if not kind.kinked]
    early = [row for row in smooth if shown(row["step"]) <= shown(row["prototype's"])]
    assert verdict_of(claims, 0) == said(len(early), len(smooth))
    early = [row for row in finished if shown(row["step"]) <= shown(row["prototype's"])]
    assert verdict_of(claims, 1) == said(len(early), len(finished)) == said(len(fits), len(fits))
    counted = [b if kind.kinked else a for a, b, kind in zip(fits, finished, cases.NETWORKS, strict=True)]
    few = [row for row in counted if shown(row["guaranteed"]) <= verdict.RATIO * shown(row["prototype's count"])]
    assert verdict_of(claims, 2) == said(len(few), len(counted))
    assert all(shown(row["radius/!theta!"]) <= verdict.RADIUS for row in fits + finished)
    assert [row["network"] for row in descents] == [kind.label for kind in cases.NETWORKS if kind.descends]
    for row in descents:
        assert shown(row["floor steps"]) <= shown(row["guaranteed"]) <= verdict.LOOSE * shown(row["floor steps"])
        assert row["audit violations"] == "0"


def test_the_verdicts_on_finishes_are_those_of_their_table() -> None:
    finished, claims = page(NAMES[1])
    assert [row["network"] for row in finished] == [kind.label for kind in cases.FINISHED]
    early = [row for row in finished if shown(row["step"]) <= shown(row["prototype's"])]
    assert verdict_of(claims, 0) == said(len(early), len(finished))
    assert all(row["checker"].split(" of ")[0] == row["certified"].split(" of ")[0] for row in finished)


def test_the_program_finds_the_width_of_the_page() -> None:
    _, descents, _ = page(NAMES[2])
    (row,) = (row for row in descents if row["standard deviation"] == "10")
    (found,) = widths.width(widths.SCALES[2:], 1).table("descent").records()
    assert found["width"] == shown(row["width"])
    assert found["guaranteed"] == pytest.approx(shown(row["guaranteed"]), rel=1e-2)
    assert found["audit violations"] == 0


def test_the_verdicts_on_mini_batches_are_those_of_their_table() -> None:
    counts, claims = page(NAMES[3])
    assert [(row["Adam steps"], row["batch"]) for row in counts] == [
        (str(q.step), str(q.batch)) for q in batches.QUESTIONS
    ]
    for row, asked in zip(counts, batches.QUESTIONS, strict=True):
        assert shown(row["guaranteed"]) <= (asked.most or math.inf)
        assert row["taken"] == row["guaranteed"] == "–" or shown(row["taken"]) <= shown(row["guaranteed"])
        assert row["above the bound"] in ("–", "0") and row["left the ball"] in ("–", "0")
    assert [claim[""] for claim in claims] == ["agrees"] * 4


def test_minima_on_the_page_need_larger_gradients_than_are_reached() -> None:
    found, claims = page(NAMES[4])
    assert [row["objective"] for row in found] == [case.label for case in minima.CASES]
    for row in found:
        assert row["certified"] == row["checker"] == "3 of 3"
        assert shown(row["!grad! at most"]) < shown(row["!grad! needed"])
        assert shown(row["Lambda_3"]) <= shown(row["Lambda_3, first"])
    assert [claim[""] for claim in claims] == ["agrees"] * 3


# -- mini-batches ----------------------------------------------


def test_mini_batches_are_guaranteed_after_a_training_and_keep_it() -> None:
    few = Kind("16", "Tanh", PARITY, 4)
    found = batches.sgd([batches.Asked(1, 2), batches.Asked(150, 2, 10**4)], 3, kind=few)
    before, after = found.table(batches.COUNTS).records()
    assert before["guaranteed"] is before["taken"] is None
    assert 0.0 < float(str(after["taken"])) <= float(str(after["guaranteed"]))
    assert after["above the bound"] == after["left the ball"] == 0 and 0.0 < float(str(after["sure distance"])) <= 1.0
    assert [finding.agrees for finding in found.findings] == [True, True, True, True]
