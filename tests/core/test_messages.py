"""Bad arguments: the type of the error, and a message with the argument, what is wrong with it, and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import surefoot as sf

F64 = torch.float64
X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=F64)
Y = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=F64)
A, y = X[:, :2].reshape(-1, 2, 1), Y[:, 0]
LABELS = torch.arange(20) % 3
LOSS = sf.SquaredLoss(X, Y)
nan, inf = math.nan, math.inf


def spoiled(tensor: torch.Tensor, value: float) -> torch.Tensor:
    result = tensor.clone()
    result.reshape(-1)[5] = value
    return result


def network(n: int = 4, m: int = 3) -> sf.nn.TwoLayerLinear:
    return sf.nn.TwoLayerLinear.gaussian(n, m, 9)


def broken(value: float) -> sf.nn.TwoLayerLinear:
    net = network()
    with torch.no_grad():
        net.W2[1, 2] = value
    return net


def plain() -> torch.nn.Sequential:
    layers = (torch.nn.Linear(4, 9, bias=False), torch.nn.Linear(9, 3, bias=False))
    return torch.nn.Sequential(*layers).double()


def huge() -> sf.nn.TwoLayerLinear:
    return sf.nn.TwoLayerLinear.gaussian(4, 3, 9, std=1e100)


def descend(**options: Any) -> sf.Run:
    return sf.descend(options.pop("net", None) or network(), options.pop("loss", LOSS), progress=False, **options)


SQUARED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: sf.SquaredLoss(spoiled(X, nan), Y), ValueError, r"X has nan at index \(1, 1\) \(1 such.*remove or impute"),
    (lambda: sf.SquaredLoss(spoiled(X, inf), Y), ValueError, r"X has inf at index \(1, 1\)"),
    (lambda: sf.SquaredLoss(X, spoiled(Y, -inf)), ValueError, r"Y has -inf at index \(1, 2\)"),
    (lambda: sf.SquaredLoss(X, Y[:, 0].clone().fill_(nan)), ValueError, r"Y has nan at index \(0, 0\) \(20 such"),
    (lambda: sf.SquaredLoss(X[:0], Y[:0]), ValueError, r"X has shape \(0, 4\).*neither may be empty"),
    (lambda: sf.SquaredLoss(X[:, :0], Y), ValueError, r"X has shape \(20, 0\).*neither may be empty"),
    (lambda: sf.SquaredLoss(X, Y[:, :0]), ValueError, r"Y \(20, 0\); neither may be empty"),
    (lambda: sf.SquaredLoss(X, Y[:7]), ValueError, r"X has shape \(20, 4\) and Y \(7, 3\); they must be .*same N"),
    (lambda: sf.SquaredLoss(X[0], Y), ValueError, r"X has shape \(4,\)"),
    (lambda: sf.SquaredLoss(X[None], Y[None]), ValueError, r"X has shape \(1, 20, 4\)"),
    (lambda: sf.SquaredLoss(X.long(), Y), TypeError, r"X has dtype int64; pass float64, for example X.double\(\)"),
    (lambda: sf.SquaredLoss(X, Y.int()), TypeError, r"Y has dtype int32; pass float64, for example Y.double\(\)"),
    (lambda: sf.SquaredLoss(X.half(), Y), TypeError, r"X has dtype float16; pass float64"),
    (lambda: sf.SquaredLoss(X.bfloat16(), Y), TypeError, r"X has dtype bfloat16; pass float64"),
    (lambda: sf.SquaredLoss(X.to(torch.complex64), Y), TypeError, r"X has dtype complex64; pass float64"),
    (lambda: sf.SquaredLoss(X > 0, Y), TypeError, r"X has dtype bool; pass float64"),
    (lambda: sf.SquaredLoss(X.to_sparse(), Y), TypeError, r"X is a sparse tensor; pass X.to_dense\(\)"),
    (lambda: sf.SquaredLoss(X.numpy().astype(int), Y), TypeError, r"X has dtype int64; .*X.astype\('float64'\)"),
    (lambda: sf.SquaredLoss(X.numpy().astype(str), Y), TypeError, r"X has dtype <U\d+; pass real numbers"),
    (lambda: sf.SquaredLoss(X.numpy().astype(object), Y), TypeError, r"X has dtype object; pass real numbers"),
    (lambda: sf.SquaredLoss(X.numpy().astype(np.longdouble), Y), TypeError, r"X has dtype .*; pass real numbers"),
    (lambda: sf.SquaredLoss("data.csv", Y), TypeError, r"X is a str; pass a tensor or an array of floats"),
    (lambda: sf.SquaredLoss(X, None), TypeError, r"Y is None; pass a tensor"),
    (lambda: sf.SquaredLoss([[True]], Y[:1]), TypeError, r"X is a list; pass a tensor or an array"),
    (lambda: sf.SquaredLoss([["1"]], Y[:1]), TypeError, r"X is a list; pass a tensor or an array"),
    (lambda: sf.SquaredLoss([[1.0, 2.0], [3.0]], Y[:2]), TypeError, r"X is a list; pass a tensor or an array"),
    (lambda: sf.SquaredLoss(0 * X, Y), ValueError, r"X is zero; there is nothing to learn from it"),
    (lambda: sf.SquaredLoss(1e200 * X, Y), ValueError, r"X has largest singular value .*scale the data, for example"),
    (lambda: sf.SquaredLoss(1e-200 * X, Y), ValueError, r"X has largest singular value .*scale the data"),
    (lambda: sf.SquaredLoss(X, 1e99 * Y), ValueError, r"Y reaches .*e\+99, beyond 1e\+20: .*scale the data"),
    (lambda: LOSS.gap(X), ValueError, r"W has shape \(20, 4\); this loss needs \(4, 3\)"),
    (lambda: LOSS.value(None), TypeError, r"W is None; pass a tensor of shape \(4, 3\)"),  # type: ignore[arg-type]
]


def completion(**changed: Any) -> sf.MatrixCompletion:
    return sf.MatrixCompletion(**{"rows": [0, 3], "columns": [1, 2], "values": [1.0, 2.0], "shape": (4, 3)} | changed)


OTHER_LOSSES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: sf.MatrixSensing(A, y[:3]), ValueError, r"A has 20 measurements and y 3; they must be as many"),
    (lambda: sf.MatrixSensing(X, y), ValueError, r"A has shape \(20, 4\); it must have 3 dimension"),
    (lambda: sf.MatrixSensing(A, Y), ValueError, r"y has shape \(20, 3\); it must have 1 dimension"),
    (lambda: sf.MatrixSensing(spoiled(A, nan), y), ValueError, r"A has nan at index \(2, 1, 0\)"),
    (lambda: sf.MatrixSensing(A[:0], y[:0]), ValueError, r"A is empty \(shape \(0, 2, 1\)\); pass at least one"),
    (lambda: sf.MatrixSensing(0 * A, y), ValueError, r"A is zero; .*pass at least one measurement"),
    (lambda: sf.MatrixSensing(1e99 * A, y), ValueError, r"A has largest singular value .*scale the data"),
    (lambda: sf.MatrixSensing(A.half(), y), TypeError, r"A has dtype float16; pass float64"),
    (lambda: completion(rows=[0, 4]), ValueError, r"rows run from 0 to 4; for this shape they must lie in 0..3"),
    (lambda: completion(columns=[-1, 2]), ValueError, r"columns run from -1 to 2; .* must lie in 0..2"),
    (lambda: completion(rows=[0.0, 1.0]), TypeError, r"rows have dtype float64; pass indices as int64"),
    (lambda: completion(rows=[True, False]), TypeError, r"rows have dtype bool; pass indices as int64"),
    (lambda: completion(rows=torch.tensor([0, 3]).to("meta")), ValueError, r"rows is on the device meta"),
    (lambda: completion(rows=["a", "b"]), TypeError, r"rows are of type <U1; pass indices"),
    (lambda: completion(rows=[0]), ValueError, r"rows have shape \(1,\); they must be \(2,\), one for each value"),
    (lambda: completion(columns=[[0], [1]]), ValueError, r"columns have shape \(2, 1\); they must be \(2,\), one for"),
    (lambda: completion(values=[1.0, nan]), ValueError, r"values has nan at index \(1,\)"),
    (lambda: completion(values=[]), ValueError, r"values is empty \(shape \(0,\)\); pass at least one"),
    (lambda: completion(values=torch.tensor([1, 2])), TypeError, r"values has dtype int64; pass float64"),
    (lambda: completion(values=[1.0, 1e99]), ValueError, r"values reach 1e\+99, beyond 1e\+20: .*scale the data"),
    (lambda: completion(shape=(4,)), ValueError, r"shape is \(4,\); pass the two numbers of rows and columns of W"),
    (lambda: completion(shape=12), ValueError, r"shape is 12; pass the two numbers of rows and columns of W"),
    (lambda: completion(shape=(4, 0)), ValueError, r"shape\[1\] is 0; it must be an integer of at least 1"),
    (lambda: completion(shape=(4.0, 3)), ValueError, r"shape\[0\] is 4.0; it must be an integer of at least 1"),
    (lambda: completion(shape=(2**40, 2**30)), ValueError, r"shape is .*more than 2\^62 entries; number the rows"),
    (
        lambda: sf.SoftmaxRegression(X, LABELS, -0.1),
        ValueError,
        r"l2 is -0.1; it must be a finite number of at least 0",
    ),
    (lambda: sf.SoftmaxRegression(X, LABELS, nan), ValueError, r"l2 is nan; it must be a finite number of at least 0"),
    (lambda: sf.SoftmaxRegression(X, LABELS, inf), ValueError, r"l2 is inf; it must be a finite"),
    (lambda: sf.SoftmaxRegression(X, LABELS, "1"), TypeError, r"l2 is '1' \(str\); pass a finite number"),  # type: ignore[arg-type]
    (lambda: sf.SoftmaxRegression(X, LABELS, True), TypeError, r"l2 is True \(bool\); pass a finite number"),
    (lambda: sf.SoftmaxRegression(X, LABELS - 1, 0.1), ValueError, r"labels run from -1 to 1; they must lie in 0\.\.1"),
    (lambda: sf.SoftmaxRegression(X, LABELS, 0.1, 2), ValueError, r"labels run from 0 to 2; they must lie in 0\.\.1"),
    (lambda: sf.SoftmaxRegression(X, LABELS, 0.1, 0), ValueError, r"classes is 0; it must be an integer of at least 1"),
    (lambda: sf.SoftmaxRegression(X, LABELS, 0.1, "3"), ValueError, r"classes is '3'; it must be an integer"),  # type: ignore[arg-type]
    (
        lambda: sf.SoftmaxRegression(X, LABELS.double(), 0.1),
        TypeError,
        r"labels have dtype float64; pass class indices",
    ),
    (lambda: sf.SoftmaxRegression(X, LABELS > 0, 0.1), TypeError, r"labels have dtype bool; pass class indices"),
    (lambda: sf.SoftmaxRegression(X, ["a"] * 20, 0.1), TypeError, r"labels are of type <U1; pass class indices"),
    (lambda: sf.SoftmaxRegression(X, None, 0.1), TypeError, r"labels are of type object; pass class indices"),
    (lambda: sf.SoftmaxRegression(X, LABELS[:9], 0.1), ValueError, r"labels have shape \(9,\); they must be \(20,\)"),
    (lambda: sf.SoftmaxRegression(X, Y.long(), 0.1), ValueError, r"labels have shape \(20, 3\); they must be \(20,\)"),
    (lambda: sf.SoftmaxRegression(spoiled(X, nan), LABELS, 0.1), ValueError, r"X has nan at index \(1, 1\)"),
    (lambda: sf.SoftmaxRegression(X[:0], LABELS[:0], 0.1), ValueError, r"X is empty \(shape \(0, 4\)\)"),
]

CERTIFY: list[tuple[Callable[[], object], type[Exception], str]] = [
    (
        lambda: sf.certify(torch.nn.Linear(4, 3), LOSS),
        TypeError,
        r"net is a Linear; pass one of .*sf.nn.TwoLayerLinear",
    ),
    (lambda: sf.certify(None, LOSS), TypeError, r"net is None; pass one of"),
    (lambda: sf.certify(network(), X), TypeError, r"loss is a Tensor; pass a loss, for example sf.SquaredLoss"),  # type: ignore[arg-type]
    (lambda: sf.certify(network().float(), LOSS), TypeError, r"net.W1 has dtype float32; use float64: net.double\(\)"),
    (lambda: sf.certify(broken(nan), LOSS), ValueError, r"net.W2 has non-finite entries; use finite weights"),
    (
        lambda: sf.certify(network().to("meta"), LOSS),
        ValueError,
        r"net.W1 is on the device meta, and has no entries; make",
    ),
    (lambda: sf.SquaredLoss(X.to("meta"), Y.to("meta")), ValueError, r"X is on the device meta, and has no entries"),
    (lambda: sf.MatrixSensing(A.to("meta"), y.to("meta")), ValueError, r"A is on the device meta, and has no entries"),
    (lambda: sf.certify(network(n=5), LOSS), ValueError, r"net maps 5 inputs to 3 outputs, the loss has 4 inputs"),
    (lambda: sf.certify(network(m=2), LOSS), ValueError, r"build the network with n=4, m=3"),
    (
        lambda: sf.certify(network(), LOSS, "two-layer/drit"),
        ValueError,
        r"unknown theorem 'two-layer/drit'; did you mean 'two-layer/drift'\? known: ",
    ),
    (lambda: sf.certify(network(), LOSS, 3), ValueError, r"unknown theorem 3; known: "),  # type: ignore[arg-type]
    (
        lambda: sf.certify(plain(), sf.TorchLoss(torch.nn.MSELoss(), X, Y), "two-layer/sharp"),
        TypeError,
        r"loss is a TorchLoss; two-layer/sharp speaks of losses of a linear map: pass for example sf.SquaredLoss\(X, Y\)",
    ),
    (
        lambda: sf.certify(plain(), sf.TorchLoss(torch.nn.MSELoss(), X, Y), "two-layer/sharq"),
        ValueError,
        r"unknown theorem 'two-layer/sharq'",
    ),
    (
        lambda: sf.certify(huge(), LOSS),
        ValueError,
        r"W1 has entries that .* exceed 1e.50.*scale the data and the weights",
    ),
]

DESCEND: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"loss": X}, TypeError, r"loss is a Tensor; pass a loss"),
    ({"steps": "certified-bbb"}, ValueError, r"unknown step rule 'certified-bbb'; did you mean 'certified-bb'\?"),
    ({"steps": "constant"}, ValueError, r"steps='constant' needs its step; pass the number itself"),
    ({"steps": True}, TypeError, r"steps is a bool; pass a rule"),
    ({"steps": [0.1]}, TypeError, r"steps is a list; pass a rule of sf.steps, its name, or a positive number"),
    ({"steps": -1}, ValueError, r"steps is -1; it must be a positive number"),
    ({"steps": nan}, ValueError, r"steps is nan; it must be a positive number"),
    ({"steps": np.float32(0.0)}, ValueError, r"steps is np.float32\(0.0\); it must be a positive number"),
    ({"steps": "paper-rho"}, ValueError, r"steps='paper-rho' needs a certificate of 'two-layer/corrected'"),
    ({"engine": "grams"}, ValueError, r"unknown engine 'grams'; did you mean 'gram'\? known: auto, gram, weights"),
    ({"engine": None}, ValueError, r"unknown engine None; known: auto, gram, weights"),
    ({"max_iterations": -1}, ValueError, r"max_iterations is -1; it must be an integer of at least 0"),
    ({"max_iterations": 1e3}, ValueError, r"max_iterations is 1000.0; it must be an integer"),
    ({"max_iterations": True}, ValueError, r"max_iterations is True; it must be an integer"),
    ({"tolerance": -1.0}, ValueError, r"tolerance is -1.0; it must be a finite number of at least 0"),
    ({"tolerance": nan}, ValueError, r"tolerance is nan; it must be a finite number of at least 0"),
    ({"tolerance": "1e-3"}, TypeError, r"tolerance is '1e-3' \(str\); pass a finite number of at least 0"),
    ({"absolute_tolerance": inf}, ValueError, r"absolute_tolerance is inf; it must be a finite number"),
    ({"absolute_tolerance": None}, TypeError, r"absolute_tolerance is None \(NoneType\); pass a finite number"),
    ({"certify_every": 0}, ValueError, r"certify_every is 0; it must be an integer of at least 1"),
    ({"certify_every": 2.5}, ValueError, r"certify_every is 2.5; it must be an integer of at least 1"),
    ({"certify_every": "2"}, ValueError, r"certify_every is '2'; it must be an integer of at least 1"),
    ({"certificate": "cert.json"}, TypeError, r"certificate is a str; pass the result of certify\(net, loss\)"),
    ({"resume": True}, ValueError, r"resume=True needs the directory of the run to resume"),
]

ASKED: list[tuple[Callable[[sf.Certificate], object], type[Exception], str]] = [
    (lambda certificate: certificate.bound("a"), TypeError, r"t is 'a' \(str\); pass a number of iterations"),  # type: ignore[arg-type]
    (lambda certificate: certificate.bound(-1), ValueError, r"t is -1; iterations are counted from 0"),
    (
        lambda certificate: certificate.iterations_to("a"),
        TypeError,
        r"relative_gap is 'a' \(str\); pass a positive number",
    ),  # type: ignore[arg-type]
    (
        lambda certificate: certificate.iterations_to(0.0),
        ValueError,
        r"relative_gap is 0.0; it must be a positive number",
    ),
]

NETWORKS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: sf.nn.TwoLayerLinear(X, Y), ValueError, r"W1 has shape \(20, 4\) and W2 \(20, 3\); .*width, must agree"),
    (lambda: sf.nn.TwoLayerLinear(X.long(), X), TypeError, r"W1 has dtype int64; pass float64"),
    (lambda: sf.nn.TwoLayerLinear(X, spoiled(X, nan)), ValueError, r"W2 has nan at index \(1, 1\)"),
    (lambda: sf.nn.TwoLayerLinear(X[:0], X), ValueError, r"W1 is empty"),
    (lambda: sf.nn.TwoLayerLinear(X[0], X), ValueError, r"W1 has shape \(4,\); it must have 2 dimension"),
    (lambda: sf.nn.TwoLayerLinear.gaussian(0, 3, 4), ValueError, r"n is 0; it must be an integer of at least 1"),
    (lambda: sf.nn.TwoLayerLinear.gaussian(2, 3, 10**18), ValueError, r"width 10{18} take .* GiB, .*a smaller width"),
    (lambda: sf.nn.TwoLayerLinear.gaussian(2, 3, 10**30), ValueError, r"width 10{30} take .* GiB, .*a smaller width"),
    (
        lambda: sf.nn.TwoLayerLinear.gaussian(2, 3, 4, seed=2**64),
        ValueError,
        r"seed is 18446744073709551616; it must be",
    ),
    (lambda: sf.nn.TwoLayerLinear.gaussian(2, 3, 4, seed=1.5), ValueError, r"seed is 1.5; it must be an integer"),  # type: ignore[arg-type]
    (lambda: sf.nn.TwoLayerLinear.gaussian(2, 3, 4.0), ValueError, r"width is 4.0; it must be an integer"),  # type: ignore[arg-type]
    (lambda: sf.nn.TwoLayerLinear.gaussian(2, 3, 4, std=-1), ValueError, r"std is -1; it must be a positive number"),
    (
        lambda: sf.nn.TwoLayerLinear.gaussian(2, 3, 4, generator=torch.Generator(), seed=1),
        ValueError,
        r"pass generator or seed, not both",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), [*SQUARED, *OTHER_LOSSES, *CERTIFY, *NETWORKS])
def test_bad_argument(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.type is kind


@pytest.mark.parametrize(("options", "kind", "message"), DESCEND, ids=[str(options) for options, _, _ in DESCEND])
def test_bad_argument_of_descend(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    net = network()
    before = net.W1.detach().clone()
    with pytest.raises(kind, match=message):
        descend(net=net, **options)
    assert torch.equal(net.W1.detach(), before)


@pytest.mark.parametrize(("ask", "kind", "message"), ASKED)
def test_bad_question_to_a_certificate(
    ask: Callable[[sf.Certificate], object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        ask(sf.certify(network(), LOSS))


@pytest.mark.parametrize("step", [1e-4, np.float32(1e-4), np.float64(1e-4), 1])
def test_any_real_number_is_a_step(step: Any) -> None:
    assert descend(steps=step, max_iterations=1).step_sizes == [float(step)]


def test_trace_of_a_loop_of_ones_own() -> None:
    trace, net = sf.Trace(LOSS), network()
    with pytest.raises(ValueError, match=r"the trace is empty; call trace.record"):
        sf.audit(trace, sf.certify(net, LOSS))
    for bad in (0.0, -1.0, nan, inf):
        with pytest.raises(
            ValueError, match=r"step_size is .*; it must be a positive number, or nothing after the last"
        ):
            trace.record(net, bad)
    for wrong in ("a", True, [0.1]):
        with pytest.raises(TypeError, match=r"step_size is .*; pass a positive number, or nothing after the last step"):
            trace.record(net, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="net is a Linear"):
        trace.record(torch.nn.Linear(4, 3), 0.1)
    trace.record(net)
    with pytest.raises(ValueError, match=r"the trace was closed by record\(net\) without a step"):
        trace.record(net, 0.1)
