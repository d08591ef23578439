"""What ``train layers`` does."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surefoot_check.text import counted

from .._cli.errors import Exit
from .._cli.screen import Screen, print_json
from .._cli.training import SETTINGS
from .._core.io import refuse_used, write_json
from .._learning.run import TrainStatus
from .._step_sizes.command_comparison import comparison_record, show_comparison
from .._step_sizes.command_problems import pair
from .._step_sizes.compare import Comparison
from .command import Layers
from .report import write as write_report
from .run import LayersRun
from .training import train_layers


def run_layers(options: Layers) -> int:
    """``surefoot train layers``."""
    screen, directory = Screen(silent=options.json or options.quiet), Path(options.out)
    refuse_used(directory)
    problems, fresh = options.draw(options.seed), options.draw(options.seed + 1)
    facts = {**options.described(problems), "seed": options.seed}
    screen.heading("Problem", f"{facts['data']}, seed {options.seed}")
    start = time.monotonic()
    run = train_layers(
        problems,
        options.layers,
        range=pair(options.range),
        sectors=options.sectors,
        steps=options.steps,
        objective=options.objective,
        tolerance=options.tolerance,
    )
    seconds = time.monotonic() - start
    run.save(directory)
    write_json(directory / SETTINGS, {"system": options.system, "options": asdict(options)})
    screen.heading("Training", f"{run.status}: {run.trained} of {counted(run.layers, 'layer')} in {seconds:.2f} s")
    head, *rows = run.rows()
    screen.table(head, rows, numeric=range(len(head) - 1))
    for line in run.conclusion:
        screen.say(f"  {line}")
    comparison = None
    if run.status is TrainStatus.FINISHED:
        comparison = show_comparison(screen, directory, problems, run.layers, run.net, fresh)
    report = write_report(directory)
    if options.json:
        print_json(_record(options, facts, run, seconds, comparison, report))
    elif options.quiet:
        print(f"{options.out}: training {run.status}, {run}")
    place = shlex.quote(options.out)
    screen.following(f"open {report}", {f"surefoot check {place}": "prove gaps and objectives, independently"})
    return Exit.CTRL_C if run.status is TrainStatus.INTERRUPTED else Exit.YES


def _record(
    options: Layers,
    facts: dict[str, Any],
    run: LayersRun,
    seconds: float,
    comparison: Comparison | None,
    report: Path,
) -> dict[str, Any]:
    """For JSON."""
    return {
        "directory": options.out,
        "problem": facts,
        "status": run.status.value,
        "layers": run.layers,
        "trained": run.trained,
        "seconds": seconds,
        "objectives": list(run.objectives),
        "values": list(run.values),
        "lower": list(run.lower),
        "gaps": list(run.gaps),
        "schedule": run.schedule.tolist(),
        "scheduled": run.scheduled,
        "constant": run.constant,
        "step": run.step,
        "not_worse": run.not_worse,
        "comparison": None if comparison is None else comparison_record(comparison),
        "report": str(report),
    }
