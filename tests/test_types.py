"""Types: a type checker accepts good calls and finds bad ones, and bad ones have clear errors as they run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_overloads, get_type_hints

import numpy as np
import pytest
import torch
from torch import nn

import surefoot as sf
from surefoot._core.typed import OfInterval, Problem

CALLS = """
import torch
from torch import Tensor, nn
from typing import assert_type

import surefoot as sf

X, Y = torch.ones(3, 2), torch.ones(3, 1)
loss = sf.SquaredLoss(X, Y)
net = sf.nn.TwoLayerLinear.gaussian(2, 1, 5)
plain = nn.Sequential(nn.Linear(2, 1))
steps = sf.nn.StepSizeNet.orthogonal()
problems = sf.learned.LeastSquares.random(3, 2, 4)
inverse = sf.nn.LearnedInverse(torch.ones(2, 2))
blur = sf.deconvolution.PeriodicBlur(torch.ones(1, 1), (4, 4))
picture = sf.deconvolution.DeconvolutionProblem(X, blur, 0.1)

assert_type(sf.certify(net, loss), sf.Certificate)
sf.certify(plain, sf.TorchLoss(nn.MSELoss(), X, Y), step=0.1)
sf.certify(plain, loss, theorem="feed-forward/local")
sf.certify(steps, problems)
sf.certify(inverse, interval=(0.1, 1.0))
sf.certify(sf.deconvolution.LADMM(), picture)
run = assert_type(sf.descend(net, loss, steps=0.1, callbacks=[sf.callbacks.CSVWriter("a.csv")]), sf.Run)
sf.descend(steps, problems, max_iterations=10)
sf.Trace(loss).record(net, 0.1)
assert_type(net(X), Tensor)
assert_type(sf.nn.LinearResNet.gaussian(2, 1, 5, 2)(X), Tensor)
assert_type(sf.nn.ImplicitReLU.paper(2, 5, 0.1)(X), Tensor)
assert_type(inverse(X), Tensor)
assert_type(sf.nn.LISTA(X, 2)(Y), Tensor)
run.plot("steps").savefig("a.png")

sf.certify("oops", 3)  # wrong
sf.certify(net, 3)  # wrong
sf.certify(net, X)  # wrong
sf.certify(net)  # wrong
sf.certify(net, nn.MSELoss())  # wrong
sf.certify(net, loss, thoerem="two-layer/drift")  # wrong
sf.certify(net, interval=(0.1, 1.0))  # wrong
sf.certify(X, loss)  # wrong
sf.descend("oops", loss)  # wrong
sf.descend(net, Y)  # wrong
sf.descend(net, loss, callbacks=[print])  # wrong
sf.descend(net, loss, toleranze=1e-3)  # wrong
sf.newton(net, loss)  # wrong
sf.sgd.certify("oops", X, Y, 3)  # wrong
sf.cretify(net, loss)  # wrong
"""


@pytest.mark.slow
def test_pyright_finds_every_bad_call_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text(CALLS)
    settings = {"extraPaths": [str(Path(sf.__file__).parents[1])], "include": ["calls.py"], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "--project",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    found = [f for f in json.loads(done.stdout)["generalDiagnostics"] if f["severity"] == "error"]
    lines = {entry["range"]["start"]["line"] for entry in found}
    wrong = {number for number, line in enumerate(CALLS.split("\n")) if line.endswith("# wrong")}
    assert lines == wrong, [CALLS.split("\n")[number] for number in lines ^ wrong]


def test_certify_says_what_it_takes() -> None:
    """The overloads, of which a type checker makes its errors, without one."""
    usual, interval = (get_type_hints(each) for each in get_overloads(sf.certify))
    assert usual["net"] is nn.Module and usual["loss"] is Problem and interval["net"] is OfInterval
    hints = get_type_hints(sf.descend)
    assert hints["net"] is nn.Module and hints["loss"] is Problem


X = torch.ones(3, 2, dtype=torch.float64)
NET = sf.nn.TwoLayerLinear(X.T, X.T)
KNOWN = r"pass one of sf\.nn\.TwoLayerLinear, .*torch\.nn\.Sequential"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sf.certify("oops", 3), rf"net is a str; {KNOWN}"),
        (lambda: sf.descend("oops", 3), rf"net is a str; {KNOWN}"),
        (lambda: sf.certify(sf.nn.TwoLayerLinear, 3), rf"net is the class TwoLayerLinear; {KNOWN}"),
        (lambda: sf.certify(nn.Linear(2, 1), 3), rf"net is a Linear; {KNOWN}.*; or torch\.nn\.Sequential\(net\)"),
        (lambda: sf.certify(Own(), 3), rf"net is an Own; {KNOWN}.*; or torch\.nn\.Sequential\(modules of torch that"),
        (lambda: sf.certify(NET, 3), r"loss is an int; pass a loss, for example sf\.SquaredLoss"),
        (lambda: sf.certify(NET), r"loss is None; pass a loss"),
        (lambda: sf.certify(NET, nn.MSELoss()), r"loss is an MSELoss, which has no data; pass .*sf\.SquaredLoss\(X, Y\)"),
        (lambda: sf.certify(nn.Sequential(nn.Linear(2, 1)), nn.MSELoss()), r"which has no data; wrap it: sf\.TorchLoss"),
        (lambda: sf.certify(NET, interval=(0.1, 1.0)), r"sf\.nn\.TwoLayerLinear takes no interval"),
        (lambda: sf.gradient_flow(NET, sf.SquaredLoss(X, X), [1.0]), r"net is a TwoLayerLinear; .*sf\.nn\.ImplicitReLU"),
        (lambda: sf.newton(NET, sf.SquaredLoss(X, X)), r"net is a TwoLayerLinear; sf\.newton takes a torch\.nn\.Seq"),
    ],
)  # fmt: skip
def test_bad_calls_say_what_is_wrong(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


class Own(nn.Module):
    """A network of one's own."""


