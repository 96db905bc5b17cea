"""Namespace, device, dtypes and explicit transfer.

With `loops`, the only file that knows which backend it runs on: the rest is written against the Python array API.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard

import array_api_compat as compat
import numpy as np

from reliance._core import kinds
from reliance._core.kinds import Device as Device
from reliance._core.kinds import DType as DType
from reliance._core.kinds import HostArray
from reliance._core.kinds import Namespace as Namespace
from reliance._core.words import shown

# For the modules that are still to be checked: arrays are `kinds.Array` wherever mypy looks at them.
Array: TypeAlias = Any

is_torch_array: Callable[[object], TypeGuard[kinds.TorchArray]] = compat.is_torch_array
_is_cupy_array: Callable[[object], TypeGuard[kinds.CupyArray]] = compat.is_cupy_array
_is_jax_array: Callable[[object], TypeGuard[kinds.JaxArray]] = compat.is_jax_array

_known: dict[type, Namespace] = {}


def namespace(*arrays: kinds.Array | None) -> Namespace:
    """The one array API namespace of the arrays (``None`` is passed over)."""
    kinds = {type(a) for a in arrays if a is not None}
    if len(kinds) != 1:
        mixed: Namespace = compat.array_namespace(*[a for a in arrays if a is not None])
        return mixed
    # The kernels ask dozens of times a block: remember the answer for each class of arrays.
    kind = kinds.pop()
    if kind not in _known:
        found: Namespace = compat.array_namespace(*[a for a in arrays if a is not None])
        if _is_read(kind):
            return found
        _known[kind] = found
    return _known[kind]


def _is_read(kind: type) -> bool:
    """Rows that are read in blocks, as arrays of any library."""
    return bool(getattr(kind, "of_any_namespace", False))


def is_array(x: object) -> TypeGuard[kinds.Array]:
    """Whether ``x`` is an array of a supported namespace."""
    return bool(compat.is_array_api_obj(x))


def is_traced(x: object) -> bool:
    """Whether ``x`` stands for an array inside of JAX's jit, vmap or grad, and has no values."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.core.Tracer)


