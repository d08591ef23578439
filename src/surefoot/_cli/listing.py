"""The command ``list``."""

from __future__ import annotations

import inspect
import re
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .. import data as datasets
from .._core.plans import PLANS
from .._core.registry import SYSTEMS
from .._core.steps import StepRule
from .._core.system import Certifiable, Descendable, System
from .._data.formats import PATHS
from .errors import Exit
from .options import Json
from .screen import Screen, print_json

DATA_SETS = {
    "diabetes": "442 patients, 10 measurements each, one target: disease progression after a year",
    "digits": "1,797 images of handwritten digits, 8 × 8 pixels, 10 classes",
    "photos": "two colour photographs, for image problems (no table, so not for these networks)",
}


@dataclass(frozen=True, kw_only=True)
class List:
    """List systems, theorems, step rules, data sets and experiments."""

    json: Json = False

    def run(self, held: ExitStack) -> int:
        return run_list(self)


def run_list(options: List) -> int:
    """``surefoot list``."""
    if options.json:
        print_json(_everything())
        return Exit.YES
    import surefoot_experiments

    screen = Screen()
    index = _everything()
    screen.heading("Systems", "surefoot certify SYSTEM, surefoot train SYSTEM")
    rows = [(s["name"], s["network"], ", ".join(s["commands"]) or "none") for s in index["systems"]]
    screen.table(("name", "network", "commands"), rows)
    screen.heading("Theorems", "--theorem NAME")
    rows = [(t["name"], t["statement"], t["default_rule"] if t["provable"] else "none") for t in index["theorems"]]
    screen.table(("name", "statement", "default rule"), rows)
    screen.heading("Commands of their own", "surefoot COMMAND --help")
    screen.table(("command", "what it does"), [(c["name"], c["summary"]) for c in index["commands"]])
    screen.heading("Solvers", "surefoot certify holdout --solver NAME, or FILE of a trained network")
    screen.table(("name", "problems"), [(s["name"], ", ".join(s["problems"])) for s in index["solvers"]])
    screen.heading("Step rules", "--steps RULE, or --steps NUMBER for a constant step")
    screen.table(
        ("name", "step", "systems", "certified by"),
        [(r["name"], r["step"], "\n".join(r["systems"]), "\n".join(r["certified_by"])) for r in index["step_rules"]],
    )
    screen.heading("Data sets", "--data NAME")
    screen.table(("name", "contents"), [(d["name"], d["contents"]) for d in index["data_sets"]])
    screen.say(f"  also any path: {PATHS}", style="dim")
    screen.heading("Experiments", "surefoot reproduce PAPER/FIGURE")
    shared = dict.fromkeys(surefoot_experiments.shared(), "shared")
    screen.table(("name", "several ranks"), [(name, shared.get(name, "one works")) for name in index["experiments"]])
    return Exit.YES


def _everything() -> dict[str, Any]:
    import surefoot_experiments

    return {
        "systems": [
            {
                "name": s.name,
                "network": s.words.networks or _summary(s.network).split(";")[0],
                "default_theorem": s.default_theorem,
                "commands": _commands(s),
            }
            for s in SYSTEMS
            if isinstance(s, Certifiable)
        ],
        "theorems": [
            {
                "name": t.id,
                "statement": t.statement,
                "reference": t.reference,
                "provable": t.provable,
                "default_rule": t.rule,
            }
            for t in (plan.theorem for plan in PLANS.values())
        ],
        "commands": [command for s in SYSTEMS for command in _more(s)],
        "solvers": [solver for s in SYSTEMS for solver in _solvers(s)],
        "step_rules": [
            {
                "name": rule.name,
                "step": _summary(rule),
                "systems": systems,
                "certified_by": sorted(rule.certified_by),
            }
            for rule, systems in _rules().items()
        ],
        "data_sets": [{"name": name, "contents": DATA_SETS[name]} for name in datasets.names()],
        "experiments": list(surefoot_experiments.names()),
    }


def _commands(system: System) -> list[str]:
    """Those of ``certify`` and ``train`` that take the system's name."""
    module = None if system.command is None else import_module(system.command)
    return [name.lower() for name in ("Certify", "Train") if hasattr(module, name)]


def _more(system: System) -> list[dict[str, str]]:
    """Commands beside those of the systems that the module of its commands adds."""
    module = None if system.command is None else import_module(system.command)
    return [
        {"name": f"surefoot {group} {name}", "summary": _summary(command)}
        for group in ("certify", "train")
        for name, command in getattr(module, f"MORE_{group.upper()}", {}).items()
    ]


def _solvers(system: System) -> list[dict[str, Any]]:
    """Those that the module of its commands lists: name, and kinds of problems."""
    module = None if system.command is None else import_module(system.command)
    return getattr(module, "solvers", list)()


def _rules() -> dict[type[StepRule], list[str]]:
    """Every step rule with the systems that have it; rules of one name may differ by system."""
    systems: dict[type[StepRule], list[str]] = {}
    for system in (s for s in SYSTEMS if isinstance(s, Descendable)):
        for rule in system.rules.values():
            systems.setdefault(rule, []).append(system.name)
    return systems


def _summary(described: type) -> str:
    """The first sentence of a class's own docstring."""
    first = inspect.cleandoc(described.__doc__ or "").split("\n\n")[0].replace("``", "")
    return re.split(r"\.(?:$|\s+(?=[A-Z]))", " ".join(first.split()), maxsplit=1)[0]
