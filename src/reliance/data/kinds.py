"""What X, y and weights cannot be, though they look like data: each with what to pass instead."""

from __future__ import annotations

import sys

from reliance._core.arrays import is_torch_array, is_traced
from reliance._core.kinds import TorchArray


def check_kind(x: object, name: str) -> None:
    """Raise for kinds of data that no array can be made of without a decision of the user's."""
    words = _words(x, name)
    if words is not None:
        raise TypeError(f"{name} is a {words}")


def _words(x: object, name: str) -> str | None:
    if is_torch_array(x):
        return _tensor_words(x, name)
    if is_traced(x):
        return "JAX tracer: importances are numbers, not traced; inside jit, vmap or grad use rl.functional"
    kind = type(x)
    library = kind.__module__.partition(".")[0]
    if library == "scipy" and hasattr(x, "toarray"):
        return f"sparse {kind.__name__}: pass {name}.toarray(); columns that go together can be one feature"
    if library == "dask":
        return f"dask {kind.__name__}, which has no values yet: pass {name}.compute(), or some of its rows"
    if library in ("h5py", "zarr"):
        return f"{library} {kind.__name__}, which is on disk: pass {name}[:], or some of its rows"
    return _loader_words(x, name)


def _tensor_words(x: TorchArray, name: str) -> str | None:
    if x.is_meta:
        return f"torch tensor on the meta device, which has no values: pass {name} with its values"
    if x.is_nested:
        return f"nested torch tensor: pass one shape for all rows, for instance {name}.to_padded_tensor(0.0)"
    if x.is_sparse or str(x.layout) != "torch.strided":
        return f"sparse torch tensor: pass {name}.to_dense(); columns that go together can be one feature"
    if x.is_quantized:
        return f"quantized torch tensor: pass {name}.dequantize(), and a model that takes it"
    return None


def _loader_words(x: object, name: str) -> str | None:
    torch = sys.modules.get("torch")
    data = None if torch is None else torch.utils.data
    if data is None or not isinstance(x, data.DataLoader | data.Dataset):
        return None
    kind = type(x).__name__
    if isinstance(x, data.DataLoader):
        return f"{kind}, which gives batches: pass one tensor, for instance torch.cat([batch[0] for batch in loader])"
    return f"{kind}, which gives single rows: pass one tensor, for instance torch.stack([row[0] for row in dataset])"
