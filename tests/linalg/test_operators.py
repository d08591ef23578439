"""Every operator of ``surefoot.linalg`` under every transformation of torch, against loops over matrices and differences.

``OPERATORS`` (tests/support) has the operators. A *transformation* is a function of this file, marked ``@transformation``, of a
``Case``: an operator with matrices of one kind and dtype. It holds what comes out against the plain call, which ``batches``
holds against torch's own operators, and ``derivatives`` against central differences. The tests are all pairs of the two: once
with kinds and dtypes in turns, and with all of them among the slow tests, as are those that trace graphs.

A traced graph is run on other matrices than those that it was traced with, so that a branch on values would show.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import linalg_operators
import pytest
import torch
from linalg_operators import KINDS, OPERATORS, Operator, Values, direction, matrices
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

from surefoot import linalg
from surefoot.linalg import Info

# Forward-mode differentiation and torch.compile use parts of torch that warn about themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
]
DOUBLE = (torch.float64, torch.complex128)


@dataclass(frozen=True)
class Case:
    """An operator, and the kind and dtype of the matrices that it is tried on."""

    operator: Operator
    kind: str
    dtype: torch.dtype

    def arguments(self, *batch: int, seed: int = 0) -> tuple[Tensor, ...]:
        """A (*batch, m, n), and the further arguments."""
        A = matrices(self.kind, *batch, dtype=self.dtype, seed=seed)
        return A, *(make(A) for make in self.operator.extras)

    def outputs(self, *args: Tensor) -> Values:
        """All that the operator returns, the fields of an Info last."""
        value, info = split(self.operator.call(*args))
        return *value, *info

    def values(self, *args: Tensor) -> Values:
        """What is differentiable of it."""
        return split(self.operator.call(*args))[0]

    def loss(self, *args: Tensor) -> Tensor:
        """A real number for all matrices of a batch, the sum of those of each."""
        return weighed(self.values(*args), args[0].ndim - 2)

    def gradient(self, *args: Tensor) -> Tensor:
        """That of the loss in A, by plain autograd; 0 of an operator that has none."""
        if not self.operator.differentiable:
            return torch.zeros_like(args[0])
        A = args[0].detach().clone().requires_grad_()
        return torch.autograd.grad(self.loss(A, *args[1:]), A)[0]

    def tangents(self, V: Tensor, *args: Tensor) -> Values:
        """Those of the values as A moves along V, by central differences of fourth order."""

        def at(step: float) -> Values:
            return self.values(args[0] + step * V, *args[1:])

        h = 1e-4
        return tuple(
            (8 * (a - b) - (c - d)) / (12 * h) for a, b, c, d in zip(at(h), at(-h), at(2 * h), at(-2 * h), strict=True)
        )

    def __str__(self) -> str:
        return f"{self.operator}-{self.kind}-{str(self.dtype).removeprefix('torch.')}"


Transformation = Callable[[Case], None]
TRANSFORMATIONS: dict[str, Transformation] = {}
SLOW: set[str] = set()
OF_DERIVATIVES: set[str] = set()


def transformation(function: Transformation) -> Transformation:
    TRANSFORMATIONS[function.__name__] = function
    return function


def slow(function: Transformation) -> Transformation:
    SLOW.add(function.__name__)
    return function


def of_derivatives(function: Transformation) -> Transformation:
    OF_DERIVATIVES.add(function.__name__)
    return function


def tried(operator: Operator, name: str) -> bool:
    return name not in operator.untested and (operator.differentiable or name not in OF_DERIVATIVES)


def split(result: Any) -> tuple[Values, Values]:
    value, info = result if isinstance(result, tuple) and isinstance(result[-1], Info) else (result, ())
    return (value,) if isinstance(value, Tensor) else tuple(value), tuple(info)


def weighed(values: Values, rank: int) -> Tensor:
    """Σ Re⟨w, x⟩ + ‖x‖²/2, with the same weights w for all entries of the first ``rank`` dimensions, in double precision."""
    total = torch.zeros((), dtype=torch.float64)
    for place, value in enumerate(values):
        x = value.to(torch.promote_types(value.dtype, torch.float64))
        weights = torch.cos(torch.arange(math.prod(x.shape[rank:]), dtype=torch.float64) + place).reshape(
            x.shape[rank:]
        )
        total = total + (x * weights).real.sum() + x.abs().square().sum() / 2
    return total


def loop(function: Callable[..., Any], rank: int, *args: Tensor) -> Any:
    """``function`` of each entry of the first ``rank`` dimensions, in a Python loop; a tensor, or a tuple of them."""
    sizes = args[0].shape[:rank]
    results = [function(*(arg[index] for arg in args)) for index in product(*map(range, sizes))]
    if isinstance(results[0], Tensor):
        return torch.stack(results).reshape(sizes + results[0].shape)
    return tuple(torch.stack(parts).reshape(sizes + parts[0].shape) for parts in zip(*results, strict=True))


def assert_same(got: Any, expected: Any, precision: float | None = None) -> None:
    """Equal integers, and equal numbers up to ``precision``, a multiple of the rounding unit, relative to the largest."""
    got, expected = ((x,) if isinstance(x, Tensor) else tuple(x) for x in (got, expected))
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        a, b = a.detach(), b.detach()
        if not a.dtype.is_floating_point and not a.dtype.is_complex:
            assert torch.equal(a, b)
            continue
        near = 1e4 * torch.finfo(a.dtype).eps if precision is None else precision
        size = float(b[b.isfinite()].abs().max()) if bool(b.isfinite().any()) else 0.0
        torch.testing.assert_close(a, b, rtol=0.0, atol=near * (1.0 + size), equal_nan=True)


def assert_alike(got: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert [(x.shape, x.dtype) for x in got] == [(x.shape, x.dtype) for x in expected]


# -- batches, dtypes, layouts ---------------------------------------------------------------------------------------------


@transformation
def batches(case: Case) -> None:
    """Any number of batch dimensions is a loop over the matrices, whose values are the reference's."""
    for batch in ((), (2,), (1, 2), (2, 1, 1)):
        args = case.arguments(*batch)
        outputs = case.outputs(*args)
        # with a lazy conjugate isfinite() and others fail under vmap
        assert not any(x.is_conj() for x in outputs)
        assert_same(outputs, loop(case.outputs, len(batch), *args))
        if case.operator.reference is not None:
            assert_same(case.values(*args), split(case.operator.reference(*args))[0], unit(case.dtype))


