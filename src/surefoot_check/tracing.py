"""A theorem as data: the arithmetic of one certificate as a graph, which other programs can evaluate (docs/checker.md).

The theorem's own code runs, on balls that remember how they were computed. Where it compares them, what is found certain is a
choice of the graph, and to be verified like an obligation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from .arrays import FormatError
from .checker import PRECISION
from .rigor.balls import ball
from .run_files import CERTIFICATE, Certificate
from .statement import Inequality, Relation, Segment, Theorem
from .system import System

FORMAT = "surefoot-obligations/1"
METHODS = {"+": "__add__", "-": "__sub__", "*": "__mul__", "/": "__truediv__", "power": "__pow__", "neg": "__neg__"}
"""What computes on balls those operations of a graph that are no method there by the same name."""


def _operation(name: str, reflected: bool = False) -> Callable[..., Traced]:
    return lambda self, *others: self.graph.apply(name, *((*others, self) if reflected else (self, *others)))


def _comparison(relation: Relation) -> Callable[..., bool]:
    return lambda self, other: self.graph.choose(Inequality("", self, relation, other))


def _reading(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *others: function(self.plain(), *others)


class Traced:
    """A node of a graph and its value. An input may be read as a plain number, and then is fixed; what is computed may not."""

    def __init__(self, graph: Graph, index: int, value: Any, name: str = "") -> None:
        self.graph, self.index, self.value, self.name = graph, index, value, name

    __add__, __radd__ = _operation("+"), _operation("+", reflected=True)
    __sub__, __rsub__ = _operation("-"), _operation("-", reflected=True)
    __mul__, __rmul__ = _operation("*"), _operation("*", reflected=True)
    __truediv__, __rtruediv__ = _operation("/"), _operation("/", reflected=True)
    __pow__, __neg__, max, min = map(_operation, ("power", "neg", "max", "min"))
    sqrt, exp, expm1, log, log1p = map(_operation, ("sqrt", "exp", "expm1", "log", "log1p"))
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("<", "<=", ">", ">="))
    __eq__, __float__, __int__, __bool__ = map(_reading, (operator.eq, float, int, bool))

    def plain(self) -> float:
        """The number that an input is."""
        if not self.name:
            raise TypeError("a theorem reads what it computes as a plain number; it must use surefoot_check.numbers")
        self.graph.inputs[self.name]["fixed"] = True
        return self.graph.inputs[self.name]["value"]


class Graph:
    """Nodes in the order in which they were computed, each once; inputs by their names; comparisons that were certain."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[Any, ...], int] = {}
        self.inputs: dict[str, dict[str, Any]] = {}
        self.choices: dict[tuple[int, Relation, int], None] = {}

    def input(self, name: str, value: float, **facts: str) -> Traced:
        """A published number, or a size."""
        self.inputs[name] = {**facts, "value": value, "fixed": False}
        return Traced(self, self._index("input", name), ball(value), name)

    def number(self, x: Any) -> Traced:
        """A plain number as a constant; one that is traced as it is."""
        return x if isinstance(x, Traced) else Traced(self, self._index("constant", exact(x)), ball(x))

    def apply(self, name: str, *arguments: Any) -> Traced:
        """An operation on traced and plain numbers."""
        first, *others = nodes = [self.number(x) for x in arguments]
        value = getattr(first.value, METHODS.get(name, name))(*(node.value for node in others))
        return Traced(self, self._index(name, *(node.index for node in nodes)), value)

    def choose(self, inequality: Inequality) -> bool:
        """Whether it is certain. That, or that its opposite is, is a choice; what cannot be decided is none."""
        left, right = self.number(inequality.left), self.number(inequality.right)
        values = Inequality("", left.value, inequality.relation, right.value)
        for each in (values, values.opposite):
            if each.certain:
                self.choices[left.index, each.relation, right.index] = None
        return values.certain

    def records(self, inequalities: Iterable[Inequality]) -> list[dict[str, Any]]:
        """Inequalities as data."""
        sides = [(x, self.number(x.left).index, self.number(x.right).index) for x in inequalities]
        return [{"name": x.name, "left": left, "relation": x.relation, "right": right} for x, left, right in sides]

    def _index(self, *node: Any) -> int:
        return self.nodes.setdefault(node, len(self.nodes))


def exact(x: float) -> str | int:
    """An integer as it is, any other number in hexadecimal."""
    return int(x) if isinstance(x, int) else x.hex()


def graph_of(path: Path, systems: Mapping[str, System]) -> dict[str, Any]:
    """The graph of a certificate file, or of the first certificate in a directory. Nothing is checked against arrays.

    Raises:
        OSError: there is no such file.
        FormatError: the file is malformed or claims nothing, or its numbers do not satisfy the theorem's conditions.
    """
    import flint

    certificate = Certificate.read(path / CERTIFICATE if path.is_dir() else path, systems)
    try:
        with flint.ctx.workprec(PRECISION):
            return _traced(certificate, certificate.theorem, Graph())
    except (LookupError, ArithmeticError) as error:
        what = f"{certificate.theorem.id} cannot be evaluated with its quantities and sizes"
        raise FormatError(f"{certificate.name}: {what} ({error!r})") from error


def _traced(certificate: Certificate, theorem: Theorem, graph: Graph) -> dict[str, Any]:
    published, sizes, system = certificate.quantities, certificate.sizes, certificate.system
    q = {name: graph.input(name, x, kind="size") for name, x in sizes.items() if isinstance(x, int)}
    for name in (x for x in theorem.base if x in published or x not in system.optional):
        q[name] = graph.input(name, published[name], kind="base", direction=system.directions[name])
    q |= {name: graph.input(name, published[name], kind="choice") for name in theorem.chosen(published)}
    schedule: list[Segment] = []
    for index, segment in enumerate(certificate.schedule):
        numbers = {name: x for name, x in vars(segment).items() if x is not None}
        traced = {name: graph.input(f"segment[{index}].{name}", x, kind="segment") for name, x in numbers.items()}
        schedule.append(Segment(**{"count": None, **traced}))
    derived, conditions = theorem.derived(q), theorem.conditions(q)
    for condition in conditions:
        if not condition.certain:
            raise FormatError(f"{certificate.name}: {condition.name!r} is not certain, and so nothing follows")
    return {
        "format": FORMAT,
        "theorem": theorem.id,
        "theorem_version": theorem.version,
        "derived": {k: {"node": graph.number(x).index, "published": exact(published[k])} for k, x in derived.items()},
        "conditions": graph.records(conditions),
        "obligations": graph.records(theorem.obligations(q, schedule)),
        "choices": [{"left": left, "relation": relation, "right": right} for left, relation, right in graph.choices],
        "inputs": {name: {**entry, "value": exact(entry["value"])} for name, entry in graph.inputs.items()},
        "nodes": [list(node) for node in graph.nodes],
    }
