"""Its part of the tour."""

from .._cli.tour import Stop, descent
from .command import Train

STOPS = (
    Stop(
        name="linear-resnet",
        title="A deep linear ResNet of ten layers, certified before its first step",
        why="Depth without luck: how far all layers may move together is known beforehand, and tightened on the way.",
        visit=descent(lambda out: Train(out=out)),
    ),
)
