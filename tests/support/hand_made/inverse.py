"""Learned inverses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from changes import edit, field, reevaluate, scaled
from tamper import SCHEDULE, Change, Record, StoredRun, get

import surefoot as sf

DOUBLE = torch.float64


def _trained() -> sf.nn.LearnedInverse:
    generator = torch.Generator().manual_seed(1)
    net = sf.nn.LearnedInverse.chebyshev(3, 4, (0.01, 1.0), "gram")
    net.fit(torch.randn(4, 6, 6, dtype=DOUBLE, generator=generator), epochs=20, objective="last", learning_rate=1e-3)
    return net


RUNS: dict[str, Callable[[Path], None]] = {
    "chebyshev": lambda path: sf.nn.LearnedInverse.chebyshev(4, 4, (1e-3, 1.0)).save_certificate(path),
    "trained": lambda path: _trained().save_certificate(path),
    "ones": lambda path: sf.nn.LearnedInverse.ones(3, 5).save_certificate(path, (0.2, 1.5)),
    "order": lambda path: sf.nn.LearnedInverse.ones(6, 3).save_certificate(path, (0.02, 1.0), "inverse/order"),
    "one layer": lambda path: sf.nn.LearnedInverse([[1.9, 0.1]]).save_certificate(path, (0.4, 1.0)),
}


def last(record: Record) -> str:
    """The residual after the last layer."""
    return f"residual[{record['problem']['K']}]"


def layer(index: int, entry: int, value: Any) -> Change:
    """Set an entry of a segment of the schedule."""
    return field((*SCHEDULE, index, entry), value)


def level(index: int, factor: float) -> Change:
    """A smaller guaranteed residual after a layer."""
    return scaled((*SCHEDULE, index, 2), factor)


def without_last_layer(run: StoredRun) -> None:
    """The schedule ends a layer early."""
    schedule = get(run.certificate, SCHEDULE)
    del schedule[-1]
    schedule[-1][1] = None


def one_layer_more(run: StoredRun) -> None:
    """The schedule claims a layer that the net does not have."""
    schedule = get(run.certificate, SCHEDULE)
    schedule[-1][1] = 1
    schedule.append([len(schedule), None, (1e-200).hex(), *schedule[-1][3:]])


def early(run: StoredRun) -> None:
    """The last residual, a layer too early."""
    schedule = get(run.certificate, SCHEDULE)
    schedule[-2][2] = schedule[-1][2]


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """The array of the problem or of the initial file under another value."""
    return edit(f"{'problem' if name == 'interval' else 'initial'}.safetensors", name, change)


def checkpoint(run: StoredRun) -> None:
    """Coefficients that pass for a checkpoint."""
    run.arrays["checkpoints/000000001.safetensors"] = {
        "C": run.weights["C"],
        "iteration": np.array(1, dtype=np.int64),
    }


def final(run: StoredRun) -> None:
    """Coefficients that pass for the final weights."""
    run.arrays["final.safetensors"] = {"C": run.weights["C"], "iteration": np.array(0, dtype=np.int64)}


ANY: dict[str, Change] = {
    "interval with a smaller lower end": changed("interval", lambda v: v * [0.9, 1.0]),
    "interval with a larger upper end": changed("interval", lambda v: v * [1.0, 2.2]),
    "interval reversed": changed("interval", lambda v: v[::-1].copy()),
    "interval to 0": changed("interval", lambda v: v * [0.0, 1.0]),
    "interval negative": changed("interval", lambda v: -v[::-1]),
    "interval of one point": changed("interval", lambda v: v[[1, 1]]),
    "C larger": changed("C", lambda C: 1.01 * C),
    "first coefficient larger": changed("C", lambda C: C + 1e-3 * np.eye(*C.shape)),
    "last row of C doubled": changed("C", lambda C: np.vstack([C[:-1], 2.0 * C[-1:]])),
    "C reversed": changed("C", lambda C: 0.9 * C[::-1, ::-1].copy()),
    "C without a layer": changed("C", lambda C: C[:-1] if len(C) > 1 else C[:, :-1]),
    "C with a term more": changed("C", lambda C: np.hstack([C, 0.0 * C[:, :1]])),
    "C huge": changed("C", lambda C: 1e300 * C),
    "C empty": changed("C", lambda C: C[:, :0]),
    "C of one dimension": changed("C", lambda C: C.reshape(-1)),
    "C of 65 layers": changed("C", lambda C: np.ones((65, 2))),
    "C of 65 terms": changed("C", lambda C: np.ones((2, 65))),
    "last level tiny": level(-1, 1e-100),
    "last level negative": layer(-1, 2, (-1.0).hex()),
    "last level NaN": layer(-1, 2, "nan"),
    "last level infinite": layer(-1, 2, "inf"),
    "a late start": layer(-1, 0, 90),
    "a layer left out": without_last_layer,
    "a layer too many": one_layer_more,
    "the first layer lasts two": layer(0, 1, 2),
    "another optimal value": field(("optimal_value",), (0.1).hex()),
    "another rule": field(("rule",), "constant"),
    "an unknown theorem": field(("theorem",), "inverse/best"),
    "a checkpoint": checkpoint,
    "final weights": final,
}
RESIDUAL: dict[str, Change] = {
    "last residual smaller": lambda run: reevaluate(**{last(run.certificate): 1 - 1e-7})(run),
    "last residual a tenth": lambda run: reevaluate(**{last(run.certificate): 0.1})(run),
    "first residual smaller": reevaluate(**{"residual[1]": 1 - 1e-7}),
    "residual negative": field(("quantities", "residual[1]"), (-1.0).hex()),
}
DEEP: dict[str, Change] = {
    "the last residual a layer early": early,
    "layers exchanged": changed("C", lambda C: C[[1, 0, *range(2, len(C))]]),
}
ORDER: dict[str, Change] = {
    "one coefficient an ulp above 1": changed(
        "C", lambda C: np.where(np.arange(C.size).reshape(C.shape) == 4, 1 + 2**-52, C)
    ),
    "deviation not 0": field(("quantities", "deviation"), (1e-9).hex()),
}
CASES: dict[str, dict[str, Change]] = {
    "chebyshev": {**ANY, **RESIDUAL, **DEEP},
    "trained": {**ANY, **RESIDUAL, **DEEP},
    "ones": {**ANY, **RESIDUAL},
    "order": {**ANY, **ORDER},
    "one layer": {**ANY, **RESIDUAL},
}