@transformation
def dtypes(case: Case) -> None:
    """Each dtype gives the double precision's values, to its own precision."""
    for dtype in case.operator.dtypes:
        of = Case(case.operator, case.kind, dtype)
        args = of.arguments(2)
        values, expected = of.values(*args), of.values(*widened(args))
        assert all(x.dtype.to_real() == dtype.to_real() for x in values)
        assert_same([x.to(y.dtype) for x, y in zip(values, expected, strict=True)], expected, unit(dtype))


@transformation
@of_derivatives
def gradients_of_dtypes(case: Case) -> None:
    for dtype in case.operator.dtypes:
        of = Case(case.operator, case.kind, dtype)
        args = of.arguments(2)
        gradient = of.gradient(*args)
        assert gradient.dtype == dtype
        exact = of.gradient(*widened(args))
        assert_same(gradient.to(exact.dtype), exact, 100 * unit(dtype))


def widened(args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(arg.to(torch.promote_types(arg.dtype, torch.float64)) for arg in args)


def unit(dtype: torch.dtype) -> float:
    """What a condition number of 40 makes of a rounding error; half precision is computed in float32."""
    return (1e4 if dtype in linalg_operators.COMPUTED else 10) * torch.finfo(dtype).eps


@transformation
def empty_batches(case: Case) -> None:
    of_one = case.outputs(*case.arguments())
    for batch in ((0,), (2, 0)):
        outputs = case.outputs(*case.arguments(*batch))
        assert [x.shape for x in outputs] == [(*batch, *x.shape) for x in of_one]


@transformation
def empty_matrices(case: Case) -> None:
    """Without rows, without columns, and without both."""
    m, n = KINDS[case.kind]
    for shape in {(0, n - min(m, n)), (m - min(m, n), 0)}:
        A = torch.zeros(2, *shape, dtype=case.dtype)
        args = A, *(make(A) for make in case.operator.extras)
        values = case.values(*args)
        if case.operator.reference is not None:
            assert [x.shape for x in values] == [x.shape for x in split(case.operator.reference(*args))[0]]
        assert case.gradient(*args).shape == A.shape


@transformation
def layouts(case: Case) -> None:
    """Transposed, sliced and expanded memory, and lazy conjugates."""
    A, *extras = case.arguments(2)
    expected = case.outputs(A, *extras)
    for other in (A.mT.contiguous().mT, torch.stack((A, A), -1)[..., 0], A.conj().resolve_conj().conj()):
        assert_same(case.outputs(other, *extras), expected)
    one = case.arguments()
    assert_same(
        case.outputs(*(x.expand(2, *x.shape) for x in one)),
        tuple(x.expand(2, *x.shape) for x in case.outputs(*one)),
    )


# -- vmap -----------------------------------------------------------------------------------------------------------------


@transformation
def vmap(case: Case) -> None:
    """Samples of 0 and of 2 batch dimensions, mapped at every place; further arguments mapped, each alone, and not at all."""
    for batch in ((), (3, 2)):
        args = case.arguments(2, *batch)
        expected = loop(case.outputs, 1, *args)
        for place in range(args[0].ndim):
            dims = tuple(place % arg.ndim for arg in args)
            moved = (arg.movedim(0, dim) for arg, dim in zip(args, dims, strict=True))
            assert_same(torch.vmap(case.outputs, dims)(*moved), expected)
        if len(args) > 1:
            for alone in range(len(args)):
                one = tuple(arg if index == alone else arg[0] for index, arg in enumerate(args))
                whole = tuple(arg if index == alone else arg[:1].expand(arg.shape) for index, arg in enumerate(args))
                dims = tuple(0 if index == alone else None for index in range(len(args)))
                assert_same(torch.vmap(case.outputs, dims)(*one), loop(case.outputs, 1, *whole))


@transformation
def nested_vmap(case: Case) -> None:
    """The further arguments are mapped by the outer one alone."""
    A, *extras = case.arguments(2, 3, 2)
    inner = torch.vmap(case.outputs, (1, *(None for _ in extras)))
    shared = [extra[:, 0] for extra in extras]
    spread = [extra[:, :1].expand(extra.shape) for extra in extras]
    got = torch.vmap(inner, (-1, *(0 for _ in extras)))(A.movedim(0, -1).movedim(0, 1), *shared)
    assert_same(got, loop(case.outputs, 2, A, *spread))


@transformation
@of_derivatives
def gradient_of_vmap(case: Case) -> None:
    args = case.arguments(2, 2)

    def whole(A: Tensor) -> Tensor:
        return weighed(torch.vmap(case.values)(A, *args[1:]), 2)

    assert_same(torch.func.grad(whole)(args[0]), loop(case.gradient, 2, *args))


@transformation
@of_derivatives
def vmap_of_gradient(case: Case) -> None:
    args = case.arguments(2, 2)
    assert_same(torch.vmap(torch.func.grad(case.loss))(*args), loop(case.gradient, 2, *args))


# -- derivatives ----------------------------------------------------------------------------------------------------------


@transformation
@of_derivatives
def derivatives(case: Case) -> None:
    """Reverse and forward mode against central differences."""
    args = case.arguments()
    V = direction(case.kind, args[0])
    expected = case.tangents(V, *args)
    along, tangents = torch.func.jvp(lambda A: case.values(A, *args[1:]), (args[0],), (V,))
    assert_same(along, case.values(*args))
    assert_same(tangents, expected, 1e-7)
    rate = sum((w.conj() * d).real.sum() for w, d in zip(cotangents(case.values(*args)), expected, strict=True))
    assert_same((case.gradient(*args).conj() * V).real.sum(), torch.as_tensor(rate, dtype=torch.float64), 1e-7)


def cotangents(values: Values) -> Values:
    values = tuple(value.detach().requires_grad_() for value in values)
    return torch.autograd.grad(weighed(values, 0), values)


@transformation
@of_derivatives
def vmap_of_tangent(case: Case) -> None:
    A, *extras = case.arguments(2)
    V = direction(case.kind, A)

    def tangent(A: Tensor, V: Tensor, *extras: Tensor) -> Values:
        return torch.func.jvp(lambda A: case.values(A, *extras), (A,), (V,))[1]

    assert_same(torch.vmap(tangent)(A, V, *extras), loop(tangent, 1, A, V, *extras))


@transformation
@of_derivatives
def jacobians(case: Case) -> None:
    """Row by row and column by column, which maps the derivatives; contracted with a direction."""
    A, *extras = case.arguments()
    V = direction(case.kind, A)
    expected = torch.func.jvp(lambda A: case.values(A, *extras), (A,), (V,))[1]
    for jacobian in (torch.func.jacrev, torch.func.jacfwd) if not A.is_complex() else ():
        got = jacobian(lambda A: case.values(A, *extras))(A)
        assert_same(tuple((J * V).sum((-2, -1)) for J in got), expected)


@transformation
@of_derivatives
def second_derivatives(case: Case) -> None:
    """The Hessian forward over reverse, and reverse over reverse, along a direction, against differences of gradients."""
    A, *extras = case.arguments()
    V, h = direction(case.kind, A), 1e-4

    def gradient(A: Tensor) -> Tensor:
        return torch.func.grad(case.loss)(A, *extras)

    def at(step: float) -> Tensor:
        return case.gradient(A + step * V, *extras)

    expected = ((8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h) * V.conj()).real.sum()
    assert_same((torch.func.jvp(gradient, (A,), (V,))[1] * V.conj()).real.sum(), expected, 1e-6)
    _, pullback = torch.func.vjp(gradient, A)
    assert_same((pullback(V)[0] * V.conj()).real.sum(), expected, 1e-6)


@transformation
@of_derivatives
@slow
def linearize(case: Case) -> None:
    A, *extras = case.arguments()
    V = direction(case.kind, A)
    values, along = torch.func.linearize(lambda A: case.values(A, *extras), A)
    assert_same(values, case.values(A, *extras))
    assert_same(along(V), torch.func.jvp(lambda A: case.values(A, *extras), (A,), (V,))[1])


@transformation
@of_derivatives
def dual_numbers_and_batched_gradients(case: Case) -> None:
    A, *extras = case.arguments()
    V = direction(case.kind, A)
    expected = torch.func.jvp(lambda A: case.values(A, *extras), (A,), (V,))[1]
    with torch.autograd.forward_ad.dual_level():
        values = case.values(torch.autograd.forward_ad.make_dual(A, V), *extras)
        got = tuple(torch.autograd.forward_ad.unpack_dual(value).tangent for value in values)
        assert all(tangent is not None for tangent in got)
        assert_same(got, expected)
    A = A.clone().requires_grad_()
    values = case.values(A, *extras)
    seeds = tuple(torch.stack((value, 2 * value + 1)).detach() for value in values)
    (got,) = torch.autograd.grad(values, A, seeds, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(values, A, [seed[i] for seed in seeds], retain_graph=True)[0] for i in range(2)]
    assert_same(got, torch.stack(each))


# -- tracing --------------------------------------------------------------------------------------------------------------


def traced(case: Case, trace: Callable[[Callable[..., Any], tuple[Tensor, ...]], Callable[..., Any]]) -> None:
    """Outputs and gradients of graphs that were traced with other matrices."""
    args, others = case.arguments(2), case.arguments(2, seed=10)
    gradient = (torch.func.grad(case.loss),) if case.operator.differentiable else ()
    for function in (case.outputs, *gradient):
        assert_same(trace(function, others)(*args), function(*args))


@transformation
@slow
def make_fx_of_tensors(case: Case) -> None:
    traced(case, lambda function, args: make_fx(function)(*args))


@transformation
@slow
def make_fx_of_fake_tensors(case: Case) -> None:
    traced(case, lambda function, args: make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*args))


