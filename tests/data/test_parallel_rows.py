"""Duplicate, parallel and all-zero rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from surefoot._data.parallel_rows import merge_rows, parallel_rows
from surefoot._implicit.network import ImplicitReLU

F64 = torch.float64


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def with_multiples(
    seed: int, distinct: int, copies: int, d: int, dtype: torch.dtype = F64
) -> tuple[Tensor, list[int], Tensor]:
    """Rows that are multiples of ``distinct`` random ones, shuffled; the original of each, and its factor."""
    generator = torch.Generator().manual_seed(seed)
    originals = torch.randn(distinct, d, generator=generator, dtype=F64).to(dtype)
    origin = torch.cat([torch.arange(distinct), torch.randint(distinct, (copies,), generator=generator)])
    factors = torch.cat([torch.ones(distinct), torch.rand(copies, generator=generator) * 10 + 0.1]).to(dtype)
    order = torch.randperm(len(origin), generator=generator)
    origin, factors = origin[order], factors[order]
    return originals[origin] * factors[:, None], origin.tolist(), factors


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.integers(1, 20), st.integers(0, 20), st.sampled_from([2, 5, 300]), st.booleans())
def test_groups_are_those_that_were_planted(seed: int, distinct: int, copies: int, d: int, single: bool) -> None:
    X, origin, factors = with_multiples(seed, distinct, copies, d, torch.float32 if single else F64)
    report = parallel_rows(X)
    planted = {k: tuple(i for i, o in enumerate(origin) if o == k) for k in set(origin)}
    assert {group.rows for group in report.groups} == {rows for rows in planted.values() if len(rows) > 1}
    assert [group.rows for group in report.groups] == sorted(group.rows for group in report.groups)
    for group in report.groups:
        ratios = factors[list(group.rows)] / factors[group.rows[0]]
        np.testing.assert_allclose(group.factors, ratios.numpy(), rtol=1e-5 if single else 1e-12)


def test_exact_duplicates_zero_rows_and_their_text() -> None:
    X = torch.tensor([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [-1.0, -2.0], [3.0, 6.0], [0.0, 1.0], [0.0, 1.0]], dtype=F64)
    report = parallel_rows(X)
    assert [group.rows for group in report.groups] == [(0, 2, 4), (5, 6)]
    assert [group.duplicates for group in report.groups] == [False, True]
    assert report.groups[0].factors == pytest.approx((1.0, 1.0, 3.0)) and report.groups[1].factors == (1.0, 1.0)
    assert report.zero_rows == (1,) and report
    for words in (
        "rows 0, 2, 4 are positive multiples",
        "rows 5, 6 are equal",
        "singular value of Z is 0",
        "row 1 is all zero",
    ):
        assert words in report.text
    assert not parallel_rows(X[2:4]) and parallel_rows(X[2:4]).text == ""


def test_long_groups_are_abbreviated() -> None:
    X = torch.cat([torch.ones(9, 2, dtype=F64), torch.zeros(7, 2, dtype=F64)])
    text = parallel_rows(X).text
    assert (
        "rows 0, 1, 2, 3, 4 and 4 more are equal" in text and "rows 9, 10, 11, 12, 13 and 2 more are all zero" in text
    )


def test_extreme_lengths_and_borderline_directions() -> None:
    """Multiples whose squares underflow or overflow; and two directions on either side of the tolerance."""
    row = torch.tensor([[1.0, 2.0, -3.0]], dtype=F64)
    X = torch.cat([row * 1e-150, row, row * 1e150])
    (group,) = parallel_rows(X).groups
    assert group.rows == (0, 1, 2) and group.factors == pytest.approx((1.0, 1e150, 1e300))
    torch.testing.assert_close(merge_rows(X, normal(0, 3)).X, X[2:])
    near = torch.tensor([[1.0, 0.0], [1.0, 1e-9]], dtype=F64)
    assert not parallel_rows(near)
    assert len(parallel_rows(near, tolerance=1e-8).groups) == 1


def test_many_rows_take_no_quadratic_time() -> None:
    distinct = 20_000
    X, origin, _ = with_multiples(1, distinct, 500, 6)
    report = parallel_rows(X)
    assert sum(len(group.rows) - 1 for group in report.groups) == 500 == len(origin) - distinct


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 6), st.sampled_from([None, 1, 3]), st.integers(0, 2))
def test_merging_changes_the_loss_by_the_constant(
    seed: int, distinct: int, copies: int, p: int | None, zeros: int
) -> None:
    """For any weights: the loss, and its gradient, of the network."""
    X, _, _ = with_multiples(seed, distinct, copies, 4)
    X = torch.cat([X, torch.zeros(zeros, 4, dtype=F64)])
    Y = normal(seed + 1, len(X)) if p is None else normal(seed + 1, len(X), p)
    merged = merge_rows(X, Y)
    assert len(merged.X) == distinct and merged.Y.shape == (distinct, *Y.shape[1:])
    assert not parallel_rows(merged.X)
    A = normal(seed + 2, 6, 6)
    b = normal(seed + 3, 6) if p is None else normal(seed + 3, 6, p)
    net = ImplicitReLU(normal(seed + 4, 4, 6), A / torch.linalg.matrix_norm(A, 2), b, 0.6, tolerance=1e-12)
    losses, gradients = [], []
    for inputs, labels in ((X, Y), (merged.X, merged.Y)):
        net.zero_grad()
        loss = 0.5 * (net(inputs) - labels).square().sum()
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([g.flatten() for g in (net.W.grad, net.A.grad, net.b.grad) if g is not None]))
    assert losses[0] == pytest.approx(losses[1] + merged.constant, rel=1e-9)
    torch.testing.assert_close(
        gradients[0], gradients[1], rtol=1e-7, atol=1e-7 * float(gradients[0].abs().max()) + 1e-12
    )


def test_position_of_every_row() -> None:
    X = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [3.0, 3.0], [1.0, 0.0], [0.0, 5.0]], dtype=F64)
    merged = merge_rows(X, normal(0, 6))
    assert merged.position.tolist() == [-1, 0, 1, 0, 1, 2]
    torch.testing.assert_close(merged.X[0], X[1] * 10**0.5)
    torch.testing.assert_close(merged.X[1], X[2] * 1.25**0.5)
    assert torch.equal(merged.X[2], X[5])


def test_equal_labels_of_duplicates_leave_nothing() -> None:
    X = torch.tensor([[0.6, 0.8], [1.0, 0.0], [0.6, 0.8], [0.6, 0.8]], dtype=F64)
    merged = merge_rows(X, torch.tensor([1.0, 2.0, 1.0, 1.0], dtype=F64))
    assert merged.constant == pytest.approx(0.0, abs=1e-30) and not merged.conflicts
    torch.testing.assert_close(merged.Y, torch.tensor([3**0.5, 2.0], dtype=F64))
    assert "4 rows became 2" in merged.text


def test_conflicting_labels_are_reported() -> None:
    """The case of the spec: one input with labels 1 and -1 leaves a loss of 1."""
    X = torch.tensor([[0.6, 0.8], [0.6, 0.8], [1.0, 0.0], [2.0, 0.0]], dtype=F64)
    merged = merge_rows(X, torch.tensor([1.0, -1.0, 1.0, 2.0], dtype=F64))
    assert merged.conflicts == {0: pytest.approx(1.0)} and merged.constant == pytest.approx(1.0)
    assert "conflicting labels" in merged.text and "rows 0, 1 are equal: at least 1" in merged.text
    float32 = merge_rows(X.float(), torch.tensor([0.1, 0.1, 0.3, 0.6]))
    assert not float32.conflicts and float32.X.dtype == torch.float32


def test_zero_rows_leave_their_labels() -> None:
    X = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=F64)
    merged = merge_rows(X, torch.tensor([[3.0, 4.0], [1.0, 1.0]], dtype=F64))
    assert merged.constant == pytest.approx(12.5) and merged.X.shape == (1, 2)


def test_nothing_to_merge() -> None:
    X, y = normal(0, 4, 3), normal(1, 4)
    merged = merge_rows(X, y)
    assert torch.equal(merged.X, X) and torch.equal(merged.Y, y)
    assert merged.constant == 0.0 and "nothing to merge" in merged.text
    assert merged.position.tolist() == [0, 1, 2, 3]


def test_parallel_rows_make_Z_singular_until_merged() -> None:
    X, _, _ = with_multiples(3, 4, 2, 5)
    net = ImplicitReLU.paper(5, 60, 0.5)
    smallest = [float(torch.linalg.svdvals(net.equilibrium(rows).Z)[-1]) for rows in (X, merge_rows(X, normal(0, 6)).X)]
    assert smallest[0] < 1e-12 < 1e-2 < smallest[1]


@pytest.mark.parametrize(
    ("X", "Y", "error", "message"),
    [
        (normal(0, 3), normal(0, 3), ValueError, r"X has shape \(3,\)"),
        (normal(0, 0, 3), normal(0, 0), ValueError, r"X has shape \(0, 3\)"),
        (normal(0, 2, 2) / 0.0, normal(0, 2), ValueError, "X has"),
        (normal(0, 2, 2), normal(0, 3), ValueError, r"Y has shape \(3,\); it must be \(2,\)"),
        (normal(0, 2, 2), normal(0, 2) / 0.0, ValueError, "Y has"),
        (torch.zeros(2, 2, dtype=F64), normal(0, 2), ValueError, "all rows of X are all zero"),
        (torch.ones(2, 2, dtype=torch.int64), normal(0, 2), TypeError, "X has dtype int64"),
    ],
)
def test_refused(X: Any, Y: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        merge_rows(X, Y)


def test_refused_tolerance() -> None:
    with pytest.raises(ValueError, match=r"tolerance is -1\.0"):
        parallel_rows(normal(0, 2, 2), tolerance=-1.0)


def test_merging_that_overflows_is_refused() -> None:
    with pytest.raises(ValueError, match="the merged row overflows; scale X down"):
        merge_rows([[1.5e308, 0.0], [1.5e308, 0.0]], [1.0, 1.0])
    with pytest.raises(ValueError, match="its squares overflow; scale Y down"):
        merge_rows([[1.0, 0.0], [1.0, 0.0]], [1e300, -1e300])
