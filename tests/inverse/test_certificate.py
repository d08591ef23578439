"""``sf.certify(inverse, interval=...)``: true for every matrix of the interval, tight, and the best possible for Chebyshev."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot as sf
from surefoot_check.inverse import enclosures as rigorous
from surefoot_check.inverse.constants import RESIDUALS
from surefoot_check.inverse.enclosures import Spectrum, base_quantities

DOUBLE = torch.float64


def sampled(C: np.ndarray, lower: float, upper: float, points: int = 4001) -> list[float]:
    """max |e_k| over a grid, in 50 digits at the largest point of each layer's float evaluation."""
    w = y = np.linspace(lower, upper, points)
    found = []
    for k in range(len(C)):
        with np.errstate(over="ignore", invalid="ignore"):
            w = w * np.polyval(C[k][::-1], 1.0 - w)
        at = float(y[int(np.nanargmax(np.abs(1.0 - w)))])
        with mpmath.workdps(50):
            exact = mpmath.mpf(at)
            for row in C[: k + 1]:
                exact *= mpmath.polyval([mpmath.mpf(float(c)) for c in row[::-1]], 1 - exact)
            found.append(float(abs(1 - exact)))
    return found


@st.composite
def instances(draw: st.DrawFn) -> tuple[np.ndarray, float, float]:
    layers, terms = draw(st.integers(1, 4)), draw(st.integers(1, 7))
    lower = 10.0 ** draw(st.floats(-4, -0.1))
    upper = draw(st.floats(1.01, 2.0)) * max(lower, draw(st.floats(0.1, 1.2)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["ones", "near", "far", "chebyshev"]))
    if kind == "chebyshev":
        net = sf.nn.LearnedInverse.chebyshev(layers, terms, (lower, upper), 1.0)
        C = net.coefficients.detach().numpy() * (1.0 + 1e-3 * random.normal(size=(layers, terms)))
    else:
        C = 1.0 + {"ones": 0.0, "near": 0.05, "far": 0.7}[kind] * random.normal(size=(layers, terms))
    return C, lower, upper


@settings(max_examples=60)
@given(instances())
def test_no_point_of_the_interval_violates_the_bound(instance: tuple[np.ndarray, float, float]) -> None:
    C, lower, upper = instance
    found = base_quantities(Spectrum(np.array([lower, upper])), {"C": C}, {})
    for name, value in zip(RESIDUALS, sampled(C, lower, upper), strict=False):
        low, high = found[name]
        assert value <= high * (1 + 1e-15)
        assert low <= high
        # the grid comes near the maximum, unless its float values are rounding or its points too few
        assert value >= low * (1 - 1e-3) or not 1e-12 < high < 1e3


def test_too_few_boxes_widen_the_bound_and_do_not_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net = sf.nn.LearnedInverse.chebyshev(3, 4, (0.01, 1.0))
    tight = sf.certify(net)
    monkeypatch.setattr(rigorous, "MAX_BOXES", 3)
    loose = base_quantities(Spectrum(np.array([0.01, 1.0])), {"C": net.coefficients.detach().numpy()}, {})
    for k, name in enumerate(RESIDUALS[:3], 1):
        low, high = loose[name]
        assert low <= tight.bound(k) <= high * (1 + 1e-9)
    assert loose[RESIDUALS[2]][1] > 2.0 * tight.bound(3)


@pytest.mark.parametrize(
    ("layers", "terms", "lower"), [(1, 4, 0.1), (2, 5, 1e-2), (4, 4, 1e-3), (5, 3, 1e-4), (3, 8, 1e-5)]
)
def test_chebyshev_is_certified_at_the_best_possible(layers: int, terms: int, lower: float) -> None:
    certificate = sf.certify(sf.nn.LearnedInverse.chebyshev(layers, terms, (lower, 1.0)))
    degree = terms**layers
    best = 1.0 / math.cosh(degree * math.acosh((1.0 + lower) / (1.0 - lower)))
    assert certificate.holds
    q = certificate.quantities
    assert q["best_possible"] == pytest.approx(best, rel=1e-9)
    assert q["degree"] == degree
    # rounding of the coefficients costs up to 1e-13 of the largest of them times the degree
    assert best * (1 - 1e-9) <= certificate.bound(layers) <= best * (1 + 1e-6) + 1e-12 * q["residual[1]"] * degree


