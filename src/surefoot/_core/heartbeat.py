"""Signs of life between the ranks of a job: one that is stopped is given up, one that computes for hours is not.

Every rank has a TCPStore of its own, whose server answers in a C++ thread: while the rank computes, even in a C function that
never releases the interpreter's lock, but not while its process is stopped. Rank 0 asks all others, and they ask rank 0.
"""

from __future__ import annotations

import atexit
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage] (documented, but not in __all__)

VARIABLE = "SUREFOOT_RANK_TIMEOUT"
DEFAULT = 60.0
TICKS = 20
"""Questions within the limit. A rank is lost after 18 ticks without an answer: ticks, not seconds, so that a job that was stopped
as a whole, and goes on, has missed one."""
FAREWELL = 2.0
"""Seconds: how long a server stays for those who ask it, as torch prints a stack trace where one has gone."""


def limit() -> float | None:
    """Seconds without a sign of life after which a rank is lost; ``None``: never. From the environment."""
    text = os.environ.get(VARIABLE, str(DEFAULT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{VARIABLE} is {text!r}; give a number of seconds, or 0 to wait for silent ranks without end")
    return seconds or None


_Outcome = SimpleQueue[RuntimeError | None]
"""Where the end of waiting is told, with its error."""


@dataclass
class _Peer:
    """Another rank that this one asks.

    Attributes:
        host, port: of its server.
        signs: of life, so far.
        over: it is asked no more: its connection has closed, which the messages of the job notice by themselves.
        parted: its server was told that it is asked no more.
    """

    rank: int
    host: str
    port: int
    signs: int = 0
    over: bool = False
    parted: bool = False


class Heartbeat:
    """This rank's answers to others, and its questions.

    Attributes:
        address: of its server, for the others; plain values.
        lost: the rank that was given up, and why; ``None`` as long as there is none.

    Args:
        rank: of this process.
        seconds: limit of silence.
    """

    def __init__(self, rank: int, seconds: float) -> None:
        self._rank, self._seconds = rank, seconds
        self._server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self.address: Mapping[str, Any] = {"host": _host(rank), "port": self._server.port}
        self.lost: tuple[int, str] | None = None
        self._end = threading.Event()
        self._outcome: _Outcome = SimpleQueue()
        self._waits: SimpleQueue[tuple[Callable[[], object], _Outcome] | None] = SimpleQueue()
        self._peers: list[_Peer] = []
        self._threads: list[threading.Thread] = []

    def listen(self, addresses: Sequence[Mapping[str, Any]]) -> None:
        """Ask from now on; ``addresses`` are those of all ranks, in order."""
        asked = range(1, len(addresses)) if self._rank == 0 else [0]
        self._peers = [_Peer(rank, **addresses[rank]) for rank in asked]
        self._threads = [threading.Thread(target=self._ask, args=[peer], daemon=True) for peer in self._peers]
        others = [threading.Thread(target=work, daemon=True) for work in (self._count, self._wait)]
        for thread in [*self._threads, *others]:
            _started.add(thread)
            thread.start()

    def unless_lost(self, wait: Callable[[], object]) -> None:
        """Wait, in another thread: nothing wakes one that waits for a message of a stopped process.

        Raises:
            RuntimeError: what ``wait`` raises, or a rank is lost.
        """
        outcome: _Outcome = SimpleQueue()
        self._outcome = outcome
        if self.lost is not None:
            raise RuntimeError(self.lost[1])
        self._waits.put((wait, outcome))
        error = outcome.get()
        if error is not None:
            raise error

    def close(self) -> None:
        """Ask no more, and answer until the others ask no more; not those that do not part within ``FAREWELL``."""
        self._end.set()
        self._waits.put(None)
        end = time.monotonic() + FAREWELL
        for peer, thread in zip(self._peers, self._threads, strict=True):
            if self.lost is None or self.lost[0] != peer.rank:
                thread.join(max(0.0, end - time.monotonic()))
        parted = [_parting(peer.rank) for peer in self._peers if peer.parted]
        # looked up again and again: a wait that is in vain prints a warning
        while not self._server.check(parted) and time.monotonic() < end:
            time.sleep(0.01)

    def _ask(self, peer: _Peer) -> None:
        """Wait for each answer without end, as the calls of TCPStore do whatever their timeout; ``_count`` watches."""
        try:
            store = TCPStore(
                peer.host, peer.port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=self._seconds)
            )
            while True:
                store.add("signs", 1)
                peer.signs += 1
                if self._end.wait(self._seconds / TICKS):
                    break
            store.set(_parting(self._rank), "")
            peer.parted = True
        except RuntimeError:
            peer.over = peer.signs > 0

    def _wait(self) -> None:
        while (given := self._waits.get()) is not None:
            wait, outcome = given
            try:
                wait()
                outcome.put(None)
            except RuntimeError as error:
                outcome.put(error)

    def _count(self) -> None:
        """Give up the rank that is silent for too long."""
        seen: list[tuple[int, int]] = [(0, 0)] * len(self._peers)
        while not self._end.wait(self._seconds / TICKS):
            for i, peer in enumerate(self._peers):
                signs, missed = seen[i]
                seen[i] = (peer.signs, missed + 1 if peer.signs == signs else 0)
                if seen[i][1] >= TICKS - 2 and not peer.over:
                    where = f"{peer.host}:{peer.port}"
                    limit = f"{self._seconds:g} s, the limit that {VARIABLE} sets"
                    self.lost = (peer.rank, f"no sign of life from {where} for {limit}")
                    self._outcome.put(RuntimeError(self.lost[1]))
                    return


_started: WeakSet[threading.Thread] = WeakSet()
"""Those that have ended leave it by themselves."""


@atexit.register
def _let_threads_end() -> None:
    """Wait for threads whose call of torch is about to return: one that returns while the interpreter ends aborts the process.
    A call that waits for a stopped process does not return, and is not waited for longer."""
    end = time.monotonic() + FAREWELL
    for thread in list(_started):
        thread.join(max(0.0, end - time.monotonic()))


def _parting(rank: int) -> str:
    return f"parted/{rank}"


def _host(rank: int) -> str:
    """Where the other ranks reach this one: rank 0 at MASTER_ADDR, the others at their end of the way there."""
    master = os.environ.get("MASTER_ADDR")
    if master is None:  # a process group that the program has made in another way
        return socket.gethostname()
    if rank == 0:
        return master
    family, kind, protocol, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as way:
        way.connect(address)  # sends nothing
        return way.getsockname()[0]
