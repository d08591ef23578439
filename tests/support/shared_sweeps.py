"""Sweeps of experiments, small, in one process or under a job of several ranks: ``python shared_sweeps.py DIR``.

Every rank writes which parts it computed to DIR/rank-N; rank 0 keeps the parts of each in DIR/NAME and writes the tables to
DIR/tables. Then the ranks begin the sweep ``CUT_OFF`` again, in DIR/lost, and rank 1 ends without a word when it is to compute
part number ``DIES`` of it, counted from 1.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import surefoot as sf
from surefoot._core.team import Memory, Message
from surefoot_experiments import (
    finished,
    implicit_certified,
    implicit_figures,
    inverse_tables,
    linear_resnet_training,
    step_sizes_lista,
    step_sizes_runs,
    two_layer_rates,
    two_layer_width,
)
from surefoot_experiments.result import Experiment

SIZE = step_sizes_runs.Size(6, 4, 8, 3)
CUT_OFF, DIES = "inverse", 2
TUNED = {"repeats": 2, "limit": 20, "tuning": 10, "samples": 40, "factors": (0.5, 1.0), "d": 3}


def step_sizes(cache: Path) -> list[dict[str, Any]]:
    settings = [step_sizes_runs.Setting(SIZE, rate=rate) for rate in (1e-2, 1e-3, 1e-4)]
    runs = step_sizes_runs.run_all([(setting, (0, 3)) for setting in settings], cache, lambda text: None)
    return [{**asdict(run), "weights": [W.tolist() for W in net.matrices]} for run, net in runs]


SWEEPS: dict[str, Callable[[Path], Experiment | list[dict[str, Any]]]] = {
    "inverse": lambda cache: inverse_tables.table2((1, 2, 3, 5, 10), 3, 3, 2, cache=cache),
    "step sizes": step_sizes,
    "lista": lambda cache: step_sizes_lista.figure2(8, 12, 4, 3, 4, cache=cache),
    "implicit": lambda cache: implicit_figures.iterations(samples=10, epochs=2, width=20, cache=cache),
    "certificates": lambda cache: implicit_certified.certificates(((4, 40),), 2, 0, cache=cache),
    "transformations": lambda _: linear_resnet_training.transformations("linear-resnet/fig1a", 6, depth=2, **TUNED),
    "depths": lambda _: linear_resnet_training.depths("linear-resnet/fig1c", 6, (1, 2), **TUNED),
    "rates": lambda _: two_layer_rates.table3(((1.0, 100, 1.0),), 3, n=4),
    "width": lambda _: two_layer_width.figure3((20, 30), repeats=2, n=3),
}


def numbers(name: str, directory: Path) -> Any:
    """The tables of a sweep, as JSON has them."""
    outcome = SWEEPS[name](directory / name)
    return json.loads(json.dumps(outcome.to_dict()["tables"] if isinstance(outcome, Experiment) else outcome))


def watched(rank: int, directory: Path, dies: int = 0) -> Callable[[Message, Memory], Message]:
    """``compute_part`` that writes what it computes, and ends rank 1 at one of its parts; 0 is never."""
    original, count = finished.compute_part, 0

    @functools.wraps(original)
    def compute_part(request: Message, memory: Memory) -> Message:
        nonlocal count
        if request.facts:
            count += 1
            if rank == 1 and count == dies:
                os._exit(9)
            with (directory / f"rank-{rank}").open("a") as file:
                file.write(json.dumps([request.facts[name] for name in ("compute", "key", "arguments")]) + "\n")
        return original(request, memory)

    return compute_part


def main(directory: Path) -> None:
    tables = {name: numbers(name, directory) for name in SWEEPS}
    (directory / "tables").write_text(json.dumps(tables))


if __name__ == "__main__":
    torch.set_num_threads(1)
    where = Path(sys.argv[1])
    original = finished.compute_part
    finished.compute_part = watched(int(os.environ["RANK"]), where)
    sf.distributed.run(lambda: main(where))
    (where / "lost").mkdir(exist_ok=True)
    finished.compute_part = original
    finished.compute_part = watched(int(os.environ["RANK"]), where / "lost", DIES)
    sf.distributed.run(lambda: numbers(CUT_OFF, where / "lost"))