@transformation
@slow
def make_fx_of_symbols(case: Case) -> None:
    traced(case, lambda function, args: make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*args))


@transformation
def fake_tensors(case: Case) -> None:
    args = case.arguments(2)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = tuple(mode.from_tensor(arg) for arg in args)
        outputs, gradient = case.outputs(*fake), case.gradient(*fake)
    assert_alike((*outputs, gradient), (*case.outputs(*args), case.gradient(*args)))


@transformation
def meta_tensors(case: Case) -> None:
    args = case.arguments(2)
    if not case.operator.name.startswith("Learned"):  # whose weights are on a device
        assert_alike(case.outputs(*(arg.to("meta") for arg in args)), case.outputs(*args))


class Module(torch.nn.Module):
    def __init__(self, case: Case, **parameters: Tensor) -> None:
        super().__init__()
        self.case = case
        for name, parameter in parameters.items():
            self.register_parameter(name, torch.nn.Parameter(parameter))

    def forward(self, *args: Tensor) -> Values:
        return self.case.outputs(*self.parameters(), *args)


@transformation
@slow
def export(case: Case) -> None:
    args, others = case.arguments(2), case.arguments(2, seed=10)
    assert_same(torch.export.export(Module(case), others).module()(*args), case.outputs(*args))


@transformation
@slow
def compile_in_one_graph(case: Case) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(case.outputs, fullgraph=True, backend="aot_eager")
    loss = torch.compile(case.loss, fullgraph=True, backend="aot_eager")
    for args in (case.arguments(2), case.arguments(2, seed=10)):
        assert_same(compiled(*args), case.outputs(*args))
        if case.operator.differentiable:
            A = args[0].clone().requires_grad_()
            assert_same(torch.autograd.grad(loss(A, *args[1:]), A)[0], case.gradient(*args))


