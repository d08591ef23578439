"""Several processes on one job, under ``torchrun``: rank 0 runs the program, the other ranks do parts of its sums.

Only rank 0 reads options, decides, and writes files, so that a run with several processes has the files, the signals and the
checkpoints of a run with one. It sends a part of the work to every rank by ``Team.call`` and adds up the answers in the order
of the ranks: the same number of ranks gives the same bits, another number the same up to the rounding of sums. Messages are
plain values and tensors (JSON and safetensors); no pickle. A rank that died is noticed by its closed connection, one that is
stopped by its silence (``heartbeat``).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from . import heartbeat
from .heartbeat import Heartbeat
from .interrupts import STOPPING

T = TypeVar("T")
PACKAGES = frozenset({"surefoot", "surefoot_experiments"})
"""Those of this distribution whose functions other ranks are asked to run."""
PATIENCE = timedelta(days=30)
"""How long a rank waits for a message of another one that lives."""
ARRIVAL = timedelta(minutes=5)
"""How long ranks wait for the others to come: one that ended before has no connection yet, and is not noticed."""
REFUSALS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (ValueError, TypeError, OSError, MemoryError, FloatingPointError)
}
"""Errors that rank 0 raises as another rank raised them, those of subclasses as the class that is here."""


class RankLostError(RuntimeError):
    """Another process of the job ended, is stopped, or cannot be reached."""


@dataclass(frozen=True)
class Message:
    """What ranks send each other.

    Attributes:
        facts: plain values, as JSON has them.
        tensors: of any dtype and shape; they arrive on the CPU.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def encode(self) -> Tensor:
        """As bytes: the length of the JSON, the JSON, and a safetensors file."""
        plain = json.dumps(self.facts).encode()
        stored = {name: t.detach().cpu().contiguous().clone() for name, t in self.tensors.items()}
        content = len(plain).to_bytes(8, "little") + plain + save_tensors(stored)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8)

    @classmethod
    def decode(cls, content: Tensor) -> Message:
        """The inverse of ``encode``."""
        raw = content.numpy().tobytes()
        end = 8 + int.from_bytes(raw[:8], "little")
        # copied, as they lie unaligned: a matrix product may round differently there than in torch's memory
        tensors = {name: tensor.clone() for name, tensor in load_tensors(raw[end:]).items()}
        return cls(json.loads(raw[8:end]), tensors)


Memory = dict[str, Any]
"""What a rank keeps from call to call."""
Job = Callable[[Message, Memory], Message]
"""Part of the work, on any rank: a function at the top level of a module of this package."""


