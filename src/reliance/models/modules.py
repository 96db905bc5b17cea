"""Modules of torch and of Flax's nnx: where their data belong, evaluation mode, and what is behind a function.

A module that is passed as it is runs in evaluation mode and gets its own mode back. A module behind a function is the
user's: one that is called in training mode is warned about, and its running statistics must stay what they were.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias, TypeGuard

from reliance._core.arrays import is_torch_array, namespace
from reliance._core.checks import warn
from reliance._core.kinds import Array, Device, DType, TorchArray
from reliance.models.libraries import NnxModule, NnxVariable, TorchModule, TorchSequence

# How far modules are searched for behind a function: attributes of attributes, and objects in all.
_DEPTH, _MOST = 4, 2000

# Where a value is inside of a module of nnx.
Path: TypeAlias = tuple[str | int, ...]


def is_torch_module(model: object) -> TypeGuard[TorchModule]:
    """Without importing torch: whoever has a module has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def is_torch_sequence(model: object) -> TypeGuard[TorchSequence]:
    torch = sys.modules.get("torch")
    return torch is not None and type(model) is torch.nn.Sequential


def is_nnx_module(model: object) -> TypeGuard[NnxModule]:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and hasattr(nnx, "Module") and isinstance(model, nnx.Module)


def home(module: TorchModule) -> tuple[Device, DType | None] | None:
    """Device of a torch module, and the dtype that all its floating parameters have; None if it has no tensors.

    Where parameters differ (16-bit layers beside 32-bit ones), the dtype is None: only the module knows which of them
    the rows meet first. Buffers speak where no parameter does.
    """
    for tensors in (module.parameters(), module.buffers()):
        floating = [tensor for tensor in tensors if tensor.is_floating_point()]
        if floating:
            dtypes = {tensor.dtype for tensor in floating}
            return floating[0].device, dtypes.pop() if len(dtypes) == 1 else None
    return None


def in_dtype(x: Array, dtype: DType | None) -> Array:
    """A tensor of floating numbers in the dtype of a module, if it has one; anything else as it is."""
    return x.to(dtype) if dtype is not None and is_torch_array(x) and x.is_floating_point() else x


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation mode


class _Held:
    """A part of a module that calls hold in evaluation mode, and the mode it had before the first of them."""

    def __init__(self, part: TorchModule) -> None:
        self.part, self.training, self.calls = part, part.training, 0


_held: dict[int, _Held] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def evaluation_mode(module: TorchModule) -> Iterator[None]:
    """Dropout off, batch statistics frozen; every submodule gets its own mode back, also after an error.

    Calls in other threads may hold the same parts: the last one to end gives the modes back.
    """
    parts = list(module.modules())
    with _lock:
        for part in parts:
            _held.setdefault(id(part), _Held(part)).calls += 1
        # What torch.export made has the one mode that it was exported in, and says so.
        with contextlib.suppress(NotImplementedError):
            module.eval()
    try:
        yield
    finally:
        with _lock:
            for part in parts:
                held = _held[id(part)]
                held.calls -= 1
                if not held.calls:
                    part.training = held.training
                    del _held[id(part)]


# ---------------------------------------------------------------------------------------------------------------------
# Modules behind a function


class _Statistic(NamedTuple):
    """A running statistic: where it is, its value before, and how it is read and written back."""

    name: str
    before: Array
    read: Callable[[], Array]
    write: Callable[[Array], None]


@contextlib.contextmanager
def watched(model: object, name: str) -> Iterator[None]:
    """While a function is called: whether modules behind it run in training mode, or change their statistics."""
    found = behind(model)
    statistics = [one for module in found for one in _statistics(module)]
    try:
        yield
    except BaseException:
        _give_back(statistics)
        raise
    changed = _give_back(statistics)
    # Afterwards: a function may set the mode by itself.
    training = [part for part in map(_in_training, found) if part is not None]
    if changed:
        raise ValueError(
            f"model {name} changed {changed[0][:80]} of a module behind it, which is given back as it was: predictions "
            "depended on the calls before; call the module's eval() first"
        )
    if training:
        warn(
            f"model {name} calls a module in training mode ({training[0]}): predictions may be random or depend on "
            "the batch; call its eval() first"
        )


def _give_back(statistics: list[_Statistic]) -> list[str]:
    """Write the values from before back, and say which had changed."""
    changed = []
    for one in statistics:
        now = one.read()
        if now is not one.before and not _equal(now, one.before):
            changed.append(one.name)
            one.write(one.before)
    return changed


def _equal(a: Array, b: Array) -> bool:
    # NaN equals itself here, as the statistics of a batch of NaN do.
    return a.shape == b.shape and a.dtype == b.dtype and bool(namespace(a).all((a == b) | ((a != a) & (b != b))))


