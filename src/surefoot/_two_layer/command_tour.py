"""Its part of the tour."""

from .._cli.tour import Stop, descent
from .command import Train

STOPS = (
    Stop(
        name="two-layer",
        title="A two-layer linear network, certified before its first step",
        why="From certifiable weights, with steps that are fixed before training: what is guaranteed is what is taken.",
        visit=descent(
            lambda out: Train(out=out, start="certifiable", moved=0.01, theorem="two-layer/prescribed"),
        ),
    ),
)
