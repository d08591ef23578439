"""The certificate file: exact round trip, strict form, clear errors; and the certificate as text."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

import surefoot as sf
from surefoot._core.schedule import iterations_to
from surefoot_check.statement import Segment

F64 = torch.float64
THEOREMS = [
    "two-layer/drift",
    "two-layer/contraction",
    "two-layer/sharp",
    "two-layer/corrected",
    "two-layer/as-printed",
]
HEX = re.compile(r"-?0x[01]\.[0-9a-f]+p[+-]\d+")


def problem(width: int = 12, kind: str = "squared") -> tuple[sf.nn.TwoLayerLinear, sf.Loss]:
    g = torch.Generator().manual_seed(0)
    X, Y = torch.randn(40, 5, generator=g, dtype=F64), torch.randn(40, 3, generator=g, dtype=F64)
    net = sf.nn.TwoLayerLinear.gaussian(5, 3, width, generator=g)
    if kind == "squared":
        return net, sf.SquaredLoss(X, Y)
    if kind == "softmax":
        return net, sf.SoftmaxRegression(X, torch.arange(40) % 3, 0.1)
    return net, sf.MatrixSensing(torch.randn(9, 5, 3, generator=g, dtype=F64), torch.randn(9, generator=g, dtype=F64))


def certificate(theorem: str | None = None, **options: Any) -> sf.Certificate:
    return sf.certify(*problem(**options), theorem)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return json.loads(certificate().to_json())


@pytest.mark.parametrize("theorem", THEOREMS)
@pytest.mark.parametrize("kind", ["squared", "sensing", "softmax"])
@pytest.mark.parametrize("width", [2, 12])
def test_round_trip_is_exact(theorem: str, kind: str, width: int) -> None:
    cert = certificate(theorem, width=width, kind=kind)
    text = cert.to_json()
    again = sf.Certificate.from_json(text)
    assert again.to_json() == text
    assert again.digest == cert.digest
    assert again.status is cert.status
    assert again.schedule == cert.schedule
    assert again.optimal_value == cert.optimal_value
    assert again.quantities == {name: value for name, value in cert.quantities.items() if math.isfinite(value)}
    assert (again.suggestion, again.rule, again.arrays, again.problem) == (
        cert.suggestion,
        cert.rule,
        cert.arrays,
        cert.problem,
    )
    assert again.conditions == cert.conditions
    for t in (0, 1, 1000):
        assert again.bound(t) == cert.bound(t)


def numbers(value: Any) -> list[Any]:
    """All leaves of the file below the fields that hold measured numbers."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in numbers(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in numbers(item)]
    return [value]


@pytest.mark.parametrize("theorem", THEOREMS)
def test_numbers_are_hexadecimal_floats_and_keys_are_sorted(theorem: str) -> None:
    text = certificate(theorem).to_json()
    assert "Infinity" not in text
    assert "NaN" not in text
    document = json.loads(text)
    assert json.dumps(document, sort_keys=True, indent=1) + "\n" == text
    assert all(HEX.fullmatch(v) for v in numbers(document["quantities"]))
    assert HEX.fullmatch(document["optimal_value"])
    for condition in document["conditions"]:
        assert all(HEX.fullmatch(condition[side]) or not condition["holds"] for side in ("left", "right"))
        assert condition["margin"] is None or HEX.fullmatch(condition["margin"])
    for start, count, *rest in document.get("conclusion", {"schedule": []})["schedule"]:
        assert isinstance(start, int)
        assert count is None or isinstance(count, int)
        assert all(HEX.fullmatch(v) for v in rest)


def test_unbounded_quantities_are_left_out() -> None:
    cert = certificate()
    cert = replace(cert, quantities={**cert.quantities, "eta_max": math.inf})
    text = cert.to_json()
    assert "eta_max" not in json.loads(text)["quantities"]
    assert sf.Certificate.from_json(text).to_json() == text


@pytest.mark.parametrize("bound", [math.inf, -math.inf, math.nan])
def test_a_condition_without_a_finite_side_is_kept(bound: float) -> None:
    unbounded = sf.Condition("L has a finite bound", bound, "<", 1.0, False, None)
    cert = replace(certificate(width=2), conditions=(unbounded,))
    text = cert.to_json()
    again = sf.Certificate.from_json(text)
    assert [(c.name, c.left.hex(), c.right) for c in again.conditions] == [(unbounded.name, bound.hex(), 1.0)]
    assert again.to_json() == text
    # what holds has finite sides
    held = json.loads(certificate().to_json())
    held["conditions"][0]["left"] = bound.hex()
    with pytest.raises(ValueError, match="malformed"):
        sf.Certificate.from_json(json.dumps(held))


def test_digest_is_the_hash_of_the_file_and_repeats() -> None:
    first, second = certificate(), certificate()
    assert first.digest == hashlib.sha256(first.to_json().encode()).hexdigest() == second.digest
    assert first.digest != certificate(width=13).digest
    assert first.digest != certificate("two-layer/sharp").digest


def test_hashes_change_with_one_bit_of_any_array() -> None:
    net, loss = problem()
    before = sf.certify(net, loss)
    with torch.no_grad():
        net.W2[1, 1] = math.nextafter(float(net.W2[1, 1]), 10.0)
    after = sf.certify(net, loss)
    differing = {name for name in before.arrays if before.arrays[name] != after.arrays[name]}
    assert differing == {"initial/W2"}


