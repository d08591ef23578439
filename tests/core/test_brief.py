"""What people see of an object in a terminal or a notebook: short, with sizes in place of numbers, and escaped."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch

import surefoot as sf
from surefoot._core.brief import brief, shown
from surefoot._core.html import table

LONGEST = 400
"""Characters of any ``repr``."""
VALUES = {sf.linalg.SVD, sf.linalg.Cholesky, sf.linalg.Eigh, sf.linalg.LowRank, sf.linalg.LstSq, sf.linalg.Polar}
"""What is asked for because of its numbers, as torch.linalg shows them too."""
INNER = {
    *("Certifiable", "Descendable", "Recordable", "System", "Plan", "Words", "StepsTaken", "Callback"),
    *("Engine", "Iterate", "WeightsEngine", "WeightsIterate"),
}
"""What systems are written with: nobody prints one."""


def public_classes() -> dict[str, type]:
    """By their names below ``sf``; without enums and errors, whose texts are values and messages."""
    found: dict[str, type] = {}
    places = {"sf": sf} | {name: getattr(sf, name) for name in sf.__all__ if inspect.ismodule(getattr(sf, name))}
    for where, module in places.items():
        for name in module.__all__:
            each = getattr(module, name)
            if inspect.isclass(each) and not issubclass(each, enum.Enum | BaseException):
                found[f"{where}.{name}"] = each
    return found


def small(field: dataclasses.Field[Any]) -> bool:
    """Whether a field is one number, flag, name or text."""
    kinds = {part.strip() for part in str(field.type).split("|")}
    return kinds <= {"int", "float", "bool", "str", "None", "CertificateStatus", "Path"}


def test_no_public_class_shows_all_its_numbers() -> None:
    """Of a record with a generated text every field is small; all others have a text of their own."""
    long, plain = [], []
    for name, each in public_classes().items():
        if each in VALUES or name.rpartition(".")[2] in INNER:
            continue
        if each.__repr__ is object.__repr__:
            plain.append(name)
        written = each.__repr__ is brief or "__repr__" not in vars(each) or "def __repr__" in inspect.getsource(each)
        if dataclasses.is_dataclass(each) and not written:
            long += [f"{name}.{field.name}" for field in dataclasses.fields(each) if not small(field)]
        if issubclass(each, tuple) and not written:
            long.append(name)
    assert long == []
    assert plain == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(3, 4), "float32 3x4"),
        (np.zeros((3, 4)), "float64 3x4"),
        (torch.tensor(0.25), "0.25"),
        ([1.0, 2.0], "(1, 2)"),
        (list(range(9)), "9 entries"),
        ({"a": 1, "b": 2}, "2 of a, b"),
        ("x" * 100, "'" + "x" * 58 + "…"),
        (frozenset({1, 2}), "frozenset of 2"),
        (None, "None"),
    ],
)
def test_values_are_shown_by_size(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_record_is_short_whatever_it_holds() -> None:
    Record = dataclasses.make_dataclass("Record", [f"field{i}" for i in range(50)], namespace={"__repr__": brief})
    assert len(repr(Record(*[torch.zeros(1000)] * 50))) < LONGEST


@pytest.fixture(scope="module")
def examples() -> list[Any]:
    """One of each kind that is printed often."""
    draw = {"generator": torch.Generator().manual_seed(0), "dtype": torch.float64}
    train = sf.data.Data(torch.randn(1438, 6, **draw), torch.randn(1438, 3, **draw))
    loss = sf.SquaredLoss(train.X, train.Y)
    net = sf.nn.TwoLayerLinear.gaussian(6, 3, width=80, std=0.1, seed=0)
    cert = sf.certify(net, loss)
    run = sf.descend(net, loss, certificate=cert, max_iterations=40, progress=False)
    problems = sf.learned.LeastSquares.random(4, 3, 5, seed=0)
    steps = sf.nn.StepSizeNet.orthogonal((2, 2, 8), seed=0)
    info = sf.linalg.pinv_ex(torch.randn(30, 3, 2, dtype=torch.float64))[1]
    return [train, loss, net, cert, run, run.audit(), problems, steps, steps.solve(problems, iterations=30), info]


def test_what_is_printed_often(examples: list[Any]) -> None:
    texts = [repr(each) for each in examples]
    assert max(map(len, texts)) < LONGEST, texts
    assert max(text.count("\n") for text in texts) < 5
    assert texts[1:3] == ["SquaredLoss(X 1438x6, Y 1438x3)", "TwoLayerLinear(n=6, m=3, width=80)"]
    assert texts[5] == "<Audit against two-layer/drift: no violation, 7 inequalities>"
    assert texts[-1].startswith("Info(30 ok, method svd, residual <= ")


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (lambda X, Y: sf.SquaredLoss(X, Y, l2=0.1, intercept=True), "SquaredLoss(X 40x5, Y 40x2, l2=0.1, intercept)"),
        (
            lambda X, Y: sf.MatrixSensing(torch.stack([X[:9]] * 12) * torch.arange(1, 13)[:, None, None], Y[:12, 0]),
            "MatrixSensing(A 12x9x5, y 12)",
        ),
        (lambda X, Y: sf.SoftmaxRegression(X, (Y[:, 0] > 0).long(), 0.1), "SoftmaxRegression(X 40x5, 2 classes, l2=0.1)"),
        (
            lambda X, Y: sf.TorchLoss(torch.nn.MSELoss(), X, Y, weight_decay=0.01),
            "TorchLoss(MSELoss, X 40x5, targets 40x2, weight_decay=0.01)",
        ),
        (lambda X, Y: sf.extending.SampleLoss(X, Y[:, 0]), "SampleLoss(X 40x5, Y 40x1)"),
        (
            lambda X, Y: sf.MatrixCompletion(torch.arange(4), torch.arange(4), Y[:4, 0], (5, 6)),
            "MatrixCompletion(4 entries of 5x6)",
        ),
    ],
)  # fmt: skip
def test_losses_say_their_sizes(loss: Any, text: str, generator: torch.Generator) -> None:
    X, Y = (torch.randn(40, n, dtype=torch.float64, generator=generator) for n in (5, 2))
    assert repr(loss(X, Y)) == text


def test_networks_and_rules_say_their_settings() -> None:
    assert repr(sf.nn.LinearResNet.gaussian(5, 2, 8, 3)) == "LinearResNet(d=5, k=2, width=8, depth=3)"
    assert repr(sf.steps.Constant(0.25)) == "Constant(eta=0.25)"
    assert repr(sf.steps.CertifiedBB()) == "CertifiedBB(proposal=BarzilaiBorwein())"
    blur = sf.deconvolution.ValidBlur(torch.full((3, 3), 1 / 9, dtype=torch.float64), (6, 7))
    assert repr(blur) == "ValidBlur(kernel 3x3, 6x7 -> 4x5)"


def test_what_follows_a_loop_of_ones_own_says_how_far_it_is() -> None:
    X = torch.eye(2, dtype=torch.float64)
    loss, model = sf.SquaredLoss(X, X), torch.nn.Sequential(torch.nn.Linear(2, 2)).double()
    trace, watch = sf.Trace(loss), sf.watch(model, loss, every=2, report=None)
    assert repr(trace) == "<Trace of SquaredLoss(X 2x2, Y 2x2): 0 rows>"
    assert repr(watch) == "<Watch by feed-forward/local: not certified yet, 0 iterations>"
    trace.record(sf.nn.TwoLayerLinear.gaussian(2, 2, 8, seed=0), 1e-3)
    assert ": 1 row, gap " in repr(trace)
    watch.look()
    assert f", margin {watch.margin:.3g}>" in repr(watch)


class Cells(HTMLParser):
    """The texts of a fragment of HTML, and whether its tags match."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(fragment)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_notebooks_say_what_the_terminal_says(examples: list[Any]) -> None:
    _, _, _, cert, run, audit, *_ = examples
    for each in (cert, audit):
        cells = Cells(each._repr_html_()).texts
        lines = [line.strip().removeprefix("note: ") for line in str(each).split("\n")]
        assert cells[0] == lines[0]
        for line in lines[1:]:  # every cell of a row is in its line
            assert any(cell in line for cell in cells[1:]), line
    said = Cells(cert._repr_html_()).texts
    assert all(condition.name in said and condition.sides in said for condition in cert.conditions)
    assert Cells(run._repr_html_()).texts[0] == f"{run.status.value}: {run.status.text}"
    failed = dataclasses.replace(cert, status=sf.CertificateStatus.FAILS, suggestion="<b>use & more</b>")
    assert "suggestion: <b>use & more</b>" in Cells(failed._repr_html_()).texts


def test_tables_escape_and_need_nothing_else() -> None:
    fragment = table("a < b", None, ("<i>",), [("&",), ("'\"",)], ["<script>"])
    assert Cells(fragment).texts == ["a < b", "<i>", "&", "'\"", "<script>"]
    assert not any(word in fragment for word in ("http", "src=", "<script"))
    assert "<table" not in table("empty", True, ("head",), [])