def _statistics(module: TorchModule | NnxModule) -> list[_Statistic]:
    if is_torch_module(module):
        import torch

        def of(name: str, buffer: TorchArray) -> _Statistic:
            def write(value: Array) -> None:
                with torch.no_grad():
                    buffer.copy_(value)

            return _Statistic(f"the buffer {name!r}", buffer.detach().clone(), lambda: buffer, write)

        return [of(name, buffer) for name, buffer in module.named_buffers() if not buffer.is_meta]
    kind = sys.modules["flax.nnx"].BatchStat
    return [_nnx_statistic(path, variable) for path, variable in _nnx_graph(module) if isinstance(variable, kind)]


def _nnx_statistic(path: Path, variable: NnxVariable) -> _Statistic:
    def read() -> Array:
        return variable.get_value() if hasattr(variable, "get_value") else variable.value  # before Flax 0.11

    def write(value: Array) -> None:
        if hasattr(variable, "set_value"):
            variable.set_value(value)
        else:
            variable.value = value

    return _Statistic(f"the statistic {'.'.join(map(str, path))!r}", read(), read, write)


def _nnx_graph(module: NnxModule) -> Iterator[tuple[Path, NnxVariable]]:
    yield from sys.modules["flax.nnx"].iter_graph(module)


def _in_training(module: TorchModule | NnxModule) -> str | None:
    """A part of the module that is in training mode and does something else then."""
    if is_torch_module(module):
        parts: list[tuple[str, object]] = [
            (name, part) for name, part in module.named_modules() if part.training and _heeds_mode(part)
        ]
    else:
        nnx = sys.modules["flax.nnx"]
        parts = [
            (".".join(map(str, path)), part)
            for path, part in _nnx_graph(module)
            if (isinstance(part, nnx.BatchNorm) and part.use_running_average is False)
            or (isinstance(part, nnx.Dropout) and part.deterministic is False and part.rate > 0.0)
        ]
    return next((f"{name or 'itself'}: {type(part).__name__}" for name, part in parts), None)


def _heeds_mode(part: object) -> bool:
    """Whether a torch module looks at its mode: most look at nothing, and a dropout of 0 does nothing."""
    rates = [getattr(part, name) for name in ("p", "dropout") if isinstance(getattr(part, name, None), int | float)]
    if type(part).__module__.startswith("torch.nn") and rates and not any(rates):
        return False
    scripted = getattr(part, "original_name", None)  # of a scripted module: its code cannot be read
    return _reads_mode(type(part)) if scripted is None else any(word in scripted for word in ("Dropout", "BatchNorm"))


def _reads_mode(kind: type) -> bool:
    own = [one for one in kind.__mro__ if one.__module__ != "torch.nn.modules.module"]
    functions = [value for one in own for value in vars(one).values() if isinstance(value, types.FunctionType)]
    return any("training" in code.co_names for f in functions for code in _codes(f.__code__))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def behind(model: object) -> list[TorchModule | NnxModule]:
    """The modules that a function reaches: what it closes over, its globals, defaults, arguments, its object."""
    if not {"torch", "flax.nnx"} & sys.modules.keys():
        return []
    found: list[TorchModule | NnxModule] = []
    seen: set[int] = set()
    level = [model]
    for _ in range(_DEPTH):
        following: list[object] = []
        for one in level:
            if id(one) in seen or len(seen) > _MOST:
                continue
            seen.add(id(one))
            if is_torch_module(one) or is_nnx_module(one):
                found.append(one)
            else:
                following += _reached(one)
        level = following
    return found


def _reached(one: object) -> list[object]:
    """What an object refers to, of what may be or hold a module."""
    if isinstance(one, types.ModuleType | type | str | bytes | int | float | complex | None):
        return []
    if isinstance(one, functools.partial):
        return [one.func, *one.args, *one.keywords.values()]
    if isinstance(one, types.MethodType):
        return [one.__self__, one.__func__]
    if isinstance(one, list | tuple | set | frozenset):
        return list(one)[:64]
    if isinstance(one, Mapping):
        return list(one.values())[:64] if isinstance(one, dict) else []
    if isinstance(one, types.FunctionType):
        names = {name for code in _codes(one.__code__) for name in _globals_of(code)}
        cells = [cell.cell_contents for cell in one.__closure__ or () if _is_filled(cell)]
        bound = [one.__globals__[name] for name in names if name in one.__globals__]
        return [*cells, *bound, *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values(), *vars(one).values()]
    inner = getattr(one, "__wrapped__", None) if type(one).__module__.startswith("jax") else None
    if inner is not None:  # what jax.jit was given
        return [inner]
    return [*getattr(one, "__dict__", {}).values(), *([type(one).__call__] if callable(one) else [])]


def _globals_of(code: types.CodeType) -> Iterator[str]:
    # Not co_names, which holds the names of attributes, too.
    return (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # a variable that was never set
        return False
    return True
