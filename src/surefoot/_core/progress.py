"""One line that moves as work goes on: on a terminal, in a notebook, and nowhere else."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

Update = Callable[[int, float, float], None]
"""Called with iteration, gap, step."""
Seen = tuple[float, str]
"""The share that is done, from 0 to 1, and a text."""
Draw = Callable[[float, str], None]
"""Called with these two."""

INTERVAL = 0.1


@contextlib.contextmanager
def progress_line(enabled: bool, total: int, start_gap: float, target: float) -> Iterator[Update]:
    """A line with gap, step and time, on a terminal or in a notebook; silent elsewhere.

    The bar measures the way from the first gap to the target on a log scale, or the iterations, whichever is further.
    """
    way = math.log(start_gap / target) if start_gap > target > 0.0 else math.inf

    def seen(iteration: int, gap: float, step: float) -> Seen:
        done = math.log(start_gap / gap) / way if 0.0 < gap <= start_gap else 0.0
        share = min(1.0, max(done, iteration / total if total else 1.0))
        return share, f"iteration {iteration:,}  gap {gap:.3e}  step {step:.3e}"

    with _line(enabled, "training") as update:
        if update is None:
            yield lambda iteration, gap, step: None
        else:
            yield lambda iteration, gap, step: update(partial(seen, iteration, gap, step))


@contextlib.contextmanager
def counted_line(enabled: bool, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A line that says how many of ``total`` are done, as the context is told, on a terminal or in a notebook; silent
    elsewhere."""
    with _line(enabled, what) as update:
        if update is None:
            yield lambda done: None
        else:
            yield lambda done: update(lambda: (done / total if total else 1.0, f"{done}/{total}"))


@contextlib.contextmanager
def _line(enabled: bool, what: str) -> Iterator[Callable[[Callable[[], Seen]], None] | None]:
    """What a line called so is told: it asks for what it draws at most ten times a second, and at the end. ``None`` where nobody
    would see it."""
    notebook = enabled and _in_notebook()
    if not (notebook or (enabled and sys.stderr.isatty())):
        yield None
        return
    latest: Callable[[], Seen] | None = None
    last = -math.inf
    with (_in_cell if notebook else _on_terminal)(what) as draw:

        def update(seen: Callable[[], Seen]) -> None:
            nonlocal last, latest
            latest, now = seen, time.monotonic()
            if now - last >= INTERVAL:
                last = now
                draw(*seen())

        yield update
        if latest is not None:
            draw(*latest())


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. IPython is not imported for that: it is running then."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextlib.contextmanager
def _on_terminal(what: str) -> Iterator[Draw]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[detail]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False, refresh_per_second=10) as bar:
        task = bar.add_task(what, total=1.0, detail="")
        yield lambda share, text: bar.update(task, completed=share, detail=text)


@contextlib.contextmanager
def _in_cell(what: str) -> Iterator[Draw]:
    """One output of the cell, which is replaced."""
    from IPython.display import display

    start = time.monotonic()
    handle: Any = display(_Cell(what, 0.0, "", 0.0), display_id=True)
    yield lambda share, text: handle.update(_Cell(what, share, text, time.monotonic() - start))


@dataclass(frozen=True, repr=False)
class _Cell:
    """What a notebook shows: a bar, or a text where it shows no HTML."""

    what: str
    share: float
    text: str
    seconds: float

    def __repr__(self) -> str:
        minutes, seconds = divmod(int(self.seconds), 60)
        return f"{self.what} {self.share:.0%}  {self.text}  {minutes // 60}:{minutes % 60:02}:{seconds:02}"

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.share:.4f}" max="1" style="width:12em;vertical-align:middle"></progress>'
        return f'<div style="font-variant-numeric:tabular-nums;white-space:pre-wrap">{bar} {escape(repr(self))}</div>'
