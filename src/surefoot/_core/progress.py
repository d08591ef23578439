"""One progress line on a terminal."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

Update = Callable[[int, float, float], None]
"""Called with iteration, gap, step."""

INTERVAL = 0.1


@contextlib.contextmanager
def progress_line(enabled: bool, total: int, start_gap: float, target: float) -> Iterator[Update]:
    """A line with gap, step and time, updated at most ten times a second; silent where stderr is not a terminal.

    The bar measures the way from the first gap to the target on a log scale, or the iterations, whichever is further.
    """
    if not enabled or not sys.stderr.isatty():
        yield lambda iteration, gap, step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[detail]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False, refresh_per_second=10) as bar:
        task = bar.add_task("training", total=1.0, detail="")
        way = math.log(start_gap / target) if start_gap > target > 0.0 else math.inf
        last = 0.0

        latest: tuple[int, float, float] | None = None

        def update(iteration: int, gap: float, step: float) -> None:
            nonlocal last, latest
            latest = iteration, gap, step
            now = time.monotonic()
            if now - last >= INTERVAL:
                last = now
                draw(iteration, gap, step)

        def draw(iteration: int, gap: float, step: float) -> None:
            done = math.log(start_gap / gap) / way if 0.0 < gap <= start_gap else 0.0
            bar.update(
                task,
                completed=min(1.0, max(done, iteration / total if total else 1.0)),
                detail=f"iteration {iteration:,}  gap {gap:.3e}  step {step:.3e}",
            )

        yield update
        if latest is not None:
            draw(*latest)


@contextlib.contextmanager
def counted_line(enabled: bool, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A line that says how many of ``total`` are done, as the context is told; silent where stderr is not a terminal."""
    if not enabled or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
