"""The commands, as dataclasses from which the parser and the help texts are made."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, make_dataclass
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Literal, Union

from tyro.conf import Positional, UseAppendAction, arg, subcommand

from .options import Flag, Json, Runnable, TrainOptions

COMMANDS = {
    "two-layer": "surefoot._two_layer.command",
    "linear-resnet": "surefoot._linear_resnet.command",
    "implicit": "surefoot._implicit.command",
    "step-sizes": "surefoot._step_sizes.command",
    "inverse": "surefoot._inverse.command",
    "svd": "surefoot._orthogonal.command",
    "deconvolution": "surefoot._deconvolution.command",
}
RunDirectory = Annotated[Positional[str], arg(metavar="DIR", help="Directory of a run.")]
ProblemFile = Annotated[
    str | None,
    arg(
        metavar="FILE",
        help="Arrays of a problem of more than 256 MiB, which its run does not hold, as `surefoot train --keep-problem FILE` or "
        "Run.save_problem wrote them.",
        help_behavior_hint="(default: those in DIR)",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Certify:
    """Evaluate a convergence theorem on your data and initial weights, before training."""

    system: Runnable

    def run(self, held: ExitStack) -> int:
        return self.system.run(held)


@dataclass(frozen=True, kw_only=True)
class Train:
    """Certify, train, audit, and write a run directory with a report."""

    system: TrainOptions

    def run(self, held: ExitStack) -> int:
        return self.system.run(held)


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check the certificates and checkpoints of a run, independently and rigorously.

    Exit code: 0 accept, 1 reject, 3 undecided."""

    directory: RunDirectory
    level: Annotated[
        Literal["fast", "exact"],
        arg(
            help="fast trusts numpy's matrix products within their a-priori error bounds; exact trusts integers instead, "
            "and takes some twenty times as long."
        ),
    ] = "fast"
    replay: Flag = False
    """Also replay exact gradient descent of a linear network, rigorously, and compare the stored weights (claim L3)."""
    time_limit: float | None = None
    """Seconds after which what is not decided is undecided."""
    system: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(
            metavar="MODULE",
            help="Also check runs of the SYSTEM of this module, whose code is then run; may be given again.",
            help_behavior_hint="",
        ),
    ] = ()
    data: ProblemFile = None
    json: Json = False

    def run(self, held: ExitStack) -> int:
        from .inspection import run_check

        return run_check(self)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write report.html and PNG plots of a run into its directory."""

    directory: RunDirectory
    data: ProblemFile = None

    def run(self, held: ExitStack) -> int:
        from .inspection import run_report

        return run_report(self)


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Reproduce a figure or table of a paper: our numbers beside the paper's."""

    name: Annotated[Positional[str], arg(metavar="PAPER/FIGURE")]
    """Experiment; `surefoot list` names them."""
    full: Flag = False
    """The paper's sizes and repeats, which takes longer, instead of a quick version."""
    out: Annotated[str | None, arg(metavar="DIR", help_behavior_hint="(default: print only)")] = None
    """Directory for numbers and plots: new, empty, or of the same experiment, whose finished runs are then kept."""
    data: Annotated[
        str | None,
        arg(
            metavar="DIR",
            help="Directory with the image files of the implicit and deconvolution experiments.",
            help_behavior_hint="(default: bundled data)",
        ),
    ] = None
    weights: Annotated[
        str | None,
        arg(
            metavar="FILE",
            help="A network for deconvolution/table4, as net.safetensors of `surefoot train deconvolution`.",
            help_behavior_hint="(default: trained briefly)",
        ),
    ] = None
    seed: Annotated[int, arg(metavar="INT")] = 0
    """Seed of the random data and weights."""
    json: Json = False

    def run(self, held: ExitStack) -> int:
        from .inspection import run_reproduce

        return run_reproduce(self)


@dataclass(frozen=True, kw_only=True)
class List:
    """List systems, theorems, step rules, data sets and experiments."""

    json: Json = False

    def run(self, held: ExitStack) -> int:
        from .listing import run_list

        return run_list(self)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Start here: certify, train, audit, report and check on real data, in under a minute."""

    out: Annotated[
        str | None, arg(metavar="DIR", help_behavior_hint="(default: surefoot-demo, or the next free surefoot-demo-N)")
    ] = None
    """Directory for the runs: new, or empty."""
    json: Json = False

    def run(self, held: ExitStack) -> int:
        from .demo import run_demo

        return run_demo(self)


def modules() -> dict[str, ModuleType]:
    """The module of each system's commands, by the system's name."""
    return {name: import_module(place) for name, place in COMMANDS.items()}


def command() -> Any:
    """The union of all commands, from which the parser is made."""
    of_systems = modules()
    extra = {name: kind for module in of_systems.values() for name, kind in getattr(module, "MORE", {}).items()}
    kinds = {
        "demo": Demo,
        "certify": _by_system(Certify, of_systems),
        "train": _by_system(Train, of_systems),
        "check": Check,
        "report": Report,
        **extra,
        "reproduce": Reproduce,
        "list": List,
    }
    descriptions = {"check": "Check a run, independently and rigorously."}
    return _union({name: (kind, descriptions.get(name)) for name, kind in kinds.items()})


def _by_system(kind: type, of_systems: Mapping[str, ModuleType]) -> type:
    """The command whose ``system`` is one of those that have it."""
    forms = {
        name: (getattr(module, kind.__name__), None)
        for name, module in of_systems.items()
        if hasattr(module, kind.__name__)
    }
    made = make_dataclass(kind.__name__, [("system", _union(forms))], bases=(kind,), frozen=True, kw_only=True)
    made.__doc__ = kind.__doc__
    return made


def _union(kinds: Mapping[str, tuple[type, str | None]]) -> Any:
    members = [
        Annotated[kind, subcommand(name, description=description)] for name, (kind, description) in kinds.items()
    ]
    return Union[tuple(members)]  # noqa: UP007 - made of a list