class Team:
    """The ranks of the job, as rank 0 sees them; see ``team``.

    Attributes:
        size: number of ranks, this one included; at least 2.

    Args:
        size: as above.
        group: what messages go through; by default the process group of all ranks.
        signs: of life, of the other ranks.
    """

    def __init__(self, size: int, group: dist.ProcessGroup | None = None, signs: Heartbeat | None = None) -> None:
        self.size, self._group, self._signs = size, group, signs
        self._memory: Memory = {}
        self._idle = True

    def shares(self, count: int) -> list[slice]:
        """``count`` things in order, dealt out to the ranks in contiguous parts whose sizes differ by at most 1."""
        bounds = [count * rank // self.size for rank in range(self.size + 1)]
        return [slice(start, stop) for start, stop in pairwise(bounds)]

    def call(self, job: Job, messages: Message | Sequence[Message]) -> list[Message]:
        """Do a job on all ranks, and wait for the answers.

        Args:
            job: what to do.
            messages: for each rank, in order; one alone is for all of them.

        Returns:
            The answers in the order of the ranks.

        Raises:
            RankLostError: a rank ended, is stopped, or cannot be reached.
            Exception: what the job raised on this rank, or on another (an error of an unusual type as ``RuntimeError``); all
                ranks can then be called again.
        """
        own = [messages] * self.size if isinstance(messages, Message) else list(messages)
        name = {"job": name_of(job)}
        failed: Exception | None = None
        answers = [Message()] * self.size
        self._idle = False
        with _lost("while the work was dealt out", self._signs):
            sent = [
                _send(Message({**name, "facts": own[rank].facts}, own[rank].tensors).encode(), rank, self._group)
                for rank in range(1, self.size)
            ]
        try:
            with alone():  # as on the other ranks, so that a job may run what would be shared otherwise
                answers[0] = job(own[0], self._memory)
        except Exception as error:
            failed = error  # raised below: the answers of the others are taken first, or they would be mistaken for later ones
        for rank in range(1, self.size):
            with _lost("while its answer was awaited", self._signs, rank):
                answer = _receive(rank, self._group, self._signs)
                _done(sent[rank - 1], self._signs)
            error = answer.facts.get("error")
            if error is None:
                answers[rank] = Message(answer.facts["facts"], answer.tensors)
            elif failed is None:
                failed = REFUSALS.get(error, RuntimeError)(f"{answer.facts['text']} (on rank {rank})")
        self._idle = True
        if failed is not None:
            raise failed
        return answers

    def dismiss(self) -> None:
        """Tell the other ranks that there is nothing more to do. Where a call was cut off they may be about to answer, and would
        not listen: the end of this process tells them."""
        if self._idle:
            with suppress(RankLostError):
                self.call(part, Message())


_current: Team | None = None
_joined = False
"""Whether this process is in ``together``, on any rank."""


def team() -> Team | None:
    """The ranks that share the work of this process; ``None`` where it is alone, on ranks other than 0, and outside of
    ``together``."""
    return _current


def together(program: Callable[[], T]) -> T | None:
    """Run a program on rank 0, with the other ranks of the job doing parts of its sums. Within another one it is just called.

    Where there is no process group yet, ranks meet as the environment says, and that group remains the default one.

    Args:
        program: called on rank 0. Within it, sums over rows, problems or settings are shared where a system can do so.

    Returns:
        What the program returns; ``None`` on the other ranks, which return when it ends.

    Raises:
        RuntimeError: not started by ``torchrun``, and no process group is initialised.
        ValueError: what ``torchrun`` sets in the environment is set in part, or wrong; so is ``SUREFOOT_RANK_TIMEOUT``.
        RankLostError: not all ranks came; on the other ranks: rank 0 is stopped, or ended without dismissing them.

    Example:
        >>> def main():  # of train.py, started by torchrun --nproc-per-node=4 train.py
        ...     X, Y = np.load("X.npy", mmap_mode="r"), np.load("Y.npy")
        ...     return sf.SquaredLoss(X, Y)  # each rank reads a quarter of the rows
        >>> sf.distributed.run(main)  # and without torchrun
        Traceback (most recent call last):
        RuntimeError: there are no ranks to share the work; start the program with torchrun
    """
    global _current, _joined
    if _joined:  # the other ranks serve the outer one
        return program()
    with _met(heartbeat.limit()) as (group, signs):
        _joined = True
        try:
            if dist.get_rank() > 0:
                _serve(group, signs)
                return None
            before, _current = (
                _current,
                Team(dist.get_world_size(), group, signs) if dist.get_world_size() > 1 else None,
            )
            try:
                return program()
            finally:
                if _current is not None:
                    _current.dismiss()
                _current = before
        finally:
            _joined = False


@contextmanager
def _met(seconds: float | None) -> Iterator[tuple[dist.ProcessGroup, Heartbeat | None]]:
    """The group of all ranks, until the end of the context. A rank that is silent for so many seconds is lost: waiting for
    messages of the group ends."""
    group, signs = _meet(), None
    try:
        if seconds is not None and dist.get_world_size() > 1:
            signs = Heartbeat(dist.get_rank(), seconds)
            with _lost("before the program began"):
                addresses = [message.facts for message in gathered(Message(signs.address), group)]
            signs.listen(addresses)
        yield group, signs
    finally:
        with suppress(RuntimeError):  # a rank is gone
            dist.destroy_process_group(group)
        if signs is not None:
            signs.close()


def _meet() -> dist.ProcessGroup:
    """Meet the other ranks of the job, in a group of its own: that of a user may be of another backend, or of less patience."""
    first = not dist.is_initialized()
    if first and "RANK" not in os.environ:
        raise RuntimeError("there are no ranks to share the work; start the program with torchrun")
    advice = "start the program with torchrun; without a job of several processes, unset RANK and WORLD_SIZE"
    try:
        if first:  # and kept until the process ends: the same ranks cannot meet twice at one address
            dist.init_process_group("gloo", timeout=ARRIVAL)
        group = dist.new_group(backend="gloo", timeout=ARRIVAL)
    except ValueError as error:
        raise ValueError(f"RANK and WORLD_SIZE are set, but not as for a job ({error}); {advice}") from error
    except RuntimeError as error:
        raise RankLostError(
            f"not all ranks of the job came, or not within {ARRIVAL.seconds} s ({_reason(error)}); {advice}"
        ) from error
    assert isinstance(group, dist.ProcessGroup)
    return group


def gathered(message: Message, group: dist.ProcessGroup | None = None) -> list[Message]:
    """The messages of all ranks of a process group, in rank order; each of them calls this."""
    content = message.encode()
    size = dist.get_world_size(group)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([len(content)]), group)
    longest = max(int(length) for length in lengths)
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: len(content)] = content
    buffers = [torch.empty(longest, dtype=torch.uint8) for _ in range(size)]
    dist.all_gather(buffers, padded, group)
    return [Message.decode(buffer[: int(length)]) for buffer, length in zip(buffers, lengths, strict=True)]


