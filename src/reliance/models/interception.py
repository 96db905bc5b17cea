"""What happens in the place of a torch module's ``forward``, while somebody asks for it and in that thread only.

Hooks of torch run before or after a forward pass. Here the pass itself is left out: a layer answers with what it is
told, and what comes before it need not run at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from reliance.models.libraries import TorchModule

Forward: TypeAlias = Callable[..., object]
# In the place of a forward pass: a function of that pass and of its arguments.
Instead: TypeAlias = Callable[[Forward, tuple[object, ...], dict[str, object]], object]

# By the identity of modules. A thread that asks for nothing runs every module as it is.
_asked: ContextVar[Mapping[int, Instead] | None] = ContextVar("asked", default=None)
_lock = threading.Lock()


class _Opened:
    """A module whose forward pass can be replaced, and how many callers want that."""

    def __init__(self, module: TorchModule) -> None:
        self.module, self.calls = module, 0
        self.own = vars(module).get("forward")  # what was patched before is kept
        original: Forward = module.forward

        def forward(*given: object, **named: object) -> object:
            asked = _asked.get()
            instead = None if asked is None else asked.get(id(module))
            return original(*given, **named) if instead is None else instead(original, given, named)

        vars(module)["forward"] = forward

    def close(self) -> None:
        if self.own is None:
            del vars(self.module)["forward"]
        else:
            vars(self.module)["forward"] = self.own


_opened: dict[int, _Opened] = {}


def _nothing(*given: object) -> None:
    """A hook: torch takes its fused path past the parts of a module only where no part has one."""


@contextmanager
def open_to(modules: Iterable[TorchModule]) -> Iterator[None]:
    """The forward passes of these modules can be replaced inside, in any thread; the last caller puts them back."""
    modules = list(modules)
    with _lock:
        for module in modules:
            if id(module) not in _opened:
                _opened[id(module)] = _Opened(module)
            _opened[id(module)].calls += 1
        hooks = [module.register_forward_hook(_nothing) for module in modules[:1]]
    try:
        yield
    finally:
        with _lock:
            for hook in hooks:
                hook.remove()
            for module in modules:
                found = _opened[id(module)]
                found.calls -= 1
                if not found.calls:
                    found.close()
                    del _opened[id(module)]


@contextmanager
def replacing(instead: Mapping[int, Instead]) -> Iterator[None]:
    """In this thread these modules, which are open, do something else."""
    token = _asked.set(instead)
    try:
        yield
    finally:
        _asked.reset(token)
