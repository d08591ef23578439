"""The normal distribution of level fast against FLINT and mpmath, at nodes of its grid, between them and beyond it."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from flint import arb, ctx

from surefoot_check.rigor.bounds import FAST, NotFiniteError
from surefoot_check.rigor.functions import BALLS, evaluated
from surefoot_check.rigor.normal import DENSITY, FARTHEST, SUPREMA, normal

NAMES = ["normal_cdf", "normal_density"]


def hostile() -> np.ndarray:
    """Nodes, ends of cells and numbers beside them, random ones, subnormal and huge ones, of both signs."""
    generator = np.random.default_rng(0)
    nodes = np.arange(0.0, FARTHEST + 0.5, 1.0 / DENSITY)
    edges = nodes + 0.5 / DENSITY
    beside = [np.nextafter(x, towards) for x in (nodes, edges) for towards in (-np.inf, np.inf)]
    tiny = [0.0, 5e-324, 2.0**-1022, 1e-300, 2.0**-53, 1e-8]
    far = [8.3, 37.5, 38.6, 1e3, 1e154, 1e300, np.finfo(float).max]
    spread = [
        generator.standard_normal(500),
        generator.uniform(-9.5, 9.5, 1500),
        10.0 ** generator.uniform(-12, 1, 200),
    ]
    z = np.concatenate([nodes, edges, *beside, tiny, far, *spread])
    return np.concatenate([z, -z])


@pytest.mark.parametrize("name", NAMES)
def test_each_value_is_within_the_bound(name: str) -> None:
    Z = hostile()
    found = normal(name, Z)
    each = found.error / math.sqrt(Z.size)  # the bound is of every entry
    assert each < 2e-16
    with ctx.workprec(200):
        apart = [abs(BALLS[name](arb(z)) - v) for z, v in zip(Z.tolist(), found.value.tolist(), strict=True)]
        assert all(x <= each for x in apart)
        assert max(float(x) for x in apart) > 0.2 * each


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_another_library(name: str) -> None:
    Z = hostile()[::29].reshape(-1, 1)
    functions: dict[str, Any] = {"normal_cdf": mpmath.ncdf, "normal_density": mpmath.npdf}
    with mpmath.workdps(40):
        exact = [functions[name](mpmath.mpf(z)) for z in Z.ravel().tolist()]
        found = evaluated(name, Z, FAST)
        assert found.value.shape == Z.shape
        assert mpmath.norm([v - x for v, x in zip(found.value.ravel().tolist(), exact, strict=True)]) <= found.error


def test_the_remainder_of_the_polynomials_is_bounded() -> None:
    """By the moments of the Fourier transform; and the bound of the distribution function is attained at 0."""
    for name, k in zip(NAMES, (6, 7), strict=True):
        moment = mpmath.quad(lambda s, k=k: s**k * mpmath.exp(-s * s / 2), [0, mpmath.inf]) / mpmath.pi
        assert moment < SUPREMA[name] < moment * (1 + mpmath.mpf(10) ** -6)
    with mpmath.workdps(30):
        assert mpmath.almosteq(abs(mpmath.diff(mpmath.npdf, 0, 6)), SUPREMA["normal_cdf"], 1e-6)


@pytest.mark.parametrize("z", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_value(z: float) -> None:
    with pytest.raises(NotFiniteError):
        normal("normal_cdf", np.array([0.0, z]))
