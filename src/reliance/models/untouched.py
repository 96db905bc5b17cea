"""Whether what a model's methods do is what its library wrote: not overridden, not patched, not hooked."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from reliance.models.libraries import TorchModule


def inherits(model: object, methods: Iterable[str], library: str) -> bool:
    """Whether each of the methods is the library's own, also if a subclass outside of it inherits them unchanged.

    A method that the model does not have is as its library wrote it.
    """
    return all(_inherits(model, method, library) for method in methods)


def _inherits(model: object, method: str, library: str) -> bool:
    if method in getattr(model, "__dict__", ()):
        return False
    # Every definition on the way: a method may go on to that of its parent, which may be patched.
    return all(
        kind.__module__.partition(".")[0] == library and _is_written_in(vars(kind)[method], library)
        for kind in type(model).__mro__
        if method in vars(kind)
    )


def _is_written_in(function: object, library: str) -> bool:
    """By where its code stands: a function that replaces another may carry its name and module."""
    function = getattr(function, "fn", getattr(function, "__func__", function))  # methods with a condition, static ones
    code = getattr(function, "__code__", None)
    if code is None:  # compiled
        return str(getattr(function, "__module__", "")).partition(".")[0] == library
    home = os.path.dirname(getattr(sys.modules.get(library), "__file__", None) or "")
    return bool(home) and os.path.abspath(code.co_filename).startswith(os.path.abspath(home) + os.sep)


def plain_torch(module: TorchModule) -> bool:
    """Whether a torch module's ``forward`` is all that happens when it is called: nothing patched, no hooks."""
    import torch.nn.modules.module as place

    if getattr(place, "_global_forward_hooks", None) or getattr(place, "_global_forward_pre_hooks", None):
        return False
    if module._forward_hooks or module._forward_pre_hooks:
        return False
    return inherits(module, ("forward", "__call__", "_call_impl", "_wrapped_call_impl"), "torch")
