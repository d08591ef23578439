"""A training loss that is a sum over problems, matrices or crops, shared by the ranks of a job."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from .._core.team import Memory, Message, RankLostError, member, name_of, team

_numbers = itertools.count()


class Terms(ABC):
    """Terms of a loss as functions of the tensor w of all weights: all of them, or the share of one rank.

    Args:
        common: what they are made of besides their data; every rank makes its own.
    """

    @abstractmethod
    def __init__(self, common: Message) -> None: ...

    @abstractmethod
    def take(self, data: Message, part: slice, count: int) -> None:
        """Be the terms ``part`` of ``count``, until other data is taken; a mean is over ``count``.

        Args:
            data: that of ``SharedSum.take``, of its tensors the rows ``part``.
        """

    @abstractmethod
    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Their sum, a scalar, and its gradient in the weights that are trained."""

    @abstractmethod
    def measure(self, w: Tensor) -> float:
        """Their sum, in the quantity that decides which weights are best."""


class SharedSum:
    """The sum of all terms. Where there is a team, its ranks hold about as many terms each, and their sums are added in the order
    of the ranks: the result is that of one process up to the rounding of another order of summation. Tensors that are not on
    the CPU stay on rank 0.

    Args:
        kind: of the terms, at the top level of its module.
        common: as for ``kind``; its facts as JSON has them.
        held: closed by the caller; then no rank holds anything more.

    Raises, as every method does, what ``kind`` raises on any rank, and ``RankLostError``.
    """

    def __init__(self, kind: type[Terms], common: Message, held: ExitStack) -> None:
        self._ranks = team()
        if self._ranks is None:
            self._terms = kind(common)
            return
        self._name = f"sum {next(_numbers)}"
        self._on_cpu = _on_cpu(common.tensors)
        held.callback(self._drop)
        facts = {"sum": self._name, "kind": name_of(kind), "common": common.facts}
        self._ranks.call(make, Message(facts, common.tensors))

    def take(self, count: int, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Data of ``count`` terms in place of those before: ``facts`` for all ranks, of ``tensors`` a row for each term."""
        if self._ranks is None:
            self._terms.take(Message(facts, tensors), slice(0, count), count)
            return
        parts = [slice(0, count), *[slice(count, count)] * (self._ranks.size - 1)]
        if self._on_cpu and _on_cpu(tensors):
            parts = self._ranks.shares(count)
        requests = [
            Message(
                {"sum": self._name, "data": facts, "part": [part.start, part.stop], "count": count},
                {name: tensor[part] for name, tensor in tensors.items()},
            )
            for part in parts
        ]
        self._ranks.call(take, requests)

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """As ``Terms.value_and_gradient``."""
        if self._ranks is None:
            return self._terms.value_and_gradient(w)
        answers = [answer.tensors for answer in self._ranks.call(value_and_gradient, self._at(w))]
        value, gradient = (
            reduce(torch.add, [answer[name] for answer in answers if answer]) for name in ("value", "gradient")
        )
        return value, gradient

    def measure(self, w: Tensor) -> float:
        """As ``Terms.measure``."""
        if self._ranks is None:
            return self._terms.measure(w)
        return sum(answer.facts.get("measure", 0.0) for answer in self._ranks.call(measure, self._at(w)))

    def _at(self, w: Tensor) -> Message:
        return Message({"sum": self._name}, {"w": w})

    def _drop(self) -> None:
        assert self._ranks is not None
        with suppress(RankLostError):  # which ends the job, or has been reported
            self._ranks.call(drop, Message({"sum": self._name}))


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """All entries in one vector, without gradient."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@torch.no_grad()
def assign(parameters: Iterable[Tensor], w: Tensor) -> None:
    """Set all parameters from ``flat`` of them. Copied: products may round differently where memory is unaligned."""
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.copy_(w[start:end].view_as(parameter))
        start = end


@dataclass
class _Held:
    """What a rank has of a sum, and whether it has any terms of it."""

    terms: Terms
    any: bool = False


def make(request: Message, memory: Memory) -> Message:
    """On a rank: terms without data."""
    kind = member(request.facts["kind"])
    memory[request.facts["sum"]] = _Held(kind(Message(request.facts["common"], request.tensors)))
    return Message()


def take(request: Message, memory: Memory) -> Message:
    """On a rank: data of its terms."""
    facts, held = request.facts, memory[request.facts["sum"]]
    part = slice(*facts["part"])
    held.any = part.start < part.stop
    if held.any:
        held.terms.take(Message(facts["data"], request.tensors), part, facts["count"])
    return Message()


def value_and_gradient(request: Message, memory: Memory) -> Message:
    """On a rank: its part of ``SharedSum.value_and_gradient``."""
    held = memory[request.facts["sum"]]
    if not held.any:
        return Message()
    value, gradient = held.terms.value_and_gradient(request.tensors["w"])
    return Message({}, {"value": value, "gradient": gradient})


def measure(request: Message, memory: Memory) -> Message:
    """On a rank: its part of ``SharedSum.measure``."""
    held = memory[request.facts["sum"]]
    return Message({"measure": held.terms.measure(request.tensors["w"])} if held.any else {})


def drop(request: Message, memory: Memory) -> Message:
    """On a rank: nothing of that sum any more."""
    memory.pop(request.facts["sum"], None)
    return Message()


def _on_cpu(tensors: Mapping[str, Tensor]) -> bool:
    return all(tensor.device.type == "cpu" for tensor in tensors.values())
