"""Its part of the tour."""

from pathlib import Path

from .._cli.screen import Screen, count, number
from .._cli.tour import NOTHING, Stop, Visit, checked, command, recorded
from .command import Train


def _visit(directory: Path, screen: Screen) -> Visit:
    options = Train(out=str(directory), problems=8, epochs=10, iterations=30, quiet=True, json=True)
    record = recorded(options)
    result, methods = record["result"], record["comparison"]["methods"]
    learned, plain = (
        next(row["fresh"]["gap"] for row in methods if row["learned"] == of_network and row["fresh"] is not None)
        for of_network in (True, False)
    )
    ran, reference = count(result["iterations"]), record["comparison"]["reference"]
    return Visit(
        guaranteed="no step raises an objective, whatever was learned",
        happened=f"gap {number(learned, 2)} on fresh problems after {ran} steps; {reference}: {number(plain, 2)}",
        audit="holds" if record["audit"]["holds"] else record["audit"]["verdict"],
        check=checked(directory) if result["certified"] else NOTHING,
        command=command(options),
        record={"theorem": record["certificate"]["theorem"], "iterations": result["iterations"]},
    )


STOPS = (
    Stop(
        name="step-sizes",
        title="A solver that has learned its step sizes",
        why="It is faster on problems like those that it has seen, and safe on all others.",
        visit=_visit,
    ),
)