def test_no_coefficients_beat_chebyshev(generator: torch.Generator) -> None:
    for _ in range(30):
        C = 1.0 + 0.2 * torch.randn(2, 3, dtype=DOUBLE, generator=generator)
        certificate = sf.certify(sf.nn.LearnedInverse(C), interval=(0.05, 1.0))
        assert certificate.bound(2) >= certificate.quantities["best_possible"]
    trained = sf.nn.LearnedInverse.chebyshev(2, 3, (0.05, 1.0), 1.0)
    trained.fit(torch.rand(5, 6, 6, dtype=DOUBLE, generator=generator) / 6, epochs=50, objective="last")
    certificate = sf.certify(trained)
    assert certificate.bound(2) > certificate.quantities["best_possible"] * (1 + 1e-6)


@pytest.mark.parametrize(("m", "n", "rank"), [(7, 7, 7), (5, 9, 5), (9, 5, 5), (8, 8, 3)])
def test_every_matrix_of_the_interval_obeys_the_bound(m: int, n: int, rank: int, generator: torch.Generator) -> None:
    lower, upper, c0 = 0.02, 1.0, 3.0
    net = sf.nn.LearnedInverse.chebyshev(3, 3, (lower, upper), c0, backward="unroll")
    certificate = sf.certify(net)
    worst = 0.0
    for _ in range(20):
        squared = lower + (upper - lower) * torch.rand(rank, dtype=DOUBLE, generator=generator)
        squared[0], squared[1] = lower, upper
        U, V = (torch.linalg.qr(torch.randn(k, rank, dtype=DOUBLE, generator=generator)).Q for k in (m, n))
        A = (U * (c0 * squared).sqrt()) @ V.mT
        P = (V / (c0 * squared).sqrt()) @ U.mT
        for k, X in enumerate([A.mT / c0, *net.unroll(A)]):
            error = float(torch.linalg.matrix_norm(A @ P - A @ X.detach(), 2))
            assert error <= certificate.bound(k) + 1e-13
            if k == 3:
                worst = max(worst, error)
                inverse_error = float(torch.linalg.matrix_norm(X.detach() - P, 2))
                assert inverse_error <= certificate.bound(k) / math.sqrt(c0 * lower) + 1e-12
    assert worst > 0.5 * certificate.bound(3)  # Chebyshev attains it at the ends


def test_bound_and_counts_speak_of_layers() -> None:
    net = sf.nn.LearnedInverse.ones(5, 4)
    certificate = sf.certify(net, interval=(0.1, 1.0))
    levels = [0.9 ** (4**k) for k in range(6)]
    assert [certificate.bound(k) for k in range(6)] == pytest.approx(levels, rel=2e-9)
    assert certificate.bound(50) == certificate.bound(5)
    assert certificate.initial_gap == pytest.approx(0.9, rel=1e-12)
    assert certificate.iterations_to(1e-10) == 4
    assert certificate.iterations_to(1e-300) == math.inf
    assert certificate.optimal_value == 0.0
    assert sf.Certificate.from_json(certificate.to_json()) == certificate
    assert '"claims": [\n  "L1"\n ]' in certificate.to_json()


def test_order_agrees_with_interval_for_ones() -> None:
    net = sf.nn.LearnedInverse.ones(6, 3)
    by_order = sf.certify(net, interval=(0.03, 1.2), theorem="inverse/order")
    by_interval = sf.certify(net, interval=(0.03, 1.2))
    assert by_order.holds and by_interval.holds
    for k in range(8):
        assert by_order.bound(k) == pytest.approx(by_interval.bound(k), rel=1e-8)


def test_order_needs_ones_and_a_start_below_the_zero_matrix() -> None:
    C = torch.ones(2, 4, dtype=DOUBLE)
    C[1, 2] = 1.0 + 2.0**-52
    failed = sf.certify(sf.nn.LearnedInverse(C), interval=(0.1, 1.0), theorem="inverse/order")
    assert not failed.holds and "inverse/interval" in failed.suggestion
    assert [c.holds for c in failed.conditions] == [True, True, False, True]
    failed = sf.certify(sf.nn.LearnedInverse.ones(2, 4), interval=(0.1, 2.0), theorem="inverse/order")
    assert not failed.holds and "below 2" in failed.suggestion
    assert math.isinf(failed.bound(1))


