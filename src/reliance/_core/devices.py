"""Several devices of one backend: those that a user names, copies on them, and what is set for a thread.

Beside `arrays` and `loops` the third file that knows which backend it runs on.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

import array_api_compat as compat

from reliance._core.arrays import backend, is_torch_array, namespace
from reliance._core.kinds import Array, Device, Namespace
from reliance._core.words import shown


def beside(named: Sequence[Device], xp: Namespace, home: Device) -> tuple[Device, ...]:
    """The devices that a user names for rows of a namespace, which are on one of them: ``home``."""
    kind, given = backend(xp), shown([str(one) for one in named])
    if kind == "numpy":
        raise ValueError(
            f"devices={given}, but X is NumPy, which has no devices: pass X as a torch or JAX array, or share the work "
            "out to cores, rl.Run(workers=4)"
        )
    if len(getattr(home, "device_set", ())) > 1:
        raise ValueError(f"devices={given}, but X is divided between devices already: leave devices= out")
    found = tuple(_named_like(one, home, kind) for one in named)
    if len({getattr(one, "type", getattr(one, "platform", "")) for one in found}) > 1:
        raise ValueError(f"devices={given} are of several kinds, which round differently: pass devices of one kind")
    if home not in found:
        raise ValueError(f"devices={given}, but X is on {home}: pass X, y and the model on one of these devices")
    return found


def _named_like(named: Device, home: Device, kind: str) -> Device:
    """A device as it is, or by its name, of the kind that ``home`` is."""
    found = named
    if isinstance(named, str | int) and kind != "jax":  # whose devices have no names
        try:
            found = _by_name(named, home)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"devices: {shown(named)} is no device of {kind}, like {home}, where X is") from error
    if getattr(found, "type", None) == "cuda" and getattr(found, "index", 0) is None:
        raise ValueError("devices: 'cuda' may be any of them: pass their numbers, such as 'cuda:0'")
    if type(found) is not type(home):
        raise TypeError(f"devices: {shown(str(named))} is no device of {kind}, like {home}, where X is")
    return found


def _by_name(name: str | int, home: Device) -> Device:
    kind: Callable[[str | int], Device] = type(home)
    return kind(name)


def copied_to(x: Array, dev: Device) -> Array:
    """A copy of an array on a device of its namespace; arrays that cannot change may be shared."""
    xp = namespace(x)
    if is_torch_array(x):
        import torch

        moved: Array = x.detach().to(dev, copy=True)
        return torch.nn.Parameter(moved, x.requires_grad) if isinstance(x, torch.nn.Parameter) else moved
    if compat.is_jax_array(x):
        import jax

        put: Array = jax.device_put(x, dev)
        return put
    if compat.is_cupy_array(x):
        with on_device(xp, dev):
            return xp.asarray(x, copy=True)
    return xp.asarray(compat.to_device(x, dev), copy=True)


@contextlib.contextmanager
def on_device(xp: Namespace, dev: Device) -> Iterator[None]:
    """What is made inside without a device of its own is made on this one, where a backend has such a default."""
    with contextlib.ExitStack() as stack:
        if compat.is_jax_namespace(xp):
            import jax

            stack.enter_context(jax.default_device(dev))
        elif compat.is_torch_namespace(xp) and getattr(dev, "type", "") == "cuda":
            import torch

            if torch.cuda.is_available():
                stack.enter_context(torch.cuda.device(dev))
        elif isinstance(dev, contextlib.AbstractContextManager):  # of CuPy
            stack.enter_context(dev)
        yield


def settings_of_thread() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """What torch and JAX let a ``with`` decide for one thread, as it is in this one: for other threads to enter."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    cast = []
    if torch is not None:
        cast = [(one, torch.get_autocast_dtype(one)) for one in ("cpu", "cuda") if torch.is_autocast_enabled(one)]
    wide, precision = False, None
    if jax is not None:
        wide, precision = jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision

    @contextlib.contextmanager
    def entered() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for one, dtype in cast:
                stack.enter_context(sys.modules["torch"].autocast(one, dtype))
            if jax is not None:
                stack.enter_context(jax.enable_x64(wide))
                stack.enter_context(jax.default_matmul_precision(precision))
            yield

    return entered
