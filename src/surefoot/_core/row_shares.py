"""Rows on several ranks, reduced to one triangle: each rank reads its own rows, and only factors travel."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from .statistics import PLAIN, LeastSquaresStatistics, Reduction, Triangle, merge, row_blocks, statistics_of, triangle
from .team import Memory, Message, gathered, team

WORTHWHILE = 64
"""Rows of a share, in multiples of the columns, from which its reading costs more than its factor's way."""


def reduce_rows(
    X: Tensor | np.ndarray,
    Y: Tensor | np.ndarray,
    weights: Tensor | np.ndarray | None = None,
    how: Reduction = PLAIN,
) -> LeastSquaresStatistics:
    """Statistics of X (N, n) and Y (N, m), and weights (N,). Rows of a memory-mapped X are shared by the ranks of the ``team``,
    which must see the same file; the factor of all rows is that of one process up to the signs and the rounding of another order
    of reduction.

    Raises:
        TypeError, ValueError: as ``statistics.triangle``; X = 0.
        OSError: a rank cannot read the file.
        RankLostError: a rank ended.
    """
    ranks, columns = team(), X.shape[1] + Y.shape[1]
    if ranks is None or not isinstance(X, np.memmap) or X.shape[0] < WORTHWHILE * columns * ranks.size:
        return statistics_of(triangle(row_blocks(X, Y, weights), intercept=how.intercept), how)
    requests = []
    for part in ranks.shares(X.shape[0]):
        place: dict[str, Any] = {"first": part.start, "intercept": how.intercept}
        tensors: dict[str, Tensor] = {}
        for name, array in (("X", X), ("Y", Y), ("weights", weights)):
            if isinstance(array, np.memmap):
                place[name] = _place(array[part])
            elif array is not None:
                tensors[name] = array[part] if isinstance(array, Tensor) else torch.from_numpy(np.array(array[part]))
        requests.append(Message(place, tensors))
    return statistics_of(merge([_decoded(answer) for answer in ranks.call(reduce_share, requests)]), how)


def reduce_share(request: Message, _: Memory) -> Message:
    """A rank's part of ``reduce_rows``."""
    arrays: dict[str, Any] = dict(request.tensors)
    arrays.update({name: _mapped(request.facts[name]) for name in ("X", "Y", "weights") if name in request.facts})
    blocks = row_blocks(arrays["X"], arrays["Y"], arrays.get("weights"))
    return _encoded(triangle(blocks, request.facts["first"], request.facts["intercept"]))


def statistics_of_shards(
    own: Callable[[], Triangle], group: dist.ProcessGroup | None, how: Reduction = PLAIN
) -> LeastSquaresStatistics:
    """On every rank of a process group that calls it with what reduces its own rows: the statistics of all rows.

    Raises:
        ValueError: on every rank, where the rows of one cannot be read or used.
    """
    cause: Exception | None = None
    try:
        answer = _encoded(own())
    except Exception as error:  # of any kind: the other ranks wait for an answer
        cause, answer = error, Message({"error": f"{error} (on rank {dist.get_rank(group)})"})
    answers = gathered(answer, group)
    errors = [answer.facts["error"] for answer in answers if "error" in answer.facts]
    if errors:
        raise ValueError("; ".join(errors)) from cause
    return statistics_of(merge([_decoded(answer) for answer in answers]), how)


def _encoded(rows: Triangle) -> Message:
    tensors = {"factor": rows.factor} if rows.origin is None else {"factor": rows.factor, "origin": rows.origin}
    return Message({"rows": rows.rows, "columns": rows.columns, "dropped": rows.dropped}, tensors)


def _decoded(answer: Message) -> Triangle:
    tensors, facts = answer.tensors, answer.facts
    return Triangle(tensors["factor"], facts["rows"], facts["columns"], tensors.get("origin"), facts["dropped"])


def _place(X: np.ndarray) -> dict[str, Any]:
    """Where in its file a view of a memory map lies."""
    assert isinstance(X, np.memmap)
    base: Any = X._mmap  # pyright: ignore[reportAttributeAccessIssue] - the map itself; ``X.offset`` is that of the whole
    start = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY
    address = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    return {
        "file": str(X.filename),
        "offset": start + X.__array_interface__["data"][0] - address,
        "shape": X.shape,
        "strides": X.strides,
        "dtype": X.dtype.str,
    }


def _mapped(place: dict[str, Any]) -> np.ndarray:
    """The view at that place."""
    content = np.memmap(place["file"], np.uint8, "r")
    return np.ndarray(
        tuple(place["shape"]), np.dtype(place["dtype"]), content, place["offset"], tuple(place["strides"])
    )
