"""Training with the rows of the data on several ranks: each keeps its rows, its equilibria and its adjoints.

At each iterate rank 0 sends the weights, and the ranks answer with sums over their rows: O(dm + m² + mp) numbers each way,
whatever N is. Rank 0 adds them in the order of the ranks and decides; rows, and what there is for each of them, travel once at
the start, and to rank 0 for each checkpoint.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cached_property, reduce
from typing import Any, Self

import torch
from torch import Tensor

from .._core.samples import SampleLoss
from .._core.team import Job, Memory, Message, RankLostError, Team
from .engine import DescentEngine, NetworkIterate
from .share import Rows, Share, Summary, Weights
from .solvers import SolverMemory

KEY = "implicit"
"""Where a rank keeps its share: of the one iterate that is newest, for the one engine that was made last."""
ROWWISE = ("Z", "adjoint")
"""What a checkpoint holds for every row."""

_numbers = itertools.count()


# -- on every rank -----------------------------------------------------------------------------------------------------


@dataclass
class _Held:
    """What a rank keeps; ``engine`` and ``number`` say of which iterate."""

    engine: int
    number: int
    share: Share


def begin(message: Message, memory: Memory) -> Message:
    """Take rows, and solve at the first weights."""
    memory.pop(KEY, None)
    tensors, facts = message.tensors, message.facts
    rows = Rows(tensors["X"], tensors["Y"])
    share = Share(rows, Weights.of(tensors), facts["gamma"], facts["norm_A"], SolverMemory())
    return _hold(message, memory, share)


def advance(message: Message, memory: Memory) -> Message:
    """Go on to the next weights."""
    share = _share(message, memory)
    return _hold(message, memory, share.after(Weights.of(message.tensors), message.facts["norm_A"]))


def restore(message: Message, memory: Memory) -> Message:
    """Go to the weights and the state of a checkpoint."""
    share = _share(message, memory)
    state = {name.removeprefix("state."): t for name, t in message.tensors.items() if name.startswith("state.")}
    return _hold(message, memory, share.restored(Weights.of(message.tensors), message.facts["norm_A"], state))


def slopes(message: Message, memory: Memory) -> Message:
    """The gradient of these rows, and the sizes of its terms in b."""
    share = _share(message, memory)
    gradient = share.gradient
    return Message(tensors={"W": gradient.W, "A": gradient.A, "b": gradient.b, "output_terms": share.output_terms})


def attempt(message: Message, memory: Memory) -> Message:
    """‖r‖_F at other weights."""
    share = _share(message, memory)
    norm = share.residual_norm_at(Weights.of(message.tensors), message.facts["norm_A"])
    return Message({"residual_norm": norm})


def state(message: Message, memory: Memory) -> Message:
    """What the newest iterate was computed from."""
    return Message(tensors=_share(message, memory).state())


def end(message: Message, memory: Memory) -> Message:
    """Forget the rows of an engine, unless those of another have replaced them."""
    held: _Held | None = memory.get(KEY)
    if held is not None and held.engine == message.facts["engine"]:
        del memory[KEY]
    return Message()


def _share(message: Message, memory: Memory) -> Share:
    held: _Held | None = memory.get(KEY)
    if held is None or held.number != message.facts["of"]:
        raise RuntimeError(
            "the ranks hold another iterate than this one: a later one, or that of another engine; go on from that, or "
            "make a new engine"
        )
    return held.share


def _hold(message: Message, memory: Memory, share: Share) -> Message:
    memory[KEY] = _Held(message.facts["engine"], message.facts["number"], share)
    return Message({"residual_norm": share.residual_norm, "summary": asdict(share.summary)})


# -- on rank 0 ---------------------------------------------------------------------------------------------------------


class SharedIterate(NetworkIterate):
    """An iterate whose rows are on the ranks of a team, which hold them for the newest iterate only.

    Args:
        ranks: the team.
        count: N.
        weights: float64, on the CPU.
        gamma: γ.
        norm_A: upper bound of ‖A‖.
        job: what makes the ranks hold this iterate.
        parts: tensors that it needs beyond the weights, for each rank.
        engine: number of the engine whose iterate it is.
        last: number of the iterate that the ranks hold before; none where they are to begin.
    """

    def __init__(
        self,
        ranks: Team,
        count: int,
        weights: Weights,
        gamma: float,
        norm_A: float,
        job: Job,
        parts: Sequence[Mapping[str, Tensor]],
        engine: int,
        last: int | None = None,
    ) -> None:
        self._ranks, self._count, self._engine, self._number = ranks, count, engine, next(_numbers)
        self.at, self.gamma, self.norm_A = weights, gamma, norm_A
        known = {"engine": engine, "number": self._number, "of": last, "gamma": gamma, "norm_A": norm_A}
        self._answers = ranks.call(job, [Message(known, {**vars(weights), **part}) for part in parts])
        self.residual_norm = _residual_norm(self._answers)

    @classmethod
    def first(cls, ranks: Team, loss: SampleLoss, weights: Weights, gamma: float, norm_A: float, engine: int) -> Self:
        """The first iterate: deals the rows out."""
        parts = [{"X": loss.X[rows], "Y": loss.Y[rows]} for rows in ranks.shares(len(loss.X))]
        return cls(ranks, len(loss.X), weights, gamma, norm_A, begin, parts, engine)

    def after(self, weights: Weights, norm_A: float) -> Self:
        return self._next(weights, norm_A, advance, [{}] * self._ranks.size)

    def restored(self, weights: Weights, norm_A: float, state: Mapping[str, Tensor]) -> Self:
        parts = []
        # the ranks of another number of them all start from what the first one had
        same = "ranks" in state and int(state["ranks"]) == self._ranks.size
        for rank, rows in enumerate(self._ranks.shares(self._count)):
            part = {name: state[name][rows] for name in ROWWISE if name in state}
            basis = state.get(_basis(rank if same else 0))
            if basis is not None:
                part["basis"] = basis
            parts.append({f"state.{name}": tensor for name, tensor in part.items()})
        return self._next(weights, norm_A, restore, parts)

    def _next(self, weights: Weights, norm_A: float, job: Job, parts: Sequence[Mapping[str, Tensor]]) -> Self:
        return type(self)(self._ranks, self._count, weights, self.gamma, norm_A, job, parts, self._engine, self._number)

    @property
    def count(self) -> int:
        return self._count

    @cached_property
    def summary(self) -> Summary:
        return Summary.combined([Summary(**answer.facts["summary"]) for answer in self._answers])

    @cached_property
    def _slopes(self) -> Mapping[str, Tensor]:
        """Of the parts of all ranks, the sums in the order of the ranks."""
        answers = [answer.tensors for answer in self._ranks.call(slopes, self._message())]
        return {name: reduce(torch.add, [part[name] for part in answers]) for name in answers[0]}

    @cached_property
    def gradient(self) -> Weights:
        return Weights(*(self._slopes[name] for name in ("W", "A", "b")))

    @property
    def output_terms(self) -> Tensor:
        return self._slopes["output_terms"]

    def residual_norm_at(self, weights: Weights, norm_A: float) -> float:
        return _residual_norm(self._ranks.call(attempt, self._message(vars(weights), norm_A=norm_A)))

    def state(self) -> dict[str, Tensor]:
        """As that of ``Share``, with the rows of all ranks, and a basis for each of them."""
        answers = [answer.tensors for answer in self._ranks.call(state, self._message())]
        rows = {name: torch.cat([part[name] for part in answers]) for name in ROWWISE if name in answers[0]}
        rows |= {_basis(rank): part["basis"] for rank, part in enumerate(answers) if "basis" in part}
        return rows | {"ranks": torch.tensor(self._ranks.size)}

    def _message(self, tensors: Mapping[str, Tensor] | None = None, **facts: Any) -> Message:
        return Message({"of": self._number, **facts}, tensors or {})


def _residual_norm(answers: Sequence[Message]) -> float:
    return math.hypot(*(answer.facts["residual_norm"] for answer in answers))


def _basis(rank: int) -> str:
    """The name of a rank's basis in a checkpoint; that of the first is the one that a single process has."""
    return "basis" if rank == 0 else f"basis.{rank}"


