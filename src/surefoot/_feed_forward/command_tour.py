"""Its part of the tour: what it begins with."""

from .._cli.tour import Stop, descent
from .command import Train

STOPS = (
    Stop(
        name="feed-forward",
        title="A plain network of yours, trained by Adam",
        why="Does a theorem guarantee, for exactly these weights and data, that an exact fit is near and that descent reaches "
        "it? Ask along the training; then go there, audit, check.",
        visit=descent(lambda out: Train(out=out, samples=30, hidden="50,50")),
        first=True,
    ),
)
