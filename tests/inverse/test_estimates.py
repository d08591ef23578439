"""Theorems 2 and 3 of the paper, as estimates with their hidden constants named."""

from __future__ import annotations

import math

import pytest

from surefoot._inverse.estimates import inverse_generalization, svd_generalization


def test_theorem_2() -> None:
    found = inverse_generalization(400, 2, 16, 4, alpha=2.0, weight_bound=0.5, delta=math.exp(-4.0))
    few, many, confidence = 0.25 * 8 * 4 / 16, math.sqrt(8 * 16 / 400), 0.1
    assert list(found.terms.values()) == pytest.approx([few, many, confidence])
    assert found.value == pytest.approx(min(few, many) + confidence)
    assert not found.guarantee and "not a guarantee" in str(found)
    assert set(found.constants) == {"perturbation", "covering", "confidence", "width"}
    assert found.conditions["alpha >= 1"] is True
    assert found.conditions["K^(2 alpha - 1/2) >= width sqrt(n)"] is True
    assert "unknown" in found.conditions.values()
    other = inverse_generalization(
        400, 2, 16, 4, alpha=2.0, weight_bound=0.5, delta=math.exp(-4.0), constants={"covering": 0.1, "width": 1e9}
    )
    assert other.value == pytest.approx(0.1 * many + confidence)
    assert other.conditions["K^(2 alpha - 1/2) >= width sqrt(n)"] is False
    assert inverse_generalization(400, 2, 16, 4, alpha=0.5).conditions["alpha >= 1"] is False


def test_theorem_3() -> None:
    found = svd_generalization(100, 3, 4, 300, 4, delta=math.exp(-1.0), constants={"confidence": 2.0})
    assert found.value == pytest.approx(math.sqrt(64 * 4 / 100) + 2.0 * 0.1)
    assert found.conditions["K_inv >= depth max(n d, K_svd^2)"] is True
    assert svd_generalization(101, 3, 4, 300, 4).conditions["K_inv >= depth max(n d, K_svd^2)"] is False
    assert "hidden constant covering = 1" in str(found)


@pytest.mark.parametrize(
    "call", [lambda **o: inverse_generalization(10, 2, 3, 4, **o), lambda **o: svd_generalization(10, 2, 3, 9, 4, **o)]
)
def test_bad_arguments(call) -> None:
    with pytest.raises(ValueError, match="delta is 1"):
        call(delta=1.0)
    with pytest.raises(ValueError, match="did you mean 'covering'"):
        call(constants={"coverin": 1.0})
    with pytest.raises(ValueError, match="confidence is -1"):
        call(constants={"confidence": -1.0})
    with pytest.raises(ValueError, match="n is 0"):
        inverse_generalization(0, 2, 3, 4)
