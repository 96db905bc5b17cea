"""What a call would take, before it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reliance._core import calls
from reliance._core.checks import collecting
from reliance._core.words import shown
from reliance.engine.outlook import spoken
from reliance.methods.adaptive import Until


@dataclass(frozen=True)
class Estimate:
    """What a call would take.

    Attributes
    ----------
    units : int
        Pieces that it is cut into: no more workers than these have something to do.
    model_rows : int
        Rows that the model is called with, besides the rows as they are.
    memory : int
        Bytes that each worker would allocate at most.
    seconds : float
        Of the model with one worker, at the speed that it had on the rows as they are: a rough guess for few rows.
    passes : float
        How often all rows are read, if they are read in blocks from a file or go in blocks to a device; 0 if they are
        in memory. The columns that lend are one pass for all features that ``memory`` holds at a time. Before that,
        two passes check and predict the rows as they are.
    bytes_read : int
        Of these passes.
    """

    units: int
    model_rows: int
    memory: int
    seconds: float
    passes: float = 0.0
    bytes_read: int = 0

    def __str__(self) -> str:
        size = f"{self.model_rows:,} model rows in {self.units:,} units"
        read = f"; X is read {self.passes:,.0f} times, {self.bytes_read / 1e9:,.1f} GB in all" if self.passes else ""
        return f"{size}, about {spoken(self.seconds)} with one worker, {self.memory / 1e6:,.0f} MB each{read}"


def estimate(method: Callable[..., object], *arguments: object, **options: object) -> Estimate:
    """What a call would take: units, model rows, memory, time, passes over the data. Nothing is replaced.

    The model sees the rows as they are, and no others.

    Parameters
    ----------
    method : callable
        A function of this package that measures a model, such as ``rl.permutation_importance``.
    *arguments, **options
        Those of the call.

    Returns
    -------
    Estimate

    Notes
    -----
    Features whose importance follows without the model (linear models, trees: see ``result.routes``) are computed, for
    that is how it is known that they need no rows. Methods that fit models again have no estimate, and neither have
    ``draws=rl.Until(...)``, which stop by what they find.

    Examples
    --------
    >>> import numpy as np, reliance as rl
    >>> X = np.random.default_rng(0).normal(size=(2000, 10))
    >>> model = lambda X: np.tanh(X).sum(axis=1)
    >>> found = rl.estimate(rl.model_reliance, model, X, model(X), pairs="all", compare="difference")
    >>> found.model_rows == 10 * 2000**2, found.units
    (True, 256)
    """
    if not callable(method) or not str(getattr(method, "__module__", "")).startswith("reliance."):
        name = shown(getattr(method, "__qualname__", method))
        raise TypeError(f"method={name}: pass a function of this package, such as rl.permutation_importance")
    if isinstance(options.get("draws"), Until):
        raise ValueError("draws=rl.Until(...) stops by what it finds, and nobody knows when: pass a number of draws")
    with calls.counting() as call, collecting():
        method(*arguments, **options)
    if not call.evaluations:
        name = getattr(method, "__name__", shown(method))
        raise ValueError(f"method={name} calls no model in units, so there is nothing to estimate")
    return Estimate(call.units, call.rows, call.memory, call.seconds, call.passes, round(call.read))
