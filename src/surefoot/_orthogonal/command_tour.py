"""Its part of the tour."""

from pathlib import Path

from .._cli.screen import Screen, number
from .._cli.tour import Stop, Visit, command, recorded
from .command import Train


def _visit(directory: Path, screen: Screen) -> Visit:
    options = Train(out=str(directory), size="10x15", count=30, epochs=20, quiet=True, json=True)
    compared = recorded(options)["comparison"]
    trained, exact = (compared[name]["values"] for name in ("trained D-SVD", "torch.linalg.svd"))
    return Visit(
        guaranteed="nothing: no theorem speaks of it",
        happened=f"singular values off by {number(trained, 2)}; torch.linalg.svd: {number(exact, 2)}",
        command=command(options),
        record={"values": trained},
    )


STOPS = (
    Stop(
        name="svd",
        title="The learned SVD of a paper, for comparison",
        why="Not everything that is learned is worth it, and it is said: for use there is sf.linalg.svd, with safe gradients.",
        visit=_visit,
    ),
)
