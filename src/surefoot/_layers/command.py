"""The command ``train layers``: a network for learned steps whose training comes with a guarantee."""

from __future__ import annotations

import shlex
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from tyro.conf import arg

from surefoot_check.text import counted

from .._cli.errors import Exit
from .._cli.options import Json, Quiet
from .._cli.screen import Screen, print_json
from .._cli.training import SETTINGS, refuse_existing
from .._core.io import write_json
from .._learning.run import TrainStatus
from .._step_sizes.command_comparison import comparison_record, show_comparison
from .._step_sizes.command_problems import RandomProblems, pair
from .._step_sizes.compare import Comparison
from .report import write as write_report
from .run import LayersRun
from .training import Objective, train_layers


@dataclass(frozen=True, kw_only=True)
class Layers(RandomProblems):
    """Train layers one after the other, each to a certified gap: proved on the training problems, and not only measured.

    Deterministic and done in seconds to minutes, so that there is no --resume: after a signal the layers that were not trained
    are those of the schedule that training starts from, and what is proved still holds.

    Exit code: 0 done, 130 after Ctrl-C, SIGTERM or SIGHUP (once the first layer is reached, all keep a whole network)."""

    system: ClassVar[str] = "layers"
    resume: ClassVar[bool] = False

    out: Annotated[str, arg(metavar="DIR", help="Directory to write: new, or empty.")]
    layers: Annotated[int, arg(metavar="INT")] = 10
    """Layers, each one iteration of the solver."""
    range: Annotated[
        str,
        arg(metavar="LO,HI", help="Steps lie between LO/β and HI/β; up to 2 no layer ever raises an objective."),
    ] = "0,2"
    sectors: Annotated[
        int, arg(metavar="INT", help="Sectors of the plane of a coordinate and its gradient; each has a step.")
    ] = 4
    steps: Annotated[
        int | None,
        arg(metavar="INT", help="Steps in the grid.", help_behavior_hint="(default: 2 with least-squares, else 9)"),
    ] = None
    objective: Annotated[
        Objective,
        arg(help="What a layer is trained for: the objective after all of them, or after the layer itself."),
    ] = "last"
    tolerance: Annotated[float, arg(metavar="FLOAT")] = 1e-6
    """Duality gap, relative to F - F*, with which a layer stays a constant step."""
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of the problems; the next one is that of fresh problems."""
    quiet: Quiet = False
    json: Json = False

    def run(self, held: ExitStack) -> int:
        return _run(self)


def _run(options: Layers) -> int:
    """``surefoot train layers``."""
    screen, directory = Screen(silent=options.json or options.quiet), Path(options.out)
    refuse_existing(directory, "choose another with --out")
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
