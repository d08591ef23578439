"""Files of a few numbers do not make the checker compute arrays that fill the memory, or take hours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surefoot_check.arrays import FormatError
from surefoot_check.feed_forward.classes import Classes
from surefoot_check.feed_forward.geometry import CONVOLUTION, MAXIMUM
from surefoot_check.feed_forward.network import DEEPEST, load_problem, read_weights

Layers = list[tuple[int, int]]
"""Outputs, and whether there is a bias."""
PIXEL = [CONVOLUTION, 1, 64, 64, 1, 1, 1, 1, 0, 0, 64, 64]
"""A convolution of one weight."""
HALF_OF_THE_MAP = [MAXIMUM, 1, 64, 64, 64, 64, 1, 1, 32, 32, 64, 64]


def network(rows: int, inputs: int, layers: Layers, geometry: list[list[int]] | None = None) -> dict[str, Any]:
    """The arrays of a problem of zeros."""
    found: dict[str, Any] = {
        "X": np.zeros((rows, inputs)),
        "Y": np.zeros((rows, layers[-1][0])),
        "layers": np.array([[outputs, bias, 0] for outputs, bias in layers]),
        "settings": np.zeros((len(layers), 2)),
    }
    return found if geometry is None else {**found, "geometry": np.array(geometry)}


def objective(rows: int, inputs: int, layers: Layers) -> dict[str, Any]:
    """The same of a mean squared error with weight decay."""
    return {**network(rows, inputs, layers), "objective": np.ones((1, 2))}


MAPS: Layers = [(4096, 0)] * (DEEPEST - 1) + [(1, 0)]
TOO_LARGE = {
    "the derivatives of the outputs": network(16384, 1, [(4096, 0), (1, 0)] * (DEEPEST // 2)),
    "the matrices of all convolutions": network(1, 4096, MAPS, [PIXEL] * (DEEPEST - 1) + [[0] * 12]),
    "all windows of maps": network(1, 4096, MAPS, [HALF_OF_THE_MAP] * (DEEPEST - 1) + [[0] * 12]),
    "the Gram matrix of the Jacobian": network(16385, 1, [(1, 0)]),
    "the Hessian": objective(1, 16385, [(1, 0)]),
    "the derivatives of a layer": objective(4096, 64, [(64, 1), (4, 1)]),
}


@pytest.mark.parametrize(("what", "arrays"), TOO_LARGE.items(), ids=TOO_LARGE)
def test_arrays_that_would_be_too_large_are_refused(what: str, arrays: dict[str, Any]) -> None:
    problem = load_problem("network-mse" if "objective" in arrays else "network-squared", arrays)
    shapes = {name: shape for number, v in enumerate(problem.layers, 1) for name, shape in v.shapes(number).items()}
    with pytest.raises(FormatError, match=f"net: {what} would have .* entries; at most"):
        read_weights({name: np.ones(shape) for name, shape in shapes.items()}, problem, "net")


def test_a_row_of_many_classes() -> None:
    k = 16384
    classes = Classes(np.array([3]), np.ones(k), 0.5)
    targets = classes.targets.value
    assert targets.shape == (1, k) and targets[0, 3] == 0.5 + 0.5 / k and (np.delete(targets[0], 3) == 0.5 / k).all()
    assert (classes.masses.value == 1.0).all()
