"""The pattern that every operator of this room follows, so that all of torch's transforms accept it.

1. A *kernel*, registered with ``torch.library.custom_op`` and with a fake implementation, computes the values. Only there may
   code branch on data: the kernel sees plain tensors under every transform. It has no derivative.
2. An ``autograd.Function`` with ``setup_context`` calls the kernel, and has a ``backward`` made of differentiable torch
   operations on its inputs and outputs, so that it can be differentiated again. Its ``vmap`` is ``batch_first``.
3. A subclass adds ``jvp``. Dynamo refuses a Function with a ``jvp``, so ``apply`` takes the base class while compiling.

``forward`` must name its arguments: with ``*args`` Dynamo passes the context first where no tensor requires a gradient. In what
Dynamo traces, a tensor must not be compared with an enum member (it takes the result for a constant): use ``int(member)``.

A kernel must not rely on lazy conjugates: in a compiled graph it runs where an elementwise operation on ``A.mH`` of complex A
sees A.mT (wrong values, no error). Resolve what comes in, and use ``spectral.adjoint``.

A derivative rule that is written with torch operations may look at data (to skip work) only where ``may_branch`` says so.

``vmap`` puts the mapped dimension of every argument before its own. So an argument that belongs to the batch (a tolerance) is
given as many batch dimensions as A has before it reaches the Function: aligned from the right it would meet the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._C import DispatchKey, _TorchDispatchModeKey  # pyright: ignore[reportAttributeAccessIssue]
from torch._C._functorch import (  # pyright: ignore[reportMissingModuleSource]
    TransformType,
    get_interpreter_stack,
    is_legacy_batchedtensor,
)
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

P = ParamSpec("P")
R = TypeVar("R")
_RECORDERS = tuple(_TorchDispatchModeKey.__members__.values())


def apply(eager: type[torch.autograd.Function], compiled: type[torch.autograd.Function], *args: Any) -> Any:
    """Call the Function ``eager``, which has a ``jvp``, or under ``torch.compile`` its base ``compiled``, which has none.

    Where nothing transforms or records what is done, what a Function for all transforms costs (0.1 ms a call, as much as the
    inverse of a small matrix) is saved: its values alone where no derivative is asked for, else a Function without transforms.
    """
    if torch.compiler.is_compiling():
        return compiled.apply(*args)
    tensors = [value for value in args if isinstance(value, Tensor)]
    if not all(map(plain_eager, tensors)):
        return eager.apply(*args)
    if torch.is_grad_enabled() and any(value.requires_grad for value in tensors):
        return _without_transforms(compiled).apply(*args)
    with torch.no_grad():
        return compiled.forward(*args)


@cache
def _without_transforms(function: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """The Function with the same values and the same derivative in reverse mode, and no other."""

    def forward(ctx: Any, *args: Any) -> Any:
        outputs = function.forward(*args)
        function.setup_context(ctx, args, outputs)
        return outputs

    methods = {"forward": staticmethod(forward), "backward": staticmethod(function.backward)}
    return type(function.__name__, (torch.autograd.Function,), methods)


def may_branch(*tensors: Tensor) -> bool:
    """Whether Python may look at the values of these tensors: they have some, and nothing records or transforms what is done.

    Not while a graph is traced (``torch.compile``, ``torch.export``, ``make_fx``, ``func.linearize``, ``jit.trace``), not under
    ``FakeTensorMode``, not inside ``torch.func`` transforms; not of a tensor on meta, and of none whose class handles operators
    itself (``__torch_dispatch__``), for what it holds may be no tensor of values.
    """
    # Dynamo takes the first for a constant and looks no further
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or torch._C._is_tracing():
        return False
    if torch._C._dispatch_tls_is_dispatch_key_included(DispatchKey.PreDispatch):
        return False
    # the modes that record, or have no values; under others (counters of operations) values may be seen
    if torch._C._len_torch_dispatch_stack() and any(torch._C._get_dispatch_mode(key) for key in _RECORDERS):
        return False
    for A in tensors:
        plain = type(A).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl  # pyright: ignore[reportAttributeAccessIssue]
        if not plain or A.is_meta or is_legacy_batchedtensor(A):
            return False
    return True


def constant(function: Callable[P, R]) -> Callable[P, R]:
    """Let ``torch.compile`` call ``function`` once while tracing: its arguments and its result are constants of the graph.

    The mark of ``torch.compiler.assume_constant_result``, which would load the compiler at import.
    """
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


def own_precision(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` with autocast off on the device of its first tensor.

    Autocast would round the factors of products to half precision: iterations then do not converge, gradients lose all but two
    digits, and bounds of rounding errors do not hold.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for value in (*args, *kwargs.values()):
            if isinstance(value, Tensor):
                kind = value.device.type
                if kind == "meta" or not torch.is_autocast_enabled(kind):
                    break
                with torch.autocast(kind, enabled=False):
                    return function(*args, **kwargs)
        return function(*args, **kwargs)

    return run


def plain_eager(A: Tensor) -> bool:
    """Whether A is an ordinary tensor outside of every transform, tracer and forward-mode level.

    Then a kernel may be called as the Python function that it is, which a registered operator wraps at some cost.
    """
    return (
        type(A) in (Tensor, torch.nn.Parameter)
        and may_branch(A)
        and _get_current_dispatch_mode() is None
        and forward_ad._current_level < 0
    )


def may_differentiate(*tensors: Tensor) -> bool:
    """Whether a derivative of what is made of these tensors may be asked for."""
    return not all(plain_eager(A) and not (A.requires_grad and torch.is_grad_enabled()) for A in tensors)


@contextmanager
def without_hooks() -> Iterator[None]:
    """Off: the hooks for saved tensors (``checkpoint`` sets some), under which ``torch.func`` refuses to differentiate."""
    hooks: list[Any] = []
    stack: Any = torch._C._autograd  # pyright: ignore[reportAttributeAccessIssue]
    if not torch.compiler.is_compiling():
        while (top := stack._top_saved_tensors_default_hooks(False)) is not None:
            hooks.append(top)
            stack._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            stack._push_saved_tensors_default_hooks(pack, unpack)


def refuse_nested_forward(name: str) -> None:
    """To be called first in a ``jvp``: torch drops the outer derivative of forward mode inside forward mode without a word."""
    stack = get_interpreter_stack() or []
    if sum(level.key() == TransformType.Jvp for level in stack) > 1:
        raise NotImplementedError(
            f"{name}: torch cannot nest forward-mode derivatives (jvp, jacfwd) of a custom function; "
            "take the inner derivative in reverse mode: jacfwd(jacrev(f)), torch.func.hessian(f)"
        )


def batch_first(
    call: Callable[..., Any], info: Any, in_dims: tuple[int | None, ...], args: tuple[Any, ...]
) -> tuple[Any, Any]:
    """The ``vmap`` rule of an operator over leading batch dimensions: the mapped dimension becomes the first of them.

    ``call(*args)`` returns a tensor or a tuple of tensors. A tensor without a mapped dimension is expanded (a view); what is no
    tensor goes through.
    """
    moved = []
    for arg, dim in zip(args, in_dims, strict=True):
        if not isinstance(arg, Tensor):
            moved.append(arg)
        elif dim is None:
            moved.append(arg.expand(info.batch_size, *arg.shape))
        else:
            moved.append(arg.movedim(dim, 0))
    outputs = call(*moved)
    return outputs, (tuple(0 for _ in outputs) if isinstance(outputs, tuple) else 0)