ROWS = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0], [2.0, 2.0]])
TARGETS = np.array([[1.0], [0.0], [2.0], [-1.0]])


@pytest.mark.parametrize(
    "make",
    [
        lambda X, Y: sf.SquaredLoss(X, Y).optimum,
        lambda X, Y: sf.MatrixSensing(X[:, :, None], Y[:, 0]).optimum,
        lambda X, Y: sf.SoftmaxRegression(X, [0, 1, 1, 0], 0.1).optimum,
        lambda X, Y: sf.TorchLoss(nn.MSELoss(), X, Y).X,
        lambda X, Y: sf.nn.TwoLayerLinear(X, X).W1.detach(),
        lambda X, Y: sf.learned.LeastSquares(X[None], Y.T).optimum(),
        lambda X, Y: sf.learned.Lasso(X[None], Y.T, 0.1).M,
    ],
)
def test_public_constructors_take_arrays_as_they_take_tensors(make: Any) -> None:
    """Of the same dtype: an array is never rounded."""
    of_arrays, of_tensors = make(ROWS, TARGETS), make(torch.from_numpy(ROWS), torch.from_numpy(TARGETS))
    assert of_arrays.dtype is torch.float64 and torch.equal(of_arrays, of_tensors)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sf.data.Data(ROWS), sf.data.DataError, r"X is ndarray, no tensor; sf\.data\.from_arrays"),  # pyright: ignore
        (lambda: sf.data.Data(ROWS.tolist()), sf.data.DataError, r"X is list, no tensor"),  # pyright: ignore
        (lambda: sf.data.Data(torch.from_numpy(ROWS), TARGETS), sf.data.DataError, r"Y is ndarray"),  # pyright: ignore
        (lambda: sf.SquaredLoss(ROWS.astype(int), TARGETS), TypeError, r"X has dtype int64; .*X\.astype\('float64'\)"),
        (lambda: sf.learned.Lasso(ROWS, TARGETS, 0.1), ValueError, r"\(problems, rows, columns\); .*M\[None\]"),
    ],
)
def test_arrays_that_cannot_be_taken_say_so(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