def device(x: kinds.Array) -> Device:
    """Where an array is; of a JAX array on several devices, all of them: what is uploaded there is on each."""
    found = compat.device(x)
    devices = getattr(found, "device_set", ())
    if len(devices) < 2:
        return found
    import jax

    mesh = getattr(found, "mesh", None) or jax.sharding.Mesh(sorted(devices, key=lambda d: d.id), ("devices",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def named_device(device: Device) -> tuple[Namespace, Device]:
    """Namespace and device that a user names: a ``jax.Device`` is one of JAX, a ``torch.device`` or text of torch."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and isinstance(device, jax.Device):
        return namespace(jax.device_put(np.zeros(0, dtype=np.float32), device)), device
    if torch is None:
        raise ValueError(
            f"device={shown(device)}: text names a device of torch, which is not imported; pass a jax.Device"
        )
    try:
        return namespace(torch.empty(0)), torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device={shown(device)} is no device: pass text such as 'cuda:0', or a jax.Device") from error


def device_bytes(xp: Namespace, dev: Device) -> int | None:
    """How much memory a device has of its own; None if that is not known."""
    if not compat.is_torch_namespace(xp) or getattr(dev, "type", "cpu") != "cuda":
        return None
    import torch

    return int(torch.cuda.get_device_properties(dev).total_memory)


def same_device(a: kinds.Array, b: kinds.Array) -> bool:
    # JAX mixes no devices, and a traced array has none.
    return bool(compat.is_jax_array(a)) or bool(device(a) == device(b))


def backend(xp: Namespace) -> str:
    """``"numpy"``, ``"torch"``, ``"jax"``, ``"cupy"``, or the name of another array API namespace."""
    for name, test in (
        ("numpy", compat.is_numpy_namespace),
        ("torch", compat.is_torch_namespace),
        ("jax", compat.is_jax_namespace),
        ("cupy", compat.is_cupy_namespace),
    ):
        if test(xp):
            return name
    return str(xp.__name__)


def describe(x: kinds.Array) -> str:
    """How error messages name an array's kind: ``"torch array on cuda:0"``."""
    return f"{backend(namespace(x))} array on {device(x)}"


def is_mutable(xp: Namespace) -> bool:
    """Whether arrays can be written in place."""
    return not compat.is_jax_namespace(xp)


def is_accelerator(xp: Namespace, dev: Device) -> bool:
    """Whether the device has its own memory and likes large blocks."""
    if compat.is_cupy_namespace(xp):
        return True
    if compat.is_torch_namespace(xp):
        return getattr(dev, "type", "cpu") not in ("cpu", "meta")
    if compat.is_jax_namespace(xp):
        return getattr(next(iter(getattr(dev, "device_set", [dev]))), "platform", "cpu") != "cpu"
    return False


# Of the rows of a call of torch on a CPU.
_CALL_BYTES = 2**19


def cpu_call_rows(xp: Namespace, row_bytes: int) -> int:
    """With how many rows a model is best called on a CPU: measured on a 32-128-128-1 network, `benchmarks/engine.py`.

    Temporaries should stay below the size at which memory comes from the system each time. Those of NumPy are as small
    as its functions; networks of torch that read long rows, such as images, have activations of many times their
    size: on rows of 3 kB, calls of 128 took a third of the time of calls of 2048. XLA fuses and spreads a whole block
    over the cores by itself.
    """
    own = min(2048, max(8, _CALL_BYTES // max(row_bytes, 1)))
    return {"numpy": 512, "jax": 16384}.get(backend(xp), own)


def real_dtypes(xp: Namespace, dev: Device) -> dict[str, DType]:
    """The real floating dtypes that the device has."""
    if compat.is_torch_namespace(xp):
        # MPS is the one torch device without float64, and torch's own inspection does not say so.
        found = {"float32": xp.float32, "float64": xp.float64}
        return found if getattr(dev, "type", "cpu") != "mps" else {"float32": xp.float32}
    if compat.is_jax_namespace(xp):
        import jax

        found = {"float32": xp.float32, "float64": xp.float64}
        return found if jax.config.jax_enable_x64 else {"float32": xp.float32}
    info = xp.__array_namespace_info__()
    found = info.dtypes(device=dev, kind="real floating")
    return {name: found[name] for name in ("float32", "float64") if name in found}


def sum_dtype(xp: Namespace, dev: Device) -> DType:
    """The widest real dtype of the device: what sums are kept in."""
    found = real_dtypes(xp, dev)
    return found.get("float64", found["float32"])


def as_floating(x: kinds.Array) -> kinds.Array:
    """Floating numbers as they are, integers in the widest real dtype."""
    xp = namespace(x)
    return x if is_floating(xp, x.dtype) else xp.astype(x, sum_dtype(xp, device(x)))


def index_dtype(xp: Namespace) -> DType:
    """int64, or int32 where JAX runs without 64-bit types."""
    if compat.is_jax_namespace(xp):
        import jax

        return xp.int64 if jax.config.jax_enable_x64 else xp.int32
    return xp.int64


def mask_size(xp: Namespace, bits: int) -> int | None:
    """The narrowest integer, 32 or 64 bits, that holds so many bits of a mask; None if there is none.

    torch has no arithmetic of unsigned integers, so masks are int64 there.
    """
    if compat.is_torch_namespace(xp):
        return 64 if bits <= 64 else None
    wide = 32 if index_dtype(xp) == xp.int32 else 64
    return 32 if bits <= 32 else wide if bits <= wide else None


def from_masks(masks: HostArray, xp: Namespace, dev: Device, size: int) -> kinds.Array:
    """Upload bit masks, uint64 on the host, as integers of 32 or 64 bits."""
    if compat.is_torch_namespace(xp):
        return from_host(masks.view(np.int64), xp, dev)
    return from_host(masks.astype(f"uint{size}"), xp, dev)


def is_floating(xp: Namespace, dtype: DType) -> bool:
    """Real floating, including torch's and JAX's half types that the standard does not name."""
    if compat.is_torch_namespace(xp):
        return bool(getattr(dtype, "is_floating_point", False))
    return bool(xp.isdtype(dtype, "real floating"))


def epsilon(x: kinds.Array) -> float:
    """The spacing of floating numbers at 1 in the array's dtype; 0 for integers and labels."""
    xp = namespace(x)
    return float(xp.finfo(x.dtype).eps) if is_floating(xp, x.dtype) else 0.0


def itemsize(x: kinds.Array) -> int:
    """Bytes of one element."""
    size = getattr(x.dtype, "itemsize", None)
    if size is not None:
        return int(size)
    # array-api-strict's dtypes do not say; their names do ("array_api_strict.float32").
    digits = "".join(c for c in str(x.dtype).rsplit(".", 1)[-1] if c.isdigit())
    return max(int(digits) // 8, 1) if digits else 1


def from_host(values: HostArray, xp: Namespace, dev: Device, dtype: DType | None = None) -> kinds.Array:
    """Upload a NumPy array, explicitly, to a device of a namespace."""
    if compat.is_numpy_namespace(xp):
        return np.asarray(values, dtype=dtype)  # type: ignore[arg-type]  # a dtype of NumPy, because xp is
    if compat.is_jax_namespace(xp):
        import jax

        kind = None if dtype is None else np.dtype(dtype)  # type: ignore[call-overload]  # a dtype of JAX
        put: kinds.Array = jax.device_put(np.asarray(values, dtype=kind), dev)
        return put
    if compat.is_torch_namespace(xp):
        import torch

        host = np.ascontiguousarray(values)
        if not host.flags.writeable:  # torch warns about read-only memory
            host = host.copy()
        tensor: kinds.Array = torch.from_numpy(host).to(device=dev, dtype=dtype)
        return tensor
    if compat.is_cupy_namespace(xp):
        with dev if isinstance(dev, contextlib.AbstractContextManager) else contextlib.nullcontext():
            return xp.asarray(values, dtype=dtype)
    return xp.asarray(values, dtype=dtype, device=dev)


def beside(x: kinds.Array, other: kinds.Array) -> kinds.Array:
    """A host array where the other array is; anything else stays where it is."""
    xp = namespace(other)
    return from_host(x, xp, device(other)) if isinstance(x, np.ndarray) and xp is not namespace(x) else x


def to_host(x: kinds.Array | None) -> HostArray:
    """Download an array, explicitly, to NumPy."""
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    if is_torch_array(x):
        x = x.detach().cpu()
        return np.asarray((x.float() if itemsize(x) < 4 and x.is_floating_point() else x).numpy())
    if _is_cupy_array(x):
        return np.asarray(x.get())
    if compat.is_jax_array(x):
        _check_concrete(x)
        return np.asarray(x)
    xp = namespace(x)
    return np.asarray(compat.to_device(x, xp.__array_namespace_info__().default_device()))


def _check_concrete(x: object) -> None:
    if is_traced(x):
        raise TypeError(
            "a value is traced by JAX, through the model or the loss: importances are numbers, not traced; inside jit, "
            "vmap or grad use rl.functional"
        )


def quiet() -> np.errstate:
    """NumPy's errors are not raised inside, whatever the user asked for: what is not finite is looked for instead."""
    return np.errstate(all="ignore")


@contextlib.contextmanager
def inference_only(xp: Namespace) -> Iterator[None]:
    """No gradient is recorded inside: also plain callables on torch tensors run under ``no_grad``."""
    if compat.is_torch_namespace(xp):
        import torch

        with torch.no_grad():
            yield
    else:
        yield


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Threads that begin inside let torch use so many threads of its own, if it is imported and uses more."""
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    if torch is None or before is None or before <= count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error is a backend's way of saying that memory ran out."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and any(
        sign in text for sign in ("out of memory", "can't allocate memory", "RESOURCE_EXHAUSTED")
    )


def first(rows: kinds.Array | tuple[kinds.Array, ...]) -> kinds.Array:
    """Rows, or the first of several inputs."""
    return rows[0] if isinstance(rows, tuple) else rows


def add_rows(target: kinds.Array, index: kinds.Array, rows: kinds.Array) -> kinds.Array:
    """``target[index] += rows``, each index once; in place where that is possible."""
    xp = namespace(target)
    if _is_jax_array(target):
        return target.at[index].add(rows)
    if compat.is_numpy_namespace(xp) or compat.is_torch_namespace(xp) or compat.is_cupy_namespace(xp):
        target[index] += rows
        return target
    for place, at in enumerate(to_host(index).tolist()):  # the standard has no assignment to indices
        target[at, ...] += rows[place, ...]
    return target


def cells(x: kinds.Array, index: kinds.Array, run: slice) -> kinds.Array:
    """``x[index, run]``: some columns of some rows; `take` of a strided slice would copy all rows first."""
    xp = namespace(x)
    indexed = backend(xp) in ("numpy", "torch", "cupy") or _is_read(type(x))
    return x[index, run] if indexed else xp.take(x[:, run], index, axis=0)


def with_columns(x: kinds.Array, run: slice, values: kinds.Array) -> kinds.Array:
    """A copy of ``x (m, P)`` with other values in a stretch of columns; it can be traced and differentiated."""
    xp = namespace(x)
    if compat.is_torch_namespace(xp):  # pieces put together would take twice the time
        import torch

        written: kinds.Array = torch.slice_scatter(x, values, 1, run.start, run.stop)
        return written
    pieces = [x[:, : run.start], values, x[:, run.stop :]]
    return xp.concat([piece for piece in pieces if piece.shape[1]], axis=1)


def fetch(arrays: Sequence[kinds.Array]) -> list[HostArray]:
    """Download arrays of any shapes with one synchronisation."""
    if not arrays:
        return []
    xp = namespace(arrays[0])
    if compat.is_numpy_namespace(xp):
        return [np.asarray(a) for a in arrays]
    if compat.is_jax_namespace(xp):
        import jax

        for a in arrays:
            _check_concrete(a)
        return [np.asarray(a) for a in jax.device_get(arrays)]
    if len(arrays) == 1:
        return [to_host(arrays[0])]
    host = to_host(xp.concat([xp.reshape(a, (-1,)) for a in arrays]))
    sizes = np.cumsum([int(np.prod(a.shape)) for a in arrays])
    parts = np.split(host, sizes[:-1])
    return [part.reshape(a.shape) for part, a in zip(parts, arrays, strict=True)]
