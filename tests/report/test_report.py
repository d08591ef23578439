"""The report of a run directory: complete, self-contained, honest, and safe against what the files may hold."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from reported_runs import (
    PLOTS,
    RUNS,
    certified,
    deconvolution,
    implicit,
    implicit_measured,
    implicit_paper,
    interrupted,
    lasso,
    lasso_rate,
    least_squares,
    optimal,
    paper,
    resnet,
    resnet_paper,
    undrawn,
    unmoved,
    words,
)

import surefoot as sf
from surefoot import _report
from surefoot._core.registry import system_named
from surefoot._report.document import script
from surefoot._report.facts import Facts
from surefoot._report.page import page as document
from surefoot._report.wording import by_family

WITH_STEPS_OF_THEIR_OWN = (lasso, lasso_rate, least_squares, deconvolution)
VOID = {"meta", "br", "link", "img"}


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


@pytest.mark.parametrize("make", RUNS, ids=lambda make: make.__name__)
def test_report_is_complete_and_self_contained(make, reports) -> None:
    _, directory, page = reports(make)
    for name in PLOTS:
        file = directory / "plots" / f"{name}.png"
        if name == "steps" and make in WITH_STEPS_OF_THEIR_OWN:
            assert not file.exists()
        else:
            assert file.read_bytes().startswith(b"\x89PNG")
    page, pictures = re.subn(r' src="data:image/png;base64,[A-Za-z0-9+/=]+"', "", page)  # those that are in it
    assert pictures == page.count("<img") == (2 if make is deconvolution else 0)
    structure = Structure(page)
    assert structure.wrong == []
    assert structure.open == []
    assert structure.tags & {"link", "iframe", "object", "base"} == set()
    assert re.findall(r"<script[^>]*>", page) == ["<script>"]  # that of every page, which the policy names by its hash
    assert f"<script>{script()}</script>" in page
    inside = [f"#{name}" for name in structure.ids]
    for reference in structure.references:
        assert re.fullmatch(r"(?:href=|url\()(#[^)]*)\)?", reference)[1] in inside
    assert len(set(structure.ids)) == len(structure.ids)
    assert "http" not in page.replace("http-equiv", "")
    assert "@import" not in page
    assert page.count("<svg") >= (1 if make is deconvolution else 2)  # no steps, and margins too small to see
    assert not [file for file in directory.rglob(".*") if file.is_file()]  # no temporary file is left
    text = words(page)
    order = [
        "Key numbers",
        "Plots",
        "Hypotheses at",
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


def test_deconvolution_is_not_called_gradient_descent_on_a_loss(reports) -> None:
    _, _, page = reports(deconvolution)
    text = words(page)
    for false in ("loss minus optimal value", "gradient descent", "Distance of the loss", "weights", "First step"):
        assert false not in text.replace("initial weights", "").replace("initial/weights", "")
    assert "Gap: change from an iterate to the next" in text
    assert "so that the exact iteration of the solver (ADMM) obeys the bound" in text
    assert "Parameters alpha = 1, beta = 1, gamma = 1" in text


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
    assert page.count("<script") == 1
    assert "\x00" not in page
    text = words(page)
    assert "the left side is 3.25 , which must be ≤ the right side, 1.75" in text
    assert "first <script>" in text and "third <script>" in text
    assert "✗ differs" in text and "✗ missing" in text


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