@transformation
@slow
def compile_with_dynamic_shapes(case: Case) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(case.outputs, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (3, 5):
        args = case.arguments(size)
        assert_same(compiled(*args), case.outputs(*args))


@transformation
@slow
def compile_of_transforms(case: Case) -> None:
    torch._dynamo.reset()
    args = case.arguments(2)
    compiled = torch.compile(torch.vmap(case.outputs), fullgraph=True, backend="aot_eager")
    assert_same(compiled(*args), case.outputs(*args))
    if case.operator.differentiable:
        gradient = torch.compile(torch.func.grad(case.loss), fullgraph=True, backend="aot_eager")
        assert_same(gradient(*args), case.gradient(*args))


# -- modes of autograd ----------------------------------------------------------------------------------------------------


@transformation
def autocast(case: Case) -> None:
    """Values and gradients are those without it, not rounded to half precision."""
    single = torch.complex64 if case.dtype.is_complex else torch.float32
    case = Case(case.operator, case.kind, single)
    args = case.arguments(2)
    A = args[0].clone().requires_grad_(case.operator.differentiable)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, loss = case.outputs(*args), case.loss(A, *args[1:])
    assert_same(outputs, case.outputs(*args))
    if case.operator.differentiable:
        assert_same(torch.autograd.grad(loss, A)[0], case.gradient(*args))


@transformation
@of_derivatives
def saved_tensors(case: Case) -> None:
    """Kept elsewhere by hooks, and computed again by ``checkpoint``; ``no_grad`` and ``inference_mode`` save none."""
    args = case.arguments(2)
    A = args[0].clone().requires_grad_()
    expected = case.gradient(*args)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x):
        loss = case.loss(A, *args[1:])
    assert_same(torch.autograd.grad(loss, A)[0], expected)
    again = checkpoint(case.loss, A, *args[1:], use_reentrant=False)
    assert_same(torch.autograd.grad(again, A)[0], expected)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            outputs = case.outputs(A, *args[1:])
        assert not any(output.requires_grad for output in outputs)
        assert_same(outputs, case.outputs(*args))


