"""Its part of the tour."""

from .._cli.tour import Stop, descent
from .command import Train

STOPS = (
    Stop(
        name="implicit",
        title="An infinite-depth ReLU network, whose scale is chosen so that its training is certified",
        why="Its output is a fixed point: the theorem also keeps it in existence along the training.",
        visit=descent(lambda out: Train(out=out, classes="0,1", samples=20, width=80)),
    ),
)
