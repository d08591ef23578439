"""What ``surefoot list`` lists."""

from __future__ import annotations

from typing import Any

from .. import data as datasets
from .._core.plans import PLANS
from .._core.registry import SYSTEMS
from .._core.steps import StepRule
from .._core.system import Certifiable, Descendable, System
from .._data.formats import PATHS
from .commands import commands, modules, options_of, summary
from .errors import Exit
from .inspection import List
from .screen import Screen, print_json

GROUPS = ("certify", "train")
DATA_SETS = {
    "diabetes": "442 patients, 10 measurements each, one target: disease progression after a year",
    "digits": "1,797 images of handwritten digits, 8 × 8 pixels, 10 classes",
    "photos": "two colour photographs, for image problems (no table, so not for these networks)",
}


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
                "network": s.words.networks or summary(s.network).split(";")[0],
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
        "commands": _more(),
        "solvers": _solvers(),
        "step_rules": [
            {
                "name": rule.name,
                "step": summary(rule),
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
    known = commands()
    return [group for group in GROUPS if f"{group} {system.name}" in known]


def _more() -> list[dict[str, str]]:
    """Commands of ``certify`` and ``train`` that take another name than a system's."""
    systems = {system.name for system in SYSTEMS}
    return [
        {"name": f"surefoot {name}", "summary": summary(options_of(command))}
        for name, command in commands().items()
        if name.partition(" ")[0] in GROUPS and command.options and name.partition(" ")[2] not in systems
    ]


def _solvers() -> list[dict[str, Any]]:
    """Those that the modules of commands list: name, and kinds of problems."""
    return [solver for module in modules().values() for solver in getattr(module, "solvers", list)()]


def _rules() -> dict[type[StepRule], list[str]]:
    """Every step rule with the systems that have it; rules of one name may differ by system."""
    systems: dict[type[StepRule], list[str]] = {}
    for system in (s for s in SYSTEMS if isinstance(s, Descendable)):
        for rule in system.rules.values():
            systems.setdefault(rule, []).append(system.name)
    return systems
