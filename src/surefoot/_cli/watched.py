"""Training by an optimiser of torch, and a finish, before the program certifies and descends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from surefoot_check.text import counted

from .._core.io import read_json, read_tensors
from .._core.near_a_fit.watch import Watch
from .built import Built
from .screen import number
from .values import LONGEST


@dataclass(frozen=True)
class Finish:
    """What goes on from where an optimiser ended.

    Attributes:
        rule: the name of that whose steps are taken.
        take: them, at most so many, in place; the norms before every step and at the end.
        towards: what the norm is of.
        whole: go on until no step helps, rather than until something is guaranteed.
    """

    rule: str
    take: Callable[[int], list[float]]
    towards: str = "residual"
    whole: bool = False


def weights_of_file(path: Path) -> dict[str, Tensor]:
    """The arrays of ``--weights``.

    Raises:
        ValueError: it does not exist, or may be a pickle.
        RunDirectoryError: it cannot be read.
    """
    if path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise ValueError(
            f"{path} may hold a pickle, which is never read; convert it once: import torch; from safetensors.torch import "
            f"save_file; save_file(torch.load({str(path)!r}, weights_only=True), {str(path.with_suffix('.safetensors'))!r})"
        )
    if not path.exists():
        raise ValueError(
            f"--weights {path}: no such file; give a safetensors file of the network's state_dict, or of a run"
        )
    return read_tensors(path)


def check_rate(rate: float | None) -> None:
    """``ValueError`` for a learning rate that is none."""
    if rate is not None and not 0.0 < rate < math.inf:
        raise ValueError(f"--learning-rate is {rate}; it must be a positive number")


def trained(
    built: Built,
    shown: Callable[[dict[str, Any]], dict[str, str]],
    fit: Callable[[], Watch] | None,
    optimizer: str,
    finish: Finish | None,
    goal: str,
) -> Built:
    """The network after the optimiser, if there is one, and after the finish, if there is one; what is to be said of both.

    Args:
        built: whose network is trained in place.
        shown: the facts for people.
        fit: trains, watched.
        optimizer: its name.
        finish: what goes on from there.
        goal: the name of the finish that would help.
    """
    watch = None
    if fit is not None:
        watch = fit()
        built.facts["trained"] = _trained(watch, optimizer)
    if finish is not None:
        norms = _finished(finish, watch)
        taken = f"{counted(len(norms) - 1, 'step')} of {finish.rule}"
        built.facts["finished"] = f"{taken}, norm of the {finish.towards} {number(norms[0])} → {number(norms[-1])}"
    advice = "" if watch is None else _advice(watch, "" if finish is not None else goal)
    return replace(built, shown=shown(built.facts), advice=advice, keep=None if watch is None else watch.save)


def resumed(
    built: Built, shown: Callable[[dict[str, Any]], dict[str, str]], out: str, put: Callable[[Path], None]
) -> Built:
    """The network where the run began, with what was said of its training; ``put`` takes the weights of a file."""
    put(Path(out) / "initial.safetensors")
    stored = read_json(Path(out) / "config.json").get("data", {})
    built.facts.update({name: stored[name] for name in ("trained", "finished") if name in stored})
    return replace(built, shown=shown(built.facts))


def _finished(finish: Finish, watch: Watch | None) -> list[float]:
    """Take the steps; the norms before each and at the end."""
    if finish.whole or watch is None:
        norms = finish.take(LONGEST)
        if watch is not None:
            watch.iteration += len(norms) - 1
            watch.look()
        return norms
    norms: list[float] = []
    while len(norms) <= LONGEST and not (watch.certificate is not None and watch.certificate.holds):
        pair = finish.take(1)
        norms = [*norms[:-1], *pair]
        if len(pair) == 1:
            break
        watch.iteration += 1
        watch.look()
    return norms


def _trained(watch: Watch, optimizer: str) -> str:
    """How a training went, for people."""
    seen = watch.history[-1]
    shares = ", ".join(number(share, 2) for share in seen.moved)
    features = f"; features moved by {shares} of their norm" if shares else ""
    return f"{watch.iteration:,} steps of {optimizer}, margin {number(seen.margin)} (a guarantee needs 1){features}"


def _advice(watch: Watch, goal: str) -> str:
    """What to change where a training came on the way to a guarantee and not as far; empty for the suggestion itself."""
    if not watch.margin or watch.history[-1].holds:
        return ""
    other = f", or go on by --finish {goal}" if goal else ""
    return f"the margin is {number(watch.margin)} and has to exceed 1: train longer with more --optimizer-steps{other}"