@pytest.mark.parametrize("cut", [0, 1, 100, -2])
def test_truncated_file(cut: int) -> None:
    with pytest.raises(ValueError, match=r"not valid JSON .*cut off"):
        sf.Certificate.from_json(certificate().to_json()[:cut])


@pytest.mark.parametrize("text", ["[]", "3", '"surefoot-certificate/1"', "null", "{}"])
def test_json_that_is_no_certificate(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"format None; this version reads surefoot-certificate/1, surefoot-certificate/2"
    ):
        sf.Certificate.from_json(text)


def test_deeply_nested_json() -> None:
    with pytest.raises(ValueError, match="not valid JSON"):
        sf.Certificate.from_json("[" * 100_000)


def test_other_version(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"format 'surefoot-certificate/3'.*use the version that wrote it"):
        sf.Certificate.from_json(json.dumps({**record, "format": "surefoot-certificate/3"}))


def test_a_file_of_the_first_format_keeps_its_format_and_its_digest(record: dict[str, Any]) -> None:
    text = json.dumps({**record, "format": "surefoot-certificate/1"}, sort_keys=True, indent=1) + "\n"
    certificate = sf.Certificate.from_json(text)
    assert certificate.to_json() == text
    assert certificate.digest == hashlib.sha256(text.encode()).hexdigest()


FIELDS = ["system", "theorem", "theorem_version", "status", "problem", "arrays", "quantities", "conditions"]


@pytest.mark.parametrize("field", [*FIELDS, "optimal_value", "rule", "suggestion"])
def test_missing_field_is_named(record: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"malformed .*{field}.*certify again"):
        sf.Certificate.from_json(json.dumps({k: v for k, v in record.items() if k != field}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "proved"),
        ("quantities", []),
        ("quantities", {"mu": 1.5}),
        ("quantities", {"mu": "1.5"}),
        ("quantities", {"mu": "inf"}),
        ("quantities", {"mu": "nan"}),
        ("quantities", {"mu": "0x1.0p+99999"}),
        ("quantities", {"mu": "0x1.0000000000000p+9999"}),
        ("conditions", [{}]),
        ("conditions", None),
        ("optimal_value", 0.0),
        ("optimal_value", None),
        ("conclusion", {"schedule": [[0, None]]}),
        ("conclusion", {"schedule": [[0, None, "0x1.0000000000000p+0", "1.0"]]}),
        ("conclusion", {}),
        ("conclusion", None),
        ("conclusion", {"schedule": []}),
    ],
)
def test_malformed_field(record: dict[str, Any], field: str, value: object) -> None:
    with pytest.raises(ValueError, match="malformed"):
        sf.Certificate.from_json(json.dumps({**record, field: value}))


def test_a_certificate_that_holds_and_concludes_nothing(record: dict[str, Any]) -> None:
    record = {name: value for name, value in record.items() if name != "conclusion"}
    with pytest.raises(ValueError, match=r"malformed .*it holds, and conclusion has no schedule"):
        sf.Certificate.from_json(json.dumps(record))
    fails = sf.Certificate.from_json(json.dumps({**record, "status": "fails"}))
    assert not fails.holds and fails.bound(1) == math.inf


def test_text_of_a_certificate_that_holds() -> None:
    text = str(certificate())
    assert text.startswith("two-layer/drift holds: ")
    assert "holds: imbalance and margin: alpha1 > 0" in text
    assert re.search(r"first step [0-9.e-]+, rate 0\.[0-9]+, relative gap 1e-10 within [0-9,]+ iterations", text)
    assert "suggestion" not in text


def test_text_of_a_certificate_that_fails_says_what_to_do() -> None:
    cert = certificate(width=2)
    assert not cert.holds
    assert re.search(r"FAILS: imbalance and margin: alpha1 > 0  \[\S+ > 0\]", str(cert))
    assert "suggestion: width 2 is below min(n, m) = 3" in str(cert)
    assert (cert.step_size, cert.rate) == (None, None)
    assert cert.bound(10) == cert.iterations_to(0.5) == math.inf


def test_bound_and_iterations_to() -> None:
    cert = certificate()
    assert cert.bound(0) >= cert.initial_gap
    bounds = [cert.bound(t) for t in range(0, 3000, 7)]
    assert all(later <= earlier for earlier, later in pairwise(bounds))
    assert cert.rate is not None
    assert cert.bound(1) == pytest.approx(cert.rate * cert.initial_gap, rel=1e-11)  # rounded up
    for relative in (0.5, 1e-3, 1e-12):
        t = int(cert.iterations_to(relative))
        assert cert.bound(t) <= relative * cert.initial_gap * (1.0 + 1e-9) < cert.bound(t - 1) * (1.0 + 1e-8)
    with pytest.raises(ValueError, match="t is -1; iterations are counted from 0"):
        cert.bound(-1)
    with pytest.raises(ValueError, match="t is nan"):
        cert.bound(math.nan)  # type: ignore[arg-type]
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"relative_gap is {bad!r}; it must be a positive number"):
            cert.iterations_to(bad)


def test_a_target_that_underflows_is_never_reached() -> None:
    schedule = [Segment(0, None, 5e-324, 0.5)]
    assert iterations_to(schedule, 1e-3) == math.inf
    assert iterations_to([Segment(0, None, 1.0, 5e-324)], 1e-3) == math.inf
    assert iterations_to([Segment(0, None, 0.0, 0.0)], 1e-3) == 0