@transformation
def functional_call(case: Case) -> None:
    """A as a parameter of a module, replaced, differentiated, and mapped."""
    A, *extras = case.arguments(2)
    module = Module(case, A=A).requires_grad_(case.operator.differentiable)
    assert_same(module(*extras), case.outputs(A, *extras))
    other, *_ = case.arguments(2, seed=10)

    def call(A: Tensor, *extras: Tensor) -> Values:
        return torch.func.functional_call(module, {"A": A}, extras)

    assert_same(call(other, *extras), case.outputs(other, *extras))
    assert_same(torch.vmap(call)(other, *extras), case.outputs(other, *extras))
    if not case.operator.differentiable:
        return
    count = len(case.values(A, *extras))
    gradient = torch.func.grad(lambda A: weighed(call(A, *extras)[:count], 1))(other)
    assert_same(gradient, case.gradient(other, *extras))


# -- tensors of other classes ---------------------------------------------------------------------------------------------


class Held(Tensor):
    """A tensor that holds another and passes every operator on to it."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Held:
        made = Tensor._make_wrapper_subclass(cls, held.shape, held.stride(), dtype=held.dtype, device=held.device)
        made.held = held.resolve_conj()
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(cls, lambda x: x.held, (args, kwargs or {}))
        return tree_map_only(Tensor, cls, func(*args, **kwargs))


@transformation
def subclasses(case: Case) -> None:
    """Of tensors: nothing looks at values that only the subclass has."""
    args = case.arguments(2)
    outputs = case.outputs(*(Held(arg) for arg in args))
    assert isinstance(outputs[0], Held)
    assert_same([x.held if isinstance(x, Held) else x for x in outputs], case.outputs(*args))


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    from torch.distributed import HashStore, destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh

    init_process_group("gloo", rank=0, world_size=1, store=HashStore())
    yield init_device_mesh("cpu", (1,))
    destroy_process_group()


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_distributed_tensors_are_refused_with_what_to_do(operator: Operator, mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, distribute_tensor

    A, *extras = Case(operator, operator.kinds[0], operator.dtypes[-1]).arguments(2)
    with pytest.raises(TypeError, match=r"is a DTensor.*full_tensor\(\)"):
        operator.call(distribute_tensor(A, mesh, [Replicate()]), *extras)


@pytest.mark.parametrize("operator", [operator for operator in OPERATORS if not operator.differentiable], ids=str)
def test_derivatives_that_do_not_exist_are_refused(operator: Operator) -> None:
    case = Case(operator, operator.kinds[0], operator.dtypes[0])
    args = case.arguments()
    with pytest.raises(NotImplementedError, match="no derivative"):
        torch.func.grad(case.loss)(*args)
    with pytest.raises(NotImplementedError, match="no derivative"):
        torch.func.jvp(case.loss, args, args)


# -- the matrix -----------------------------------------------------------------------------------------------------------


def test_every_public_operator_has_an_entry() -> None:
    functions = (getattr(linalg, name) for name in linalg.__all__)
    of_matrices = {f.__name__ for f in functions if inspect.isfunction(f) and is_of_a_tensor(f)}
    assert of_matrices <= {operator.name for operator in OPERATORS}
    assert len({str(operator) for operator in OPERATORS}) == len(OPERATORS)
    assert all(set(operator.untested) <= set(TRANSFORMATIONS) for operator in OPERATORS)


def is_of_a_tensor(function: Callable[..., Any]) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()))
    return first.annotation == "Tensor"


# What is tried by default of a variant of another operator; of the others all but what is slow, of which TRACED of one.
OF_VARIANTS = ("batches", "empty_batches", "vmap")
TRACED = {"pinv": ("linearize", "make_fx_of_tensors", "export", "compile_in_one_graph")}


def by_default(operator: Operator, name: str) -> bool:
    if operator.way or operator.name.endswith("_ex"):
        return name in OF_VARIANTS
    return name not in SLOW or name in TRACED.get(operator.name, ())


def pairs() -> Iterator[Any]:
    """Every operator with every transformation once; kinds and the two kinds of numbers take turns."""
    for i, operator in enumerate(OPERATORS):
        doubles = [dtype for dtype in DOUBLE if dtype in operator.dtypes]
        for j, name in enumerate(TRANSFORMATIONS):
            if tried(operator, name):
                kinds, marks = operator.kinds, [] if by_default(operator, name) else [pytest.mark.slow]
                case = Case(operator, kinds[(i + j) % len(kinds)], doubles[(i + j) % len(doubles)])
                yield pytest.param(case, name, id=f"{name}-{case}", marks=marks)


@pytest.mark.parametrize(("case", "name"), list(pairs()))
def test_operator(case: Case, name: str) -> None:
    TRANSFORMATIONS[name](case)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_operator_with_all_kinds_and_dtypes(operator: Operator, name: str) -> None:
    if tried(operator, name):
        for kind, dtype in product(operator.kinds, [dtype for dtype in DOUBLE if dtype in operator.dtypes]):
            TRANSFORMATIONS[name](Case(operator, kind, dtype))
