"""Reading any saved result."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from reliance.results import files
from reliance.results import importance as results
from reliance.results.algorithm import AlgorithmReliance
from reliance.results.impact import Impact
from reliance.results.null import NullImportance

_READERS: dict[str, Callable[..., Any]] = {
    "Importance": results.load,
    "Impact": Impact.load,
    "AlgorithmReliance": AlgorithmReliance.load,
    "NullImportance": NullImportance.load,
}


def load(path: str | os.PathLike[str]) -> Any:
    """Read a result that a ``save`` method wrote: `Importance`, `Impact`, `AlgorithmReliance` or `NullImportance`.

    Parameters
    ----------
    path : str or path
        A ``.json`` or ``.npz`` file.

    Returns
    -------
    The result, equal to the one that was saved.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> result = rl.feature_impact(lambda X: X[:, 0], X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(pathlib.Path(folder) / "impact.json")
    ...     again = rl.load(pathlib.Path(folder) / "impact.json")
    >>> bool((again.values == result.values).all())
    True
    """
    kind = files.kind_of(path)
    if kind not in _READERS:
        raise ValueError(
            f"path={files.named(path)} holds no saved Importance or other result: give a file that save wrote"
        )
    return _READERS[kind](path)
