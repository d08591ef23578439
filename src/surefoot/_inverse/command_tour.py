"""Its part of the tour."""

import math
from pathlib import Path

from .._cli.screen import Screen, number
from .._cli.tour import NOTHING, Stop, Visit, checked, command, recorded
from .command import Train
from .command_run import CERTIFICATE


def _visit(directory: Path, screen: Screen) -> Visit:
    options = Train(out=str(directory), size="20x30", count=50, layers=3, epochs=300, quiet=True, json=True)
    record = recorded(options)
    low, high = record["network"]["interval"]
    errors, within = record["test_error"], record["test_error_in_interval"]
    condition = number(math.sqrt(high / low), 2, "down")
    return Visit(
        guaranteed=f"an error ‖AA⁺ − AX‖ of {number(record['layers'][-1], 2, 'up')} at most, up to a condition number of "
        f"{condition}",
        happened=f"{number(within, 2, 'up')} on unseen matrices up to it ({record['test_matrices_in_interval']:.0%}), "
        f"{number(errors['trained'], 2, 'up')} on all; by hyperpower steps {number(errors['ones'], 2, 'up')}",
        check=checked(directory / CERTIFICATE) if record["certificate"]["holds"] else NOTHING,
        command=command(options),
        record={"theorem": record["certificate"]["theorem"], "layers": record["layers"], "error": within},
    )


STOPS = (
    Stop(
        name="inverse",
        title="A matrix inverse by products alone, with trained coefficients",
        why="Products are what accelerators do best. Of all matrices of a kind, whatever they are, the worst error is proved.",
        visit=_visit,
    ),
)