def _serve(group: dist.ProcessGroup, signs: Heartbeat | None) -> None:
    """Work for rank 0 until it says that there is no more."""
    memory: Memory = {}
    # rank 0 decides when a run ends: it needs the other ranks until its checkpoint is written
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        sent: Sent = []
        while True:
            with _lost("before the program was done", signs, 0):
                request = _receive(0, group, signs)
                _done(sent, signs)
            job = request.facts["job"]
            try:
                answer = member(job)(Message(request.facts["facts"], request.tensors), memory)
                reply = Message({"facts": answer.facts}, answer.tensors).encode()
            except Exception as error:
                known = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in REFUSALS), None)
                text = str(error) if known else f"{type(error).__name__}: {error}"
                reply = Message({"error": known or type(error).__name__, "text": text}).encode()
            with _lost("before the program was done", signs, 0):
                sent = _send(reply, 0, group)
            if job == name_of(part):
                with suppress(RuntimeError):  # rank 0 did not wait
                    _done(sent, signs)
                return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def part(request: Message, memory: Memory) -> Message:
    """On a rank: nothing more; it leaves once its answer is sent."""
    return Message()


def name_of(member: Any) -> str:
    """What other ranks find a function or class at the top level of a module by."""
    return f"{member.__module__}:{member.__qualname__}"


def member(name: str) -> Any:
    """The function or class of ``PACKAGES`` with that name."""
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] not in PACKAGES:
        raise ValueError(f"{name} is not of {' or '.join(sorted(PACKAGES))}")
    return getattr(importlib.import_module(module), attribute)


@contextmanager
def alone() -> Iterator[None]:
    """Within the context there is no team."""
    global _current
    before, _current = _current, None
    try:
        yield
    finally:
        _current = before


Sent = list[dist.Work]
"""A message on its way; kept until it has arrived."""


def _send(content: Tensor, rank: int, group: dist.ProcessGroup | None) -> Sent:
    """A message as bytes. Nobody waits for its arrival before the answer comes, or the next request."""
    works = [dist.isend(part, rank, group) for part in (torch.tensor([len(content)]), content)]
    return [work for work in works if work is not None]  # none on a rank outside of the group


def _receive(rank: int, group: dist.ProcessGroup | None, signs: Heartbeat | None) -> Message:
    size = torch.zeros(1, dtype=torch.int64)
    _done([dist.irecv(size, rank, group)], signs)
    content = torch.empty(int(size), dtype=torch.uint8)
    _done([dist.irecv(content, rank, group)], signs)
    return Message.decode(content)


def _done(works: Sequence[dist.Work | None], signs: Heartbeat | None) -> None:
    """Wait for all of them."""
    for work in works:
        if work is not None:
            wait = partial(work.wait, PATIENCE)
            wait() if signs is None else signs.unless_lost(wait)


@contextmanager
def _lost(when: str, signs: Heartbeat | None = None, rank: int | None = None) -> Iterator[None]:
    """Within the context, a failed connection is a ``RankLostError`` that says when, and of which rank: the silent one, if that
    is why the connection was cut off."""
    try:
        yield
    except RuntimeError as error:
        rank, reason = (signs and signs.lost) or (rank, _reason(error))
        who = "a rank" if rank is None else f"rank {rank}"
        raise RankLostError(
            f"{who} of the job was lost {when} ({reason}); what was written before is kept: start the job again, a run "
            "with --resume"
        ) from error


def _reason(error: Exception) -> str:
    """What an error of ``torch.distributed`` says, in one line."""
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
