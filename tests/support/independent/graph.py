"""The graphs of ``surefoot-check --obligations``, evaluated on mpmath's intervals, and differentiated.

Everything here follows from docs/checker.md alone; nothing is known of theorems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mpmath import iv, mp, mpf

Graph = Mapping[str, Any]
PRECISION = 240
"""Bits: exp(x) - 1 and log(1 + x) lose some here, which the checker's functions do not."""


def _power(x: Any, y: Any) -> Any:
    """x to an integer power, as all powers are."""
    assert y.a == y.b == int(mpf(y.a))
    return x ** int(mpf(y.a))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "neg": lambda x: -x,
    "power": _power,
    "max": lambda x, y: iv.mpf([max(x.a, y.a), max(x.b, y.b)]),
    "min": lambda x, y: iv.mpf([min(x.a, y.a), min(x.b, y.b)]),
    "sqrt": iv.sqrt,
    "exp": iv.exp,
    "expm1": lambda x: iv.exp(x) - 1,
    "log": iv.log,
    "log1p": lambda x: iv.log(1 + x),
}


def number(value: str | int) -> Any:
    """An exact number of the format."""
    return iv.mpf(value if isinstance(value, int) else float.fromhex(value))


def evaluate(graph: Graph, changed: Mapping[str, float] | None = None) -> list[Any]:
    """The interval of every node, with some inputs changed."""
    iv.prec = PRECISION
    inputs = {name: number(entry["value"]) for name, entry in graph["inputs"].items()}
    inputs |= {name: iv.mpf(value) for name, value in (changed or {}).items()}
    values: list[Any] = []
    for operation, *arguments in graph["nodes"]:
        if operation == "input":
            values.append(inputs[arguments[0]])
        elif operation == "constant":
            values.append(number(arguments[0]))
        else:
            try:
                values.append(OPERATIONS[operation](*(values[index] for index in arguments)))
            except ValueError:  # of no real number: then nothing is known
                values.append(iv.mpf(["-inf", "inf"]))
    return values


def holds(inequality: Mapping[str, Any], values: list[Any]) -> bool:
    """Whether an inequality certainly holds."""
    left, right = values[inequality["left"]], values[inequality["right"]]
    match inequality["relation"]:
        case "<":
            return bool(left.b < right.a)
        case "<=":
            return bool(left.b <= right.a)
        case ">":
            return bool(left.a > right.b)
        case ">=":
            return bool(left.a >= right.b)
    raise ValueError(f"relation {inequality['relation']!r}")


def _partials(operation: str, value: Any, x: Any, y: Any = None) -> tuple[Any, ...]:
    """The derivatives of an operation by its arguments; of a maximum or minimum, by the one that is taken."""
    match operation:
        case "+":
            return 1, 1
        case "-":
            return 1, -1
        case "*":
            return y, x
        case "/":
            return 1 / y, -value / y
        case "power":
            return y * value / x, 0
        case "max":
            return (1, 0) if x >= y else (0, 1)
        case "min":
            return (1, 0) if x <= y else (0, 1)
        case "neg":
            return (-1,)
        case "sqrt":
            return (1 / (2 * value),)
        case "exp":
            return (value,)
        case "expm1":
            return (value + 1,)
        case "log":
            return (1 / x,)
        case "log1p":
            return (1 / (1 + x),)
    raise ValueError(f"operation {operation!r}")


def derivatives(graph: Graph, names: list[str]) -> list[dict[str, Any]]:
    """Of every node, the derivatives by these inputs that are not 0, at the values of the graph."""
    values = [mpf(x.mid) for x in evaluate(graph)]
    with mp.workprec(PRECISION):
        return _derivatives(graph, names, values)


def _derivatives(graph: Graph, names: list[str], values: list[Any]) -> list[dict[str, Any]]:
    gradients: list[dict[str, Any]] = []
    for node, (operation, *arguments) in enumerate(graph["nodes"]):
        total: dict[str, Any] = {}
        if operation == "input" and arguments[0] in names:
            total = {arguments[0]: mpf(1)}
        elif operation not in ("input", "constant") and any(gradients[index] for index in arguments):
            partials = _partials(operation, values[node], *(values[index] for index in arguments))
            for index, partial in zip(arguments, partials, strict=True):
                for name, derivative in gradients[index].items():
                    total[name] = total.get(name, 0) + partial * derivative
        gradients.append(total)
    return gradients