class SharedEngine(DescentEngine[SharedIterate], AbstractContextManager[Any]):
    """Gradient descent with the rows on several ranks. At the end of the context the ranks forget them.

    Args:
        loss: X (N, d), Y (N, p), on the CPU.
        weights: float64, on the CPU.
        gamma: γ.
        ranks: the team.
        resolution: see ``DescentEngine``.

    Raises:
        RankLostError: a rank ended; so do the methods.
    """

    def __init__(
        self,
        loss: SampleLoss,
        weights: Weights,
        gamma: float,
        ranks: Team,
        resolution: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._ranks, self._number = ranks, next(_numbers)
        try:
            super().__init__(
                weights.A,
                gamma,
                lambda norm_A: SharedIterate.first(ranks, loss, weights, gamma, norm_A, self._number),
                resolution,
            )
        except BaseException as error:
            self._forget(error)
            raise

    def require_fit(self, rule: str) -> None:
        """``TypeError``: such steps need all rows in one process."""
        raise TypeError(
            f"steps={rule!r} needs all rows in one process, here they are on {self._ranks.size} ranks; call it in one, or use "
            "certified-bb"
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        self._forget(error)

    def _forget(self, error: BaseException | None) -> None:
        # not after a lost rank, nor after an interrupt, which may have come in the midst of an answer
        if error is None or (isinstance(error, Exception) and not isinstance(error, RankLostError)):
            self._ranks.call(end, Message({"engine": self._number}))
