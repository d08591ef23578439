"""How many changed run directories the tests make: ``python tests/support/counts.py``.

By hand, for the runs of a system; by the generator of changes, and by that of additions, from two small runs of each system.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from adding import Runs
from additions import IGNORED, JUDGED, REFUSED, sparse
from every_system import KINDS, thin
from good_runs import SYSTEMS
from hand_made import CORPORA, two_layer
from tamper import StoredRun


def by_hand() -> dict[str, int]:
    """Changes of the runs of a system, each with what is wrong in its name."""
    others = {system: sum(map(len, corpus.CASES.values())) for system, corpus in CORPORA.items()}
    return {"two-layer": len(two_layer.CASES), **others}


def by_generators(runs: Mapping[str, tuple[StoredRun, StoredRun]]) -> tuple[dict[str, int], dict[str, int]]:
    """Changes and additions, by system; of two runs of each, in memory."""
    few = {system: (sparse(first), sparse(second)) for system, (first, second) in runs.items()}
    firsts = {system: first for system, (first, _) in few.items()}
    changes, additions = {}, {}
    for system, (run, other) in runs.items():
        made = thin(run), thin(other)
        changes[system] = sum(1 for kind in KINDS.values() for _ in kind(system, *made))
        families = (REFUSED | JUDGED | IGNORED).values()
        additions[system] = sum(1 for family in families for _ in family(system, Runs(*few[system], firsts)))
    return changes, additions


def two_of_each(folder: Path) -> dict[str, tuple[StoredRun, StoredRun]]:
    """Two small runs of each system, made in this folder."""
    made = {}
    for system, make in SYSTEMS.items():
        for seed in (0, 1):
            make(folder / f"{system} {seed}", seed)
        made[system] = tuple(StoredRun.read(folder / f"{system} {seed}") for seed in (0, 1))
    return made


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        changes, additions = by_generators(two_of_each(Path(place)))
    hand = by_hand()
    print(f"{'system':16}{'by hand':>10}{'changes':>10}{'additions':>11}")
    for name in SYSTEMS:
        print(f"{name:16}{hand.get(name, 0):>10,}{changes[name]:>10,}{additions[name]:>11,}")
    print(
        f"{'all':16}{sum(hand.values()):>10,}{sum(changes.values()):>10,}{sum(additions.values()):>11,}",
        file=sys.stdout,
    )