def test_useless_coefficients_fail_with_a_suggestion_that_works() -> None:
    net = sf.nn.LearnedInverse.chebyshev(3, 4, (0.1, 1.0))
    failed = sf.certify(net, interval=(0.1, 1.4))
    assert not failed.holds
    assert "LearnedInverse.chebyshev(3, 4, (0.1, 1.4))" in failed.suggestion
    assert sf.certify(sf.nn.LearnedInverse.chebyshev(3, 4, (0.1, 1.4))).holds
    huge = sf.certify(sf.nn.LearnedInverse(torch.full((5, 30), 1e30, dtype=DOUBLE)), interval=(0.1, 1.4))
    assert not huge.holds and "finite bound" in str(huge)


@pytest.mark.parametrize("layers", [1, 2, 30])
def test_tiny_singular_values_are_certified(layers: int) -> None:
    certificate = sf.certify(sf.nn.LearnedInverse.ones(layers, 4), interval=(1e-9, 1.0), theorem="inverse/order")
    assert certificate.holds
    with mpmath.workdps(40):
        exact = float((1 - mpmath.mpf(1e-9)) ** (4**layers))
    assert exact <= certificate.bound(layers) <= exact * (1 + 1e-7) + 1e-300


@pytest.mark.parametrize(
    ("interval", "error", "match"),
    [
        (0.1, TypeError, "two numbers"),
        ("ab", TypeError, "two numbers"),
        ((0.1, 1.0, 2.0), TypeError, "two numbers"),
        ((True, 1.0), TypeError, "two numbers"),
        ((0.0, 1.0), ValueError, "0 < l < u"),
        ((-0.1, 1.0), ValueError, "0 < l < u"),
        ((1.0, 0.5), ValueError, "0 < l < u"),
        ((0.5, 0.5), ValueError, "0 < l < u"),
        ((math.nan, 1.0), ValueError, "0 < l < u"),
        ((0.1, math.inf), ValueError, "0 < l < u"),
    ],
)
def test_bad_intervals(interval: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        sf.certify(sf.nn.LearnedInverse.ones(2, 4), interval=interval)  # type: ignore[arg-type]


def test_bad_calls() -> None:
    net = sf.nn.LearnedInverse.ones(2, 4)
    with pytest.raises(ValueError, match="no interval of its own"):
        sf.certify(net)
    with pytest.raises(ValueError, match="did you mean 'inverse/interval'"):
        sf.certify(net, interval=(0.1, 1.0), theorem="inverse/intervall")
    with pytest.raises(ValueError, match="not both"):
        sf.certify(net, (0.1, 1.0), interval=(0.1, 1.0))
    with pytest.raises(TypeError, match="float64"):
        sf.certify(sf.nn.LearnedInverse.ones(2, 4).float(), interval=(0.1, 1.0))
    with torch.no_grad():
        net.coefficients[0, 0] = math.nan
    with pytest.raises(ValueError, match="finite"):
        sf.certify(net, interval=(0.1, 1.0))
    with pytest.raises(TypeError, match="not descended"):
        sf.descend(sf.nn.LearnedInverse.ones(2, 4), (0.1, 1.0), 0.1)
    with pytest.raises(TypeError, match="pass a loss"):
        sf.certify(sf.nn.TwoLayerLinear.gaussian(2, 1, 3), interval=(0.1, 1.0))


def test_a_certificate_of_an_operator_scale() -> None:
    """X_0 = 2I/(λ_min+λ_max) has its spectrum in [2λ_min, 2λ_max]/(λ_min+λ_max), symmetric about 1."""
    low, high = 1.0, 9.0
    interval = (2 * low / (low + high), 2 * high / (low + high))
    certificate = sf.certify(sf.nn.LearnedInverse.ones(2, 4), interval=interval)
    assert certificate.bound(2) == pytest.approx(0.8**16, rel=1e-8)


def test_float_and_integer_ends_are_the_same_problem() -> None:
    net = sf.nn.LearnedInverse.ones(1, 2)
    assert sf.certify(net, interval=(1, 1.5)) == sf.certify(net, interval=(1.0, 1.5))
    assert sf.certify(net, (1, 1.5)) == sf.certify(net, interval=(1.0, 1.5))


def test_text_speaks_of_layers() -> None:
    text = str(sf.certify(sf.nn.LearnedInverse.ones(4, 4), interval=(0.1, 1.0)))
    assert "guaranteed gap 1.9323" in text and "after 4 iterations, 0.900001 at the start" in text  # rounded up
    assert "first step" not in text
