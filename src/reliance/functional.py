"""The kernels as public pure functions: no checks, no state, to be jitted and differentiated.

Everything here is a function of arrays on one namespace and device, differentiable with respect to the inputs and to
whatever parameters ``model`` closes over. The model is called as it is: switch a torch module to ``eval()`` yourself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from reliance._core import arrays, loops
from reliance._core.arrays import device, namespace
from reliance._core.kinds import Array, HostArray
from reliance._core.words import shown
from reliance.data.passed import LossLike
from reliance.engine import kernels, pure_blocks
from reliance.engine.kernels import Predict
from reliance.engine.pure_blocks import Columns, ColumnsOf, Inputs
from reliance.inference.variance import hull, skewness
from reliance.losses import functions as losses
from reliance.losses.functions import Loss, Metric
from reliance.plans.donor_tables import ranked_donors, within_donors
from reliance.plans.variances import pairs_variance

__all__ = [
    "PairMoments",
    "base_risk",
    "hull",
    "lent_risk",
    "pairs_variance",
    "pairwise_moments",
    "pairwise_risk",
    "ranked_donors",
    "shifted_risk",
    "skewness",
    "switched_losses",
    "within_donors",
]


class PairMoments(NamedTuple):
    """What the all-pairs interval is made of, as arrays: see `pairwise_moments`."""

    rows: Array
    donors: Array
    variance: Array


def base_risk(model: Callable[..., Array], X: Inputs, y: Array, *, loss: LossLike = "squared_error") -> Array:
    """Mean loss of the model on the rows as they are.

    Parameters
    ----------
    model : callable
        ``(m, *features) -> (m, ...)``.
    X : array (n, ...), or a tuple or mapping of arrays
        Several inputs are passed as ``model(*X)`` or ``model(**X)``.
    y : array (n, ...)
    loss : str or callable
        A per-row loss.

    Returns
    -------
    array ()

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[1.0], [2.0]]), np.array([1.0, 4.0])
    >>> float(base_risk(lambda X: X[:, 0], X, y))
    2.0
    """
    return namespace(y).mean(losses.row_losses(_per_row(loss), y, pure_blocks.called(model, X)))


def switched_losses(
    model: Predict, X: Array, y: Array, columns: int | Sequence[int], values: Array, *, loss: LossLike = "squared_error"
) -> Array:
    """Losses of each row with given values written into some columns.

    Parameters
    ----------
    columns : int or sequence of int
        g positions among the flattened features of a row.
    values : array (n, d) or (n, d, g)
        d replacements for each row; without the last axis if g = 1.

    Returns
    -------
    array (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[1.0], [2.0]]), np.array([1.0, 2.0])
    >>> switched_losses(lambda X: X[:, 0], X, y, 0, np.array([[1.0, 3.0], [1.0, 3.0]])).tolist()
    [[0.0, 4.0], [1.0, 1.0]]
    """
    xp = namespace(X, values)
    flat = xp.reshape(X, (X.shape[0], -1))
    chosen = pure_blocks.positions(columns, flat.shape[1])
    values = values[:, :, None] if values.ndim == 2 else values
    if values.ndim != 3 or values.shape[0] != X.shape[0] or values.shape[2] != len(chosen):
        raise ValueError(
            f"values has shape {tuple(values.shape)}: for {X.shape[0]} rows and {len(chosen)} columns it must be "
            f"({X.shape[0]}, d, {len(chosen)})"
        )
    places = np.zeros(flat.shape[1], dtype=np.int64)
    places[chosen] = np.arange(len(chosen))
    block = kernels.written_rows(flat, _rows(X), values, pure_blocks.mask_of(chosen, flat), _index(places, X))
    return _block_losses(model, X, y, block, values.shape[1], loss)


def shifted_risk(
    model: Callable[..., Array],
    X: Inputs,
    y: Array,
    columns: Columns,
    shifts: Sequence[int] | Array,
    *,
    loss: LossLike = "squared_error",
) -> Array:
    """Mean loss when row i takes some columns from row (i + s) mod n, over all rows and the given shifts s.

    Rows are shifted in the order given: shuffle them first. The shifts 1..n-1 together are `pairwise_risk`.

    Parameters
    ----------
    columns : int, sequence of int, array or mapping
        As in `lent_risk`.
    shifts : sequence of int or integer array (K,)
        As an array of the namespace and device of ``X`` they are an operand: new shifts need no new compilation.

    Returns
    -------
    array ()

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([0.0, 1.0, 3.0])
    >>> float(shifted_risk(lambda X: X[:, 0], X, y, 0, [1]))  # (1 + 4 + 9) / 3
    4.666666666666667
    """
    own = pure_blocks.first(X)
    xp = namespace(own)
    if arrays.is_array(shifts) and namespace(shifts) is xp:
        steps = xp.reshape(xp.astype(shifts, arrays.index_dtype(xp), copy=False), (-1,))
    else:
        given = np.asarray(shifts).reshape(-1)
        if given.size == 0 or given.dtype.kind not in "iu":
            raise ValueError(f"shifts={shown(shifts)}: give at least one shift, as integers")
        steps = _index(given.astype(np.int64), own)
    donors = (_rows(own)[:, None] + steps) % own.shape[0]
    return _lent_risk(model, X, y, columns, donors, loss)


def lent_risk(
    model: Callable[..., Array],
    X: Inputs,
    y: Array,
    columns: Columns,
    donors: Array,
    *,
    loss: LossLike = "squared_error",
) -> Array:
    """Mean loss when row i takes some columns from each of its donors.

    If a row may be its own donor, as in `ranked_donors`, a change of the risk is n/(n-1) times as large as the mean
    over other rows: ``(lent_risk(...) - base_risk(...)) * n / (n - 1)`` is unbiased for that of `pairwise_risk`.

    Parameters
    ----------
    X : array (n, ...), or a tuple or mapping of arrays
        Several inputs are passed as ``model(*X)`` or ``model(**X)``.
    columns : int, sequence of int, array or mapping
        Positions among the flattened features of a row. As an array of the namespace of ``X``, integers or a mask of
        booleans, they are an operand: ``jax.vmap(lambda j: lent_risk(model, X, y, j, donors))(jnp.arange(p))`` is one
        program for all features. Of several inputs a mapping from names or places to these.
    donors : integer array (n, K)
        Row numbers. As an array of the namespace and device of ``X`` they are an operand: other donors need no new
        compilation.

    Returns
    -------
    array ()

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([0.0, 1.0, 3.0])
    >>> float(lent_risk(lambda X: X[:, 0], X, y, 0, np.array([[1], [2], [0]])))  # (1 + 4 + 9) / 3
    4.666666666666667
    """
    own = pure_blocks.first(X)
    xp, n = namespace(own), own.shape[0]
    if arrays.is_array(donors) and namespace(donors) is xp and xp.isdtype(donors.dtype, "integral"):
        lenders = xp.astype(donors, arrays.index_dtype(xp), copy=False)
    else:
        host = arrays.to_host(donors) if arrays.is_array(donors) else np.asarray(donors)
        if host.dtype.kind not in "iu":
            raise ValueError(f"donors has dtype {host.dtype}: pass row numbers, as integers")
        lenders = _index(host.astype(np.int64), own)
    if lenders.ndim != 2 or lenders.shape[0] != n or lenders.shape[1] == 0:
        raise ValueError(f"donors has shape {tuple(lenders.shape)}: for {n} rows it must be ({n}, K)")
    return _lent_risk(model, X, y, columns, lenders, loss)


def _lent_risk(
    model: Callable[..., Array], X: Inputs, y: Array, columns: Columns, donors: Array, loss: LossLike
) -> Array:
    predictions = pure_blocks.called(model, pure_blocks.lent_rows(X, columns, donors))
    d = donors.shape[1]
    labels = y if d == 1 else kernels.repeat_rows(y, d)
    return namespace(y).mean(losses.row_losses(_per_row(loss), labels, predictions))


def pairwise_risk(
    model: Predict,
    X: Array,
    y: Array,
    columns: ColumnsOf,
    *,
    loss: LossLike = "squared_error",
    block: int | None = None,
) -> Array:
    r"""Mean loss over all n(n-1) pairs: row i with some columns of row k, k different from i.

    .. math:: \frac{1}{n(n-1)} \sum_{i} \sum_{k \ne i} \ell(f(x_i \text{ with the columns of } x_k), y_i)

    Parameters
    ----------
    columns : int or sequence of int
    block : int, optional
        Rows at a time. Blocks are summed in a scan with rematerialisation, so that a gradient keeps the activations of
        ``block * n`` cells, not of n^2. None: all at once. (``torch.func.grad`` does not go through torch's
        rematerialisation; ``backward()`` and ``torch.autograd.grad`` do.)

    Returns
    -------
    array ()

    References
    ----------
    Fisher, A., Rudin, C., Dominici, F. (2019). All models are wrong, but many are useful. JMLR 20(177).

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([0.0, 1.0, 3.0])
    >>> float(pairwise_risk(lambda X: X[:, 0], X, y, 0))  # 2 (1 + 4 + 9) / 6
    4.666666666666667
    """
    xp = namespace(X)
    n = X.shape[0]
    b = n if block is None else min(block, n)
    if b < 1:
        raise ValueError(f"block={block} is too small: pass at least one row at a time")

    def strip(start: int | Array) -> Array:
        at, inside = strip_rows(X, start, b)
        cells = _pair_losses(model, X, y, columns, at, loss)
        counts = xp.logical_and(inside[:, None], at[:, None] != _rows(X))
        return xp.sum(xp.where(counts, cells, xp.zeros_like(cells)))

    if b == n:
        return strip(0) / (n * (n - 1))
    return loops.rematerialised_sum(strip, np.arange(0, n, b), X) / (n * (n - 1))


def pairwise_moments(
    model: Predict, X: Array, y: Array, columns: ColumnsOf, *, loss: LossLike = "squared_error"
) -> PairMoments:
    """Row means, donor means and sample variance of D(i, k) = L(i, k) - l(i) over all pairs, on the device.

    With them and ``variance = pairs_variance(rows, donors).population`` the interval of the difference is
    ``hull(mean, sqrt(variance), skewness(rows + donors, variance), q, False)``; only the t quantile q is the host's.

    Returns
    -------
    PairMoments
        ``rows (n,)``, ``donors (n,)``, ``variance ()``.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([0.0, 1.0, 3.0])
    >>> pairwise_moments(lambda X: X[:, 0], X, y, 0).rows.tolist()
    [5.0, 2.5, 6.5]
    """
    xp = namespace(X)
    n = X.shape[0]
    base = losses.row_losses(_per_row(loss), y, model(X))
    cells = _pair_losses(model, X, y, columns, _rows(X), loss) - base[:, None]
    changes = xp.where(_rows(X)[:, None] != _rows(X), cells, xp.zeros_like(cells))
    rows, donors = xp.sum(changes, axis=1) / (n - 1), xp.sum(changes, axis=0) / (n - 1)
    pairs = n * (n - 1)
    mean = xp.sum(changes) / pairs
    # The n cells of the diagonal hold 0 - mean each: take them out again.
    squares = xp.sum((changes - mean) ** 2) - n * mean**2
    return PairMoments(rows, donors, squares / (pairs - 1))


def _per_row(loss: LossLike) -> Loss:
    function = losses.resolve(loss)
    if isinstance(function, Metric):
        raise ValueError(f"loss={shown(function.name)} is a whole-set metric: pass a per-row loss")
    return function


def _index(values: HostArray, like: Array) -> Array:
    xp = namespace(like)
    return arrays.from_host(values, xp, device(like), arrays.index_dtype(xp))


def _rows(X: Array) -> Array:
    xp = namespace(X)
    return xp.arange(X.shape[0], dtype=arrays.index_dtype(xp), device=device(X))


def strip_rows(X: Array, start: int | Array, b: int) -> tuple[Array, Array]:
    """Rows start, start + 1, ... of a strip, kept within the data, and which of them are real."""
    xp = namespace(X)
    at = xp.arange(b, dtype=arrays.index_dtype(xp), device=device(X)) + start
    last = xp.full((), X.shape[0] - 1, dtype=at.dtype, device=device(X))
    return xp.minimum(at, last), at <= last


def _pair_losses(model: Predict, X: Array, y: Array, columns: ColumnsOf, at: Array, loss: LossLike) -> Array:
    """``(b, n)``: the losses of some rows with each row as donor."""
    xp = namespace(X)
    flat = xp.reshape(X, (X.shape[0], -1))
    block = kernels.switched_rows(flat, at, _rows(X), pure_blocks.mask_of(columns, flat))
    own = xp.take(y, at, axis=0)
    return _block_losses(model, X, own, block, X.shape[0], loss)


def _block_losses(model: Predict, X: Array, y: Array, block: Array, d: int, loss: LossLike) -> Array:
    xp = namespace(X)
    predictions = model(xp.reshape(block, (block.shape[0], *X.shape[1:])))
    found = losses.row_losses(_per_row(loss), kernels.repeat_rows(y, d), predictions)
    return xp.reshape(found, (y.shape[0], d))
